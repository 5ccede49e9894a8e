"""Read memory and nothing else: the ceiling of a kernel that only reads its cache."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def read_sum(source, sums, size, block: tl.constexpr):
    """One program adds up ``block`` int32 words, so that every one has to arrive."""
    start = tl.program_id(0).to(tl.int64) * block
    index = start + tl.arange(0, block)
    words = tl.load(source + index, mask=index < size, other=0)
    tl.store(sums + tl.program_id(0), tl.sum(words, 0))
