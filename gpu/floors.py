"""The least time a kernel can take on this card, and what a measured time means beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gpu.shapes import AttentionShape, StateShape

GOOD, FAIR = 0.8, 0.5
SUSPECT = 1.05
"""Above this fraction of the floor the ceiling was measured too low."""
MEANINGFUL_US = 20.0
"""Below this a time is launch time, and no fraction is given."""

Side = Literal["memory", "compute"]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of this card: bytes and operations a second."""

    read: float
    copy: float
    gemm: float


@dataclass(frozen=True, slots=True)
class Floor:
    """``us`` counts the real heads, ``tile_us`` heads filled up to whole tiles."""

    us: float
    side: Side
    tile_us: float
    tile_side: Side

    def fraction(self, measured_us: float) -> float | None:
        """Floor over measured time; None where launching dominates."""
        return self.us / measured_us if measured_us >= MEANINGFUL_US else None

    def to_json(self) -> dict[str, Any]:
        return {
            "us": self.us,
            "side": self.side,
            "tile_us": self.tile_us,
            "tile_side": self.tile_side,
        }


def attention_floor(shape: AttentionShape, ceilings: Ceilings) -> Floor:
    """max(bytes / read ceiling, operations / matrix ceiling).

    >>> from gpu.shapes import AttentionShape
    >>> shape = AttentionShape("mla", 1, 64, 131072, 12, 1, 576, 512, True, 0.07, 131072)
    >>> floor = attention_floor(shape, Ceilings(4.606e12, 4.3e12, 811e12))
    >>> floor.side, round(floor.us)
    ('memory', 2098)
    """
    memory = (shape.kv_bytes + shape.other_bytes) / ceilings.read * 1e6
    exact, padded = (work / ceilings.gemm * 1e6 for work in (shape.flops, shape.tile_flops))
    return Floor(
        max(memory, exact), _side(memory, exact), max(memory, padded), _side(memory, padded)
    )


def state_floor(shape: StateShape, ceilings: Ceilings) -> Floor:
    """A state is read and written back: the copy ceiling."""
    us = shape.moved_bytes / ceilings.copy * 1e6
    return Floor(us, "memory", us, "memory")


def _side(memory: float, compute: float) -> Side:
    return "memory" if memory >= compute else "compute"


def verdict(fraction: float | None) -> str:
    """A word for a fraction of the floor.

    >>> verdict(0.97), verdict(0.64), verdict(0.29), verdict(None), verdict(1.2)
    ('good', 'fair', 'kernel_limited', 'launch', 'suspect')
    """
    if fraction is None:
        return "launch"
    if fraction > SUSPECT:
        return "suspect"
    if fraction >= GOOD:
        return "good"
    return "fair" if fraction >= FAIR else "kernel_limited"
