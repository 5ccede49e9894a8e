"""Our own split-KV kernel: everywhere Triton is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu.backends.base import HOPPER, Answer, Backend, missing
from gpu.own import SplitDecode, default_tiles, split_candidates, why_not
from gpu.problem import Problem
from gpu.shapes import AttentionShape
from gpu.timing import Clock, Method


class TritonPointers(Backend):
    """Loads through plain pointers."""

    id = "triton_ptr"
    name = "own Triton kernel, plain loads"
    quick = False
    tma = False

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        if device.type != "cuda":
            return "needs an NVIDIA GPU"
        return missing("triton", "triton") or why_not(shape)

    def prepare(self, task: Problem) -> Callable[[], Answer]:
        tiles = default_tiles(task.shape)
        processors = torch.cuda.get_device_properties(task.device).multi_processor_count
        candidates = split_candidates(task.shape, tiles, processors)
        decode = SplitDecode(task.shape, task.q, task.k, task.v, self.tma, candidates[0], tiles)
        decode.set_splits(_fastest(decode, candidates, task.device))
        decode.out.fill_(float("nan"))
        decode.lse.fill_(float("nan"))
        return decode

    def scratch_bytes(self, shape: AttentionShape) -> int:
        most = split_candidates(shape, default_tiles(shape), 132)[-1]
        return most * shape.batch * shape.heads * shape.v_dim * 4


class TritonSplit(TritonPointers):
    """Loads through tensor descriptors where the card has them, else as above."""

    id = "triton"
    name = "own Triton kernel"
    quick = True
    tma = True

    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        reason = super().why_not(shape, device)
        if reason is None and torch.cuda.get_device_capability(device) < HOPPER:
            return "no tensor memory accelerator before compute capability 9.0"
        return reason


def _fastest(decode: SplitDecode, candidates: list[int], device: Any) -> int:
    if len(candidates) == 1:
        return candidates[0]
    clock = Clock(Method(), device)
    times = {}
    for splits in candidates:
        decode.set_splits(splits)
        times[splits] = clock.quick(decode)
    return min(times, key=times.__getitem__)
