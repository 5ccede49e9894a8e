"""What a step costs in time: measured collectives, fitted kernels, rooflines for the rest."""

from __future__ import annotations

from calc.timing.collectives import Links
from calc.timing.kernels import Kernels
from calc.timing.prefill import prefill_time
from calc.timing.step import StepTime, TimePart, communication, decode_time

__all__ = [
    "Kernels",
    "Links",
    "StepTime",
    "TimePart",
    "communication",
    "decode_time",
    "prefill_time",
]
