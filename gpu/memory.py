"""Allocating what a shape needs: the bytes it takes, and less of it when there is too little."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpu.shapes import PAGE, AttentionShape

KV_LIMIT = 10 * 10**9
"""Bytes of cache that a measurement takes at most."""
GRANULE = 2 * 2**20
"""The allocator rounds a tensor of a MiB or more up to this."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """Bytes the allocator handed out for some tensors, beside what the shapes say."""

    tensors: int
    predicted: int
    seen: int

    @property
    def within(self) -> bool:
        """Whether the difference is at most one granule a tensor."""
        return abs(self.seen - self.predicted) <= self.tensors * GRANULE

    def to_json(self) -> dict[str, Any]:
        return {
            "tensors": self.tensors,
            "predicted_bytes": self.predicted,
            "allocated_bytes": self.seen,
            "within": self.within,
        }


def free_bytes(device: Any) -> int:
    """What the driver says is free; another process may take it the next moment."""
    return torch.cuda.mem_get_info(device)[0]


def drop_unused() -> None:
    """Give freed tensors back, so that readings and the next allocation do not see them."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fitted(shape: AttentionShape, limit: int) -> AttentionShape:
    """The shape with tokens halved until its cache is within ``limit`` bytes.

    >>> shape = AttentionShape("mla", 1, 64, 131072, 12, 1, 576, 512, True, 0.07, 131072)
    >>> fitted(shape, 10**10).tokens, fitted(shape, 5 * 10**9).tokens
    (131072, 65536)
    """
    while shape.kv_bytes > limit and shape.tokens > 1:
        shape = shape.with_tokens(shape.tokens // 2)
    return shape


def allocate(
    shape: AttentionShape, make: Callable[[AttentionShape], Any]
) -> tuple[AttentionShape, Any, Allocated]:
    """Make a shape's cache, halving the tokens at every out-of-memory down to one page."""
    while True:
        drop_unused()
        before = torch.cuda.memory_allocated()
        try:
            cache = make(shape)
        except torch.cuda.OutOfMemoryError:
            if shape.tokens <= PAGE:
                raise
            shape = shape.with_tokens(shape.tokens // 2)
            continue
        seen = torch.cuda.memory_allocated() - before
        return shape, cache, Allocated(1, shape.kv_bytes, seen)
