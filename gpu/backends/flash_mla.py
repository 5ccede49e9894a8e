"""FlashMLA as packaged in ``sgl-flash-mla``: dense bf16 decode of latent attention on Hopper."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from gpu.backends.base import Answer, Backend, missing, not_hopper
from gpu.problem import Problem
from gpu.shapes import PAGE, AttentionShape


class FlashMla(Backend):
    id = "flash_mla"
    name = "FlashMLA"

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        if not shape.latent or (shape.k_dim, shape.v_dim) != (576, 512):
            return "only for latent attention of 512 + 64"
        if shape.tokens % PAGE:
            return f"pages of {PAGE} tokens; {shape.tokens} is not a multiple"
        return not_hopper(device) or missing("flash_mla", "sgl-flash-mla")

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        library = importlib.import_module("flash_mla")
        shape = task.shape
        pages = task.k.view(-1, PAGE, 1, shape.k_dim)
        order = torch.arange(pages.shape[0], device=task.device, dtype=torch.int32)
        table = order.view(shape.batch, -1)
        lengths = torch.full((shape.batch,), shape.tokens, device=task.device, dtype=torch.int32)
        queries = task.q.unsqueeze(1)
        schedule, _ = library.get_mla_metadata()

        def call() -> Answer:
            out, lse = library.flash_mla_with_kvcache(
                queries,
                pages,
                table,
                lengths,
                shape.v_dim,
                schedule,
                softmax_scale=shape.scale,
                causal=False,
                use_legacy=True,
            )
            return out.squeeze(1), lse.squeeze(-1)

        return call
