"""What a backend is: detected, prepared on a problem, then called."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from gpu.problem import Problem
from gpu.shapes import AttentionShape

Answer = tuple[Any, Any]
"""(out [B, H, v_dim], lse [B, H] in natural units, or None where it is not returned)."""

HOPPER = (9, 0)


class Backend(ABC):
    """One way to compute decode attention.

    ``weak``: it runs anywhere but far from the floor, so a low fraction says
    more about it than about the card. ``quick``: part of a run without options
    even when a better one is present.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    weak: ClassVar[bool] = False
    quick: ClassVar[bool] = True

    @abstractmethod
    def why_not(self, shape: AttentionShape, device: Any) -> str | None:
        """Why it cannot run here, in a few words, or None. Imports nothing large."""

    @abstractmethod
    def prepare(self, task: Problem) -> Callable[[], Answer]:
        """Everything before the call that a server does once; the call is what is timed."""

    def scratch_bytes(self, shape: AttentionShape) -> int:
        """Memory beyond the problem's tensors, about."""
        return 0


def missing(module: str, package: str) -> str | None:
    """ "not installed" unless the module can be found; nothing is imported."""
    found = importlib.util.find_spec(module) is not None
    return None if found else f"not installed ({package})"


def not_hopper(device: Any) -> str | None:
    """Libraries built for sm_90 run on compute capability 9.0 only."""
    if device.type != "cuda":
        return "needs an NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability != HOPPER:
        return f"built for compute capability 9.0, this is {capability[0]}.{capability[1]}"
    return None
