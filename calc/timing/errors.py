"""How far the estimates are from published measurements: ``python -m calc timing --errors``.

The reference points are a sample (``presets/timing_points.yaml``). Collectives are compared at
sizes that the curves leave out. The kernels were fitted to the tables the sample is from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.hardware import load_hardware
from calc.timing.collectives import Links
from calc.timing.data import FOLDER
from calc.timing.kernels import Kernels
from calc.yaml_files import read_yaml

POINTS = FOLDER.parent / "timing_points.yaml"


@dataclass(frozen=True, slots=True)
class Compared:
    """One measurement beside the estimate."""

    table: str
    group: str
    measured_us: float
    estimated_us: float

    @property
    def error(self) -> float:
        """Relative: above zero the estimate is too long."""
        return self.estimated_us / self.measured_us - 1


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Absolute relative errors of one table or group of it."""

    table: str
    group: str
    points: int
    median: float
    worst: float
    source: str


@functools.cache
def compared() -> tuple[Compared, ...]:
    """Every reference point with its estimate."""
    data = read_yaml(POINTS)
    made = {
        "collectives": _collective,
        "latent": _latent,
        "heads": _heads,
        "states": _state,
        "deepep": _collective,
    }
    return tuple(made[table](table, row) for table in made for row in data[table]["rows"])


def sources() -> dict[str, str]:
    """Where each table of reference points is from."""
    return {table: part["source"] for table, part in read_yaml(POINTS).items()}


def error_rows(by_group: bool = False) -> Iterator[ErrorRow]:
    """The error of each table, or of each group in it."""
    found: dict[tuple[str, str], list[float]] = {}
    for point in compared():
        found.setdefault((point.table, point.group if by_group else "all"), []).append(
            abs(point.error)
        )
    names = sources()
    for (table, group), errors in found.items():
        yield ErrorRow(
            table, group, len(errors), float(np.median(errors)), max(errors), names[table]
        )


def typical_error(table: str) -> float:
    """The median error to name beside an estimate of this kind."""
    return next(row.median for row in error_rows() if row.table == table)


NAMES = {
    "collectives": "collectives within a node",
    "latent": "MLA decode attention",
    "heads": "K/V decode attention",
    "states": "state layers",
    "deepep": "DeepEP between nodes",
}


def error_table(by_group: bool = False) -> str:
    """The errors as a Markdown table, and where the measurements are from."""
    lines = ["| estimate of | points | median error | worst |", "|---|---:|---:|---:|"]
    for row in error_rows(by_group):
        name = f"{NAMES[row.table]}: {row.group}" if by_group else NAMES[row.table]
        lines.append(f"| {name} | {row.points} | {row.median:.1%} | {row.worst:.0%} |")
    lines.append("")
    lines += [f"{NAMES[table]}: {source}" for table, source in sources().items()]
    return "\n".join(lines)


def _collective(table: str, row: Any) -> Compared:
    gpu, op, ranks, payload, measured = row
    links = Links(load_hardware(gpu), 8, own_all_reduce=False)
    nodes = max(1, ranks // 8)
    estimate = links.time("reference", op, float(payload), ranks, nodes).value
    return Compared(table, f"{gpu} {op}", measured, estimate)


def _latent(table: str, row: Any) -> Compared:
    gpu, heads, requests, tokens, measured = row
    estimate = Kernels(load_hardware(gpu)).latent(requests, heads, tokens).value
    return Compared(table, f"{gpu} {heads} heads", measured, estimate)


def _heads(table: str, row: Any) -> Compared:
    gpu, heads, kv_heads, window, requests, tokens, measured = row
    kernels = Kernels(load_hardware(gpu))
    estimate = kernels.heads(requests, heads, kv_heads, tokens, kv_heads * 512, window=window).value
    kind = f"window {window}" if window else "full"
    return Compared(table, f"{gpu} {kind}, {kv_heads} KV heads", measured, estimate)


def _state(table: str, row: Any) -> Compared:
    gpu, kernel, heads, requests, measured = row
    kernels = Kernels(load_hardware(gpu))
    if kernel == "convolution":
        item = kernels.convolution(requests, 3 * heads * 128, 3, "reference")
    else:
        item = kernels.recurrence(requests, heads * 128 * 128, 4, "reference")
    return Compared(table, f"{gpu} {kernel}", measured, item.value)
