"""FlashAttention-3 as packaged in ``fa3-fwd``: latent and grouped attention on Hopper."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gpu.backends.base import Answer, Backend, missing, not_hopper
from gpu.problem import Problem
from gpu.shapes import AttentionShape


class FlashAttention3(Backend):
    id = "fa3"
    name = "FlashAttention-3"
    quick = False

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        if shape.latent and (shape.k_dim, shape.v_dim) != (576, 512):
            return "latent attention only as 512 + 64"
        if not shape.latent and (shape.k_dim != shape.v_dim or shape.k_dim > 256):
            return "keys and values of one width up to 256"
        return not_hopper(device) or missing("fa3_fwd_interface", "fa3-fwd")

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        library = importlib.import_module("fa3_fwd_interface")
        shape = task.shape
        queries = task.q.unsqueeze(1)
        keys, extra = task.k, {}
        if shape.latent:
            keys = task.k[..., shape.v_dim :]
            extra = {"qv": queries[..., : shape.v_dim].contiguous()}
            queries = queries[..., shape.v_dim :].contiguous()
        values = task.value_rows()

        def call() -> Answer:
            out, lse, *_ = library.flash_attn_with_kvcache(
                queries,
                keys,
                values,
                cache_seqlens=shape.tokens,
                softmax_scale=shape.scale,
                return_softmax_lse=True,
                **extra,
            )
            return out.squeeze(1), lse.squeeze(-1)

        return call

    def scratch_bytes(self, shape: AttentionShape) -> int:
        return 900 * 10**6
