"""Merge partial attention outputs by their log-sum-exp: splits of a rank, or ranks of a group."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def merge_partials(
    part_out,
    part_lse,
    out,
    lse,
    parts,
    out_part_stride,
    out_row_stride,
    lse_part_stride,
    lse_row_stride,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
):
    """One program: ``columns`` of one row (a request and head), all parts in fp32.

    A part that saw no token has a log-sum-exp of -inf and no weight.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    part = tl.arange(0, chunk)
    largest = float("-inf")
    for start in range(0, parts, chunk):
        pointers = part_lse + row * lse_row_stride + (start + part) * lse_part_stride
        one = tl.load(pointers, mask=start + part < parts, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(one, 0))
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    weight = 0.0
    total = tl.zeros([columns], tl.float32)
    for start in range(0, parts, chunk):
        index = start + part
        pointers = part_lse + row * lse_row_stride + index * lse_part_stride
        share = tl.exp(tl.load(pointers, mask=index < parts, other=float("-inf")) - shift)
        where = part_out + row * out_row_stride + index.to(tl.int64)[:, None] * out_part_stride
        values = tl.load(where + column[None, :], mask=(share > 0)[:, None], other=0.0)
        total += tl.sum(values.to(tl.float32) * share[:, None], 0)
        weight += tl.sum(share, 0)
    safe = tl.where(weight > 0, weight, 1.0)
    tl.store(out + row * width + column, (total / safe).to(out.dtype.element_ty))
    if tl.program_id(1) == 0:
        tl.store(lse + row, tl.where(weight > 0, shift + tl.log(safe), float("-inf")))
