"""The tensors of one shape, the fp32 answer, and whether a backend's answer is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu.shapes import BF16, AttentionShape

OUT_BOUND = 1e-2
"""Largest relative error of an output: bf16 rounding gives 2e-3, bf16 scores up to 7e-3."""
LSE_BOUND = 1e-2


@dataclass(slots=True)
class Problem:
    """q [B, H, k_dim]; k [B, S, kv_heads, k_dim]; v [B, S, kv_heads, v_dim] (in k if latent)."""

    shape: AttentionShape
    q: Any
    k: Any
    v: Any

    @property
    def device(self) -> Any:
        return self.q.device

    def value_rows(self) -> Any:
        """V as [B, S, kv_heads, v_dim]; a view of K for a latent."""
        return self.k[..., : self.shape.v_dim] if self.shape.latent else self.v


def empty_cache(shape: AttentionShape, device: Any, dtype: Any = torch.bfloat16) -> Any:
    """One uninitialised tensor that holds K, and V behind it where it is not part of K."""
    return torch.empty(shape.kv_bytes // BF16, device=device, dtype=dtype)


def problem(shape: AttentionShape, cache: Any, seed: int = 0) -> Problem:
    """Random values in the cache (never zeros: they are faster), and queries for them."""
    generator = torch.Generator(device=cache.device).manual_seed(seed)
    cache.normal_(generator=generator)
    size = (shape.batch, shape.heads, shape.k_dim)
    q = torch.randn(size, device=cache.device, dtype=cache.dtype, generator=generator)
    rows = (shape.batch, shape.tokens, shape.kv_heads)
    keys = shape.batch * shape.tokens * shape.kv_heads * shape.k_dim
    k = cache[:keys].view(*rows, shape.k_dim)
    return Problem(shape, q, k, k if shape.latent else cache[keys:].view(*rows, shape.v_dim))


def reference(task: Problem, request: int) -> tuple[Any, Any]:
    """Attention of one request in fp32: (out [H, v_dim], lse [H])."""
    shape = task.shape
    keys = task.k[request].float()
    values = task.value_rows()[request].float()
    queries = task.q[request].float().view(shape.kv_heads, shape.group, shape.k_dim)
    scores = torch.einsum("kgd,skd->kgs", queries, keys) * shape.scale
    lse = torch.logsumexp(scores, -1)
    out = torch.einsum("kgs,skd->kgd", torch.exp(scores - lse[..., None]), values)
    return out.reshape(shape.heads, shape.v_dim), lse.reshape(shape.heads)


@dataclass(frozen=True, slots=True)
class Checked:
    """Errors against fp32; ``lse`` is None for a backend that does not return it."""

    out: float
    lse: float | None

    @property
    def right(self) -> bool:
        """NaN never passes."""
        good = self.out < OUT_BOUND
        return good and (self.lse is None or self.lse < LSE_BOUND)


class References:
    """fp32 answers of a problem's first and last request, computed once."""

    def __init__(self, task: Problem) -> None:
        with exact_float32():
            self.rows = {row: reference(task, row) for row in {0, task.shape.batch - 1}}

    def check(self, out: Any, lse: Any) -> Checked:
        """Compare a whole answer: out [B, H, v_dim], lse [B, H] or None."""
        outs = [relative(out[row], expected) for row, (expected, _) in self.rows.items()]
        if not bool(torch.isfinite(out).all()):
            outs.append(float("nan"))
        worst = max(outs) if all(value == value for value in outs) else float("nan")
        if lse is None:
            return Checked(worst, None)
        gaps = [
            float((lse[row] - expected).abs().max()) for row, (_, expected) in self.rows.items()
        ]
        finite = bool(torch.isfinite(lse).all())
        return Checked(worst, max(gaps) if finite else float("nan"))


def relative(found: Any, expected: Any) -> float:
    """Norm of the difference over the norm of what was expected."""
    found, expected = found.float(), expected.float()
    return float((found - expected).norm() / expected.norm())


class exact_float32:  # noqa: N801 - used like a function, in a with statement
    """Keep fp32 products in fp32 (no tf32) for a reference."""

    def __enter__(self) -> None:
        self.kept = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.kept
