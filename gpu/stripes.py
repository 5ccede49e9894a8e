"""Merging stripes by their log-sum-exp: is it right, and how long does it take?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gpu.own import SplitDecode, merge, why_not
from gpu.problem import Problem, References, empty_cache, problem, relative
from gpu.shapes import AttentionShape
from gpu.timing import Clock

BOUND = 5e-3
"""Largest error of a merge: bf16 outputs give 2e-3, a plain mean 1e-2 even on equal stripes."""
CHECK_TOKENS = 65_536
CHECK_BATCH = 2


def uneven_partials(parts: int, rows: int, width: int, device: Any) -> tuple[Any, Any]:
    """Partial outputs whose log-sum-exp differ by several units, as real stripes' may.

    On even ones a plain mean is nearly right and a wrong merge goes unnoticed.
    """
    generator = torch.Generator(device=device).manual_seed(1)
    out = torch.randn(parts, rows, width, device=device, generator=generator)
    lse = 3.0 * torch.randn(parts, rows, device=device, generator=generator) + 10.0
    return out, lse


def merged_exactly(out: Any, lse: Any) -> Any:
    """The merge in float64: [parts, rows, width] to [rows, width]."""
    weights = torch.softmax(lse.double(), 0)
    return (weights[..., None] * out.double()).sum(0)


def merge_errors(parts: int, rows: int, width: int, device: Any) -> tuple[float, float]:
    """Relative errors on uneven partials: of our kernel, and of a plain mean."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    out, lse = uneven_partials(parts, rows, width, device)
    out = out.to(kind)
    expected = merged_exactly(out, lse)
    found = torch.full((rows, width), float("nan"), device=device, dtype=kind)
    merge(out, lse, found, torch.empty(rows, device=device), part_axis=0)
    mean = out.float().mean(0)
    return relative(found, expected), relative(mean, expected)


def time_merge(parts: int, shape: AttentionShape, heads: int, clock: Clock, device: Any) -> Any:
    """The merge after the exchange: [parts, B, heads, v_dim] bf16 partials of one rank."""
    rows = shape.batch * heads
    out, lse = uneven_partials(parts, rows, shape.v_dim, device)
    out = out.to(torch.bfloat16)
    found, total = torch.empty_like(out[0]), torch.empty_like(lse[0])
    timing = clock.time(lambda: merge(out, lse, found, total, part_axis=0))
    moved = out.numel() * 2 + lse.numel() * 4 + found.numel() * 2 + total.numel() * 4
    return timing, moved


def striped_attention(shape: AttentionShape, parts: int, device: Any) -> tuple[float, float] | None:
    """Attention over interleaved stripes one after another, merged, against the whole in fp32.

    Stripe r holds the tokens with index r mod ``parts``. Keys grow from stripe
    to stripe, so that their log-sum-exp differ. (output error, LSE error), or
    None where our kernel does not take the shape.
    """
    if why_not(shape) is not None:
        return None
    tokens = min(CHECK_TOKENS, shape.tokens * parts) // (64 * parts) * 64 * parts
    tokens = tokens or 64 * parts
    whole = replace(shape, batch=CHECK_BATCH, tokens=tokens, wanted_tokens=tokens)
    task = problem(whole, empty_cache(whole, device))
    for part in range(parts):
        task.k[:, part::parts] *= 0.25 + 1.5 * part / parts
    partials = [_stripe(task, part, parts) for part in range(parts)]
    out = torch.stack([one for one, _ in partials])
    lse = torch.stack([one for _, one in partials])
    found, total = torch.empty_like(out[0]), torch.empty_like(lse[0])
    merge(out, lse, found, total, part_axis=0)
    checked = References(task).check(found, total)
    return checked.out, checked.lse if checked.lse is not None else float("nan")


def _stripe(task: Problem, part: int, parts: int) -> tuple[Any, Any]:
    shape = replace(task.shape, tokens=task.shape.tokens // parts)
    k, v = (tensor[:, part::parts].contiguous() for tensor in (task.k, task.v))
    tma = torch.cuda.get_device_capability(task.device) >= (9, 0)
    out, lse = SplitDecode(shape, task.q, k, v, tma, splits=4)()
    return out.clone(), lse.clone()
