"""PyTorch's fused attention for grouped K/V; neither takes latent attention's widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu.backends.base import Answer, Backend
from gpu.problem import Problem
from gpu.shapes import AttentionShape


def _narrow_reason(shape: AttentionShape, device: Any) -> str | None:
    if shape.latent or shape.k_dim != shape.v_dim or shape.k_dim > 256:
        return "keys and values of one width up to 256"
    return None if device.type == "cuda" else "needs an NVIDIA GPU"


class CudnnSdpa(Backend):
    """One query row, grouped heads; the log-sum-exp is not returned."""

    id = "sdpa_cudnn"
    name = "PyTorch SDPA, cuDNN"

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        if shape.k_dim > 128:
            return "head widths up to 128"
        return _narrow_reason(shape, device)

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        queries = task.q.unsqueeze(2)
        keys, values = task.k.transpose(1, 2), task.v.transpose(1, 2)
        grouped = task.shape.group > 1

        def call() -> Answer:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = torch.nn.functional.scaled_dot_product_attention(
                    queries, keys, values, scale=task.shape.scale, enable_gqa=grouped
                )
            return out.squeeze(2), None

        return call


class AtenFlash(Backend):
    """A group's heads folded into the query's length, so that the log-sum-exp comes back."""

    id = "aten_flash"
    name = "PyTorch flash attention with LSE"

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        return _narrow_reason(shape, device)

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        shape = task.shape
        queries = task.q.view(shape.batch, shape.kv_heads, shape.group, shape.k_dim)
        keys, values = task.k.transpose(1, 2), task.v.transpose(1, 2)
        flash = torch.ops.aten._scaled_dot_product_flash_attention

        def call() -> Answer:
            out, lse, *_ = flash(queries, keys, values, 0.0, False, False, scale=shape.scale)
            return out.reshape(shape.batch, shape.heads, -1), lse.reshape(shape.batch, shape.heads)

        return call
