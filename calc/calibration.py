"""From a benchmark result to this machine's rates, and measured beside predicted.

Two predictions stand beside a measured time: the one the calculator makes from
other people's published timings, and one by rates fitted to the result's own
calibration shapes, which are never the shapes compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calc.hardware import Hardware, hardware_ids, load_hardware
from calc.measured import (
    AttentionFacts,
    CollectiveFacts,
    KernelResult,
    LayerFacts,
    Measured,
    StateFacts,
)
from calc.timing.collectives import Links
from calc.timing.kernels import Kernels

Family = Literal["latent", "heads"]
ROUNDS = 40
RAMP_SCALE_US = 10.0
FEWEST_POINTS = 4


@dataclass(frozen=True, slots=True)
class Rates:
    """A launch, the work max(bytes / bytes_per_us, operations / flops_per_us), and a ramp.

    ``ramp_us`` is lost while processors fill and run empty; a kernel with work
    for less than about ``RAMP_SCALE_US`` loses only a part of it.
    """

    launch_us: float
    ramp_us: float
    bytes_per_us: float
    flops_per_us: float

    def time_us(self, moved_bytes: float, flops: float) -> float:
        """The time of a kernel that moves so much and computes so much.

        >>> Rates(6.0, 4.0, 4e6, 7e8).time_us(4e9, 7e10)
        1010.0
        """
        work = max(moved_bytes / self.bytes_per_us, flops / self.flops_per_us)
        return float(self.launch_us + work + self.ramp_us * _ramped(work))


def _ramped(work_us: Any) -> Any:
    """The share of the ramp that work of this length sees."""
    return 1 - np.exp(-work_us / RAMP_SCALE_US)


@dataclass(frozen=True, slots=True)
class Compared:
    """One kernel: measured (slowest and fastest block beside it), its floor, both predictions."""

    what: Literal["attention", "state"]
    kind: str
    backend: str
    measured_us: float
    fastest_us: float
    slowest_us: float
    floor_us: float
    predicted_us: float | None
    calibrated_us: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted_us is None else self.predicted_us / self.measured_us - 1

    @property
    def calibrated_error(self) -> float | None:
        """The same for the calibrated prediction."""
        return None if self.calibrated_us is None else self.calibrated_us / self.measured_us - 1


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What kernels reach of a data sheet's rates; None where nothing measured tells.

    The names are those of ``calc.hardware.Reached``.
    """

    hbm: float | None
    attention: float | None
    gemm: float | None

    def fields(self) -> dict[str, float]:
        """As fields of a scenario, four digits; what is not known stays as it is fitted (0)."""
        found = {"hbm": self.hbm, "attention": self.attention, "gemm": self.gemm}
        return {
            f"{name}_efficiency": round(min(1.0, share or 0.0), 4) for name, share in found.items()
        }


def hardware_of(result: Measured) -> Hardware | None:
    """The hardware preset of the card measured: by name, then by memory."""
    name = result.machine.gpu.upper()
    found = [
        hardware
        for hardware in map(load_hardware, hardware_ids())
        if hardware.id.split("-")[0].upper() in name.replace("-", " ").split()
    ]
    size = result.machine.memory_bytes
    return min(found, key=lambda one: abs(one.memory_bytes.value - size), default=None)


def family(facts: AttentionFacts) -> Family:
    """Kernels of one family share rates."""
    return "latent" if facts.latent else "heads"


def fitted(result: Measured) -> dict[Family, Rates]:
    """Rates for each family with enough calibration points; empty without a calibration."""
    found: dict[Family, Rates] = {}
    prior = Rates(0.0, 0.0, result.ceilings.read / 1e6, result.ceilings.gemm_burst / 1e6)
    kinds: tuple[Family, ...] = ("latent", "heads")
    for kind in kinds:
        points = _points(result, kind)
        if len(points) >= FEWEST_POINTS:
            found[kind] = fit(points, prior)
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """The rates of one family, and how far they are from the shapes they were fitted to."""

    family: Family
    shapes: int
    rates: Rates
    computes: bool
    median: float
    worst: float


