"""What one step computes and moves, stage by stage."""

from __future__ import annotations

from calc.traffic.stage import Options, Stage
from calc.traffic.step import Step, decode_step, prefill_step

__all__ = ["Options", "Stage", "Step", "decode_step", "prefill_step"]
