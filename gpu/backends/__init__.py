"""Backends of decode attention, in the order in which they are tried.

To add one: a module with a class that has ``id``, ``name``, ``why_not`` and
``prepare`` (see ``base``), and a line in ``ALL``.
"""

from __future__ import annotations

from gpu.backends.base import Backend
from gpu.backends.bmm import TorchMatmul
from gpu.backends.fa3 import FlashAttention3
from gpu.backends.flash_mla import FlashMla
from gpu.backends.flashinfer import FlashInferMla
from gpu.backends.sdpa import AtenFlash, CudnnSdpa
from gpu.backends.triton_split import TritonPointers, TritonSplit

ALL: tuple[Backend, ...] = (
    FlashMla(),
    FlashAttention3(),
    FlashInferMla(),
    TritonSplit(),
    TritonPointers(),
    CudnnSdpa(),
    AtenFlash(),
    TorchMatmul(),
)

__all__ = ["ALL", "Backend"]