def fits(result: Measured) -> list[Fit]:
    """The calibration, family by family; ``computes``: arithmetic binds some of its shapes."""
    rows = []
    for kind, rates in fitted(result).items():
        kernels = _points(result, kind)
        errors = [
            abs(rates.time_us(kernel.bytes, kernel.tile_flops) / kernel.best.timing.us - 1)
            for kernel in kernels
            if kernel.best and kernel.best.timing
        ]
        computes = any(
            kernel.tile_flops / rates.flops_per_us > kernel.bytes / rates.bytes_per_us
            for kernel in kernels
        )
        rows.append(Fit(kind, len(kernels), rates, computes, float(np.median(errors)), max(errors)))
    return rows


def _points(result: Measured, kind: Family) -> list[KernelResult]:
    """Calibration shapes of a family that were timed."""
    return [
        kernel
        for kernel in result.calibration
        if kernel.best and kernel.attention and family(kernel.attention) == kind
    ]


def fit(kernels: Iterable[KernelResult], prior: Rates) -> Rates:
    """Least relative squares; which side binds a point is seen anew every round.

    The time of ``work`` enters through the rates of the round before, so that
    each round is linear. A ramp below zero is none.
    """
    rows = [
        (kernel.bytes, kernel.tile_flops, kernel.best.timing.us)
        for kernel in kernels
        if kernel.best and kernel.best.timing
    ]
    moved, flops, us = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    rates = prior
    for _ in range(ROUNDS):
        columns = _columns(moved, flops, rates) / us[:, None]
        solved = _solve(columns)
        if solved[1] < 0:
            columns[:, 1] = 0
            solved = _solve(columns)
        rates = Rates(
            max(0.0, solved[0]),
            solved[1],
            1 / solved[2] if solved[2] > 0 else rates.bytes_per_us,
            1 / solved[3] if solved[3] > 0 else rates.flops_per_us,
        )
    return rates


def _columns(moved: Any, flops: Any, rates: Rates) -> Any:
    """What launch, ramp, bytes and operations each add to every point's time."""
    reading, computing = moved / rates.bytes_per_us, flops / rates.flops_per_us
    reads = reading >= computing
    ramped = _ramped(np.maximum(reading, computing))
    return np.stack([np.ones_like(moved), ramped, moved * reads, flops * ~reads], 1)


def _solve(columns: Any) -> list[float]:
    """Factors that make each row's sum 1, by least squares; 0 for a column without entries."""
    scale = np.abs(columns).max(0)
    used = scale > 0
    found, *_ = np.linalg.lstsq(columns[:, used] / scale[used], np.ones(len(columns)), rcond=None)
    solved = np.zeros(columns.shape[1])
    solved[used] = found / scale[used]
    return [float(value) for value in solved]


