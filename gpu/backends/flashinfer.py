"""FlashInfer's latent attention, only where its module has been built ahead.

Without that, the first call would compile for minutes.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu.backends.base import Answer, Backend, missing, not_hopper
from gpu.problem import Problem
from gpu.shapes import PAGE, AttentionShape

WORKSPACE = 128 * 2**20


class FlashInferMla(Backend):
    id = "flashinfer"
    name = "FlashInfer"
    quick = False

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        if not shape.latent or (shape.k_dim, shape.v_dim) != (576, 512) or shape.tokens % PAGE:
            return "only for latent attention of 512 + 64 in whole pages"
        reason = not_hopper(device) or missing("flashinfer", "flashinfer-python")
        if reason is None and not _built():
            return "its module is not built (it would compile for minutes)"
        return reason

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        library = importlib.import_module("flashinfer.mla")
        shape = task.shape
        workspace = torch.empty(WORKSPACE, device=task.device, dtype=torch.uint8)
        wrapper = library.BatchMLAPagedAttentionWrapper(workspace, backend="fa3")
        pages = shape.tokens // PAGE
        requests = torch.arange(shape.batch + 1, device=task.device, dtype=torch.int32)
        order = torch.arange(shape.batch * pages, device=task.device, dtype=torch.int32)
        lengths = torch.full_like(requests[1:], shape.tokens)
        rope = shape.k_dim - shape.v_dim
        wrapper.plan(
            requests,
            requests * pages,
            order,
            lengths,
            shape.heads,
            shape.v_dim,
            rope,
            PAGE,
            False,
            shape.scale,
            task.q.dtype,
            task.k.dtype,
        )
        cache = task.k.view(-1, PAGE, shape.k_dim)
        latent, rotary = cache[..., : shape.v_dim], cache[..., shape.v_dim :]
        queries = task.q[..., : shape.v_dim].contiguous(), task.q[..., shape.v_dim :].contiguous()

        def call() -> Answer:
            out, lse = wrapper.run(*queries, latent, rotary, return_lse=True)
            return out, lse * math.log(2)  # it returns the logarithm to base 2

        return call


def _built() -> bool:
    """Whether a built module lies in the package or in the user's cache."""
    spec = importlib.util.find_spec("flashinfer")
    if spec is None or spec.origin is None:
        return False
    places = (Path(spec.origin).parent / "data" / "aot", Path.home() / ".cache" / "flashinfer")
    return any(any(place.rglob("*mla*sm90*.so")) for place in places if place.is_dir())
