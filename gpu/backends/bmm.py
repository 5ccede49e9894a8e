"""Plain matrix products in torch: always there, far from the floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu.backends.base import Answer, Backend
from gpu.problem import Problem
from gpu.shapes import AttentionShape

SCRATCH_LIMIT = 4 * 10**9
SCORE_BYTES = 10
"""A score in fp32, its exponential in fp32 and in bf16."""


class TorchMatmul(Backend):
    """fp32 scores, a softmax with its log-sum-exp, bf16 probabilities."""

    id = "torch_bmm"
    name = "torch matmul"
    weak = True

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        return None

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        shape = task.shape
        step = self._requests_at_once(shape)
        out = torch.empty(
            shape.batch, shape.heads, shape.v_dim, device=task.device, dtype=task.q.dtype
        )
        lse = torch.empty(shape.batch, shape.heads, device=task.device)

        def call() -> Answer:
            for start in range(0, shape.batch, step):
                some = slice(start, min(start + step, shape.batch))
                out[some], lse[some] = _attend(task, some)
            return out, lse

        return call

    def scratch_bytes(self, shape: AttentionShape) -> int:
        one = shape.heads * shape.tokens * SCORE_BYTES
        return one * self._requests_at_once(shape)

    def _requests_at_once(self, shape: AttentionShape) -> int:
        one = shape.heads * shape.tokens * SCORE_BYTES
        return max(1, min(shape.batch, SCRATCH_LIMIT // one))


def _attend(task: Problem, some: slice) -> Answer:
    shape = task.shape
    keys = task.k[some].transpose(1, 2)
    values = task.value_rows()[some].transpose(1, 2)
    count = keys.shape[0]
    queries = task.q[some].view(count * shape.kv_heads, shape.group, shape.k_dim)
    scores = _float_scores(queries, _rows(keys).transpose(1, 2)).mul_(shape.scale)
    lse = torch.logsumexp(scores, -1)
    weights = scores.sub_(lse[..., None]).exp_().to(values.dtype)
    out = torch.bmm(weights, _rows(values))
    return out.view(count, shape.heads, -1), lse.view(count, shape.heads)


def _rows(tensor: Any) -> Any:
    """[B, kv_heads, S, d] as [B * kv_heads, S, d], a view for one KV head."""
    return tensor.flatten(0, 1)


def _float_scores(queries: Any, keys: Any) -> Any:
    if queries.device.type == "cuda" and queries.dtype != torch.float32:
        return torch.bmm(queries, keys, out_dtype=torch.float32)
    return torch.bmm(queries.float(), keys.float())