def compared(result: Measured) -> list[Compared]:
    """The result's kernels with a measured time, each beside both predictions."""
    hardware = hardware_of(result)
    rates = fitted(result)
    rows = []
    for kernel in result.kernels:
        best = kernel.best
        if best is None or best.timing is None:
            continue
        facts = kernel.facts
        calibrated = None
        if isinstance(facts, AttentionFacts) and family(facts) in rates:
            calibrated = rates[family(facts)].time_us(kernel.bytes, kernel.tile_flops)
        rows.append(
            Compared(
                "attention" if kernel.attention else "state",
                facts.kind,
                best.name,
                best.timing.us,
                best.timing.min_us,
                best.timing.max_us,
                kernel.floor.us,
                predicted_us(facts, hardware) if hardware else None,
                calibrated,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class ComparedExchange:
    """A collective or a DCP layer: measured, and predicted for GPUs (None on CPUs)."""

    measured_us: float
    predicted_us: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted_us is None else self.predicted_us / self.measured_us - 1


def compared_collective(result: Measured, row: CollectiveFacts) -> ComparedExchange | None:
    """One collective beside ``calc.timing``'s NCCL; None where it has no time."""
    if row.timing is None:
        return None
    hardware = hardware_of(result) if row.backend == "nccl" else None
    us = None
    if hardware is not None:
        us = _exchange_us(hardware, row.collective, row.payload_bytes, row.ranks, row.nodes)
    return ComparedExchange(row.timing.us, us)


def compared_layer(result: Measured, row: LayerFacts) -> ComparedExchange | None:
    """A layer's gather, attention and exchange beside the sum of their predictions."""
    if row.timing is None:
        return None
    hardware = hardware_of(result) if row.backend == "nccl" else None
    us = None
    if hardware is not None:
        tokens_heads = row.batch * row.heads
        sizes = [("all_gather", tokens_heads * row.k_dim * 2)]
        if row.exchange == "a2a":
            sizes += [
                ("all_to_all", tokens_heads * row.v_dim * 2),
                ("all_to_all", tokens_heads * 4),
            ]
        else:
            sizes += [
                ("all_gather", tokens_heads * row.ranks * 4),
                ("reduce_scatter", tokens_heads * row.v_dim * 2),
            ]
        sent = (_exchange_us(hardware, op, size, row.ranks, row.nodes) for op, size in sizes)
        widths = (row.k_dim, row.v_dim)
        attention = Kernels(hardware).latent(
            row.batch, row.heads, row.tokens, row.k_dim * 2, 1, widths
        )
        us = sum(sent) + float(attention.value)
    return ComparedExchange(row.timing.us, us)


def _exchange_us(hardware: Hardware, op: Any, payload: float, ranks: int, nodes: int) -> float:
    links = Links(hardware, max(1, ranks // nodes), own_all_reduce=False)
    return float(links.time("measured.us", op, payload, ranks, nodes).value)


def predicted_us(facts: AttentionFacts | StateFacts, hardware: Hardware) -> float:
    """The calculator's own estimate for a shape, without anything measured on this card."""
    kernels = Kernels(hardware)
    if isinstance(facts, StateFacts):
        elements = facts.heads * facts.key_dim * facts.value_dim
        item = kernels.recurrence(facts.batch, elements, facts.element_bytes, "state.us")
    elif facts.latent:
        widths = (facts.k_dim, facts.v_dim)
        row = facts.k_dim * 2
        item = kernels.latent(facts.batch, facts.heads, facts.tokens, row, 1, widths)
    else:
        widths = (facts.k_dim, facts.v_dim)
        row = facts.kv_heads * sum(widths) * 2
        item = kernels.heads(facts.batch, facts.heads, facts.kv_heads, facts.tokens, row, 1, widths)
    return float(item.value)


def efficiency(result: Measured) -> Efficiency:
    """Achieved rates over the data sheet's, to be offered to the calculator.

    Those of attention from the calibration where there is one, else from the
    longest kernel of each side; that of matrix products under steady load
    where it was measured.
    """
    hardware = hardware_of(result)
    if hardware is None:
        return Efficiency(None, None, None)
    memory, arithmetic = hardware.memory_rate.value, hardware.flops["bf16"].value
    gemm = (result.ceilings.gemm_sustained or result.ceilings.gemm_burst) / arithmetic
    achieved = _achieved(result.kernels)
    rates = fitted(result).get(_largest(result))
    if rates is not None:
        # the fit's ramp takes some of the time: no kernel reads faster than reading alone
        read = min(rates.bytes_per_us * 1e6, result.ceilings.read)
        achieved = {"memory": read, "compute": rates.flops_per_us * 1e6}
        if not any(one.computes for one in fits(result) if one.family == _largest(result)):
            achieved["compute"] = None
    hbm, attention = achieved["memory"], achieved["compute"]
    return Efficiency(hbm and hbm / memory, attention and attention / arithmetic, gemm)


def _largest(result: Measured) -> Family:
    """The family of the attention that reads most; its rates stand for the scenario."""
    read = [(kernel.bytes, kernel.attention) for kernel in result.kernels if kernel.attention]
    return family(max(read, key=lambda row: row[0])[1]) if read else "latent"


def _achieved(kernels: Iterable[KernelResult]) -> dict[str, float | None]:
    """Bytes and tile operations a second of the longest-running attention kernel of each side."""
    found: dict[str, float | None] = {"memory": None, "compute": None}
    longest = {"memory": 0.0, "compute": 0.0}
    for kernel in kernels:
        best = kernel.best
        if kernel.attention is None or best is None or best.timing is None:
            continue
        side, us = kernel.floor.tile_side, best.timing.us
        if us > longest[side]:
            longest[side] = us
            work = kernel.bytes if side == "memory" else kernel.tile_flops
            found[side] = work / us * 1e6
    return found
