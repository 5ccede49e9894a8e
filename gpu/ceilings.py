"""What this card can do at most: read, copy, multiply."""

from __future__ import annotations

from typing import Any

import torch

from gpu.floors import Ceilings
from gpu.own import read_all, sums_for
from gpu.timing import Clock, Timing

GEMM_SIZE = 4096
GEMM_BURST = 8
COPY_WORDS = 250_000_000
SUSTAINED_S = 1.0


def memory_ceilings(cache: Any, clock: Clock) -> tuple[Timing, Timing, dict[str, float]]:
    """Reading a cache once, and copying a part of it onto the next.

    Over the tensor that decode reads, so that a fraction compares like with
    like. Call it before the values matter: the copy overwrites some of them.
    """
    words = cache[: cache.numel() // 2 * 2].view(torch.int32)
    sums = sums_for(words)
    reading = clock.time(lambda: read_all(words, sums))
    part = min(words.numel() // 2, COPY_WORDS)
    source, target = words[:part], words[part : 2 * part]
    # by the processors: a plain copy in a graph may take the copy engine, 2.7 against 4.2 TB/s
    copying = clock.time(lambda: torch.bitwise_not(source, out=target))
    rates = {
        "read": words.numel() * 4 / reading.us * 1e6,
        "copy": 2 * part * 4 / copying.us * 1e6,
    }
    return reading, copying, rates


def gemm_burst(clock: Clock, device: Any) -> tuple[Timing, float]:
    """A bf16 product of random 4096 x 4096 matrices in bursts: (time of one, FLOP/s)."""
    x, y = _matrices(device)
    timing = clock.time(lambda: [torch.mm(x, y) for _ in range(GEMM_BURST)], GEMM_BURST)
    return timing, 2 * GEMM_SIZE**3 / timing.us * 1e6


def gemm_sustained(clock: Clock, device: Any, seconds: float = SUSTAINED_S) -> float:
    """The same back to back until power limits it, FLOP/s."""
    x, y = _matrices(device)
    us = clock.sustained(lambda: [torch.mm(x, y) for _ in range(GEMM_BURST)], seconds)
    return 2 * GEMM_SIZE**3 * GEMM_BURST / us * 1e6


def as_ceilings(rates: dict[str, float], gemm: float) -> Ceilings:
    return Ceilings(rates["read"], rates["copy"], gemm)


def _matrices(device: Any) -> tuple[Any, Any]:
    size = (GEMM_SIZE, GEMM_SIZE)
    options = {"device": device, "dtype": torch.bfloat16}
    return torch.randn(size, **options), torch.randn(size, **options)
