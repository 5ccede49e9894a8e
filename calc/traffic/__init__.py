"""What one decode step computes and moves, stage by stage."""

from __future__ import annotations

from calc.traffic.stage import Stage
from calc.traffic.step import Step, decode_step

__all__ = ["Stage", "Step", "decode_step"]
