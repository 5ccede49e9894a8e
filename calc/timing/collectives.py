"""The time of one collective.

Inside a node: three fitted numbers for each operation and group size, and what
was measured beside them, interpolated over the logarithm of the size. Beyond
the measured sizes the fit's rate carries on. Between nodes: a start for each
doubling of the nodes, and bytes over the network cards (alpha-beta).
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass

from calc.collectives import Collective
from calc.errors import CalcError
from calc.hardware import Hardware
from calc.items import Item, Status, formula
from calc.timing.data import Borrowed, Curve, Operation, collectives_for
from calc.traffic import Stage
from calc.units import Number, square_root

FITTED = "fitted to NCCL, custom all-reduce and DeepEP times: presets/timing"
NETWORK_START_US = 12.0
"""One exchange between nodes: NCCL over InfiniBand or RoCE, an assumption."""
NETWORK_SHARE = 0.9
"""Of a network card's rate, what a collective reaches; an assumption."""
DEEPEP_NETWORK_START_US = 40.0
"""DeepEP low latency between nodes: its published EP16 to EP256 times minus their bytes."""
SMALLEST = 512
"""Payloads below this take as long as this, bytes."""


@formula(unit="µs", source=FITTED, status=Status.ESTIMATE)
def node_us(
    start_us: float, wire_bytes: Number, link_rate: float, chunk_us: float, measured_ratio: float
) -> Number:
    """A start, the bytes at the link's rate, and their passing on in chunks of the best size."""
    return measured_ratio * (
        start_us + wire_bytes / link_rate + square_root(chunk_us * wire_bytes / link_rate)
    )


@formula(unit="µs", source="a start for each doubling of the nodes", status=Status.ESTIMATE)
def network_us(start_us: float, doublings: float, wire_bytes: Number, link_rate: float) -> Number:
    """Bytes that pass one GPU's network card."""
    return start_us * doublings + wire_bytes / link_rate


@formula(unit="µs", source="one inside the nodes, then one between them", status=Status.ESTIMATE)
def both_us(node_time: Number, network_time: Number) -> Number:
    """A collective over several nodes."""
    return node_time + network_time


def passes(op: Operation | str, ranks: int) -> float:
    """What a rank sends in a ring, of the payload."""
    share = (ranks - 1) / ranks
    return 2 * share if op in ("all_reduce", "custom_all_reduce") else share


@dataclass(frozen=True, slots=True)
class Links:
    """How fast GPUs of one kind exchange.

    ``own_all_reduce``: engines' own all-reduce where it is used; ``without``
    leaves one GPU's measurements out.
    """

    gpu: Hardware
    gpus_per_node: int
    own_all_reduce: bool = True
    without: str | None = None

    @property
    def borrowed(self) -> Borrowed:
        return collectives_for(self.gpu, self.without)

    def stage_us(self, stage: Stage, expert_nodes: int = 1) -> Item | None:
        """One call of a stage; None for one that only computes."""
        if stage.collective is None or stage.payload is None:
            return None
        key = f"{stage.kind}.{stage.name}.us"
        payload = float(stage.payload.value)
        if stage.collective in (Collective.SEND, Collective.BROADCAST):
            return self._point_to_point(key, payload, stage.crosses_nodes)
        op: Operation = _operation(stage)
        nodes = 1
        if stage.crosses_nodes:
            nodes = max(2, math.ceil(stage.group_size / self.gpus_per_node))
            if op == "all_to_all" and stage.group_size <= expert_nodes:
                nodes = stage.group_size  # one rank of each node
        return self.time(key, op, payload, stage.group_size, nodes)

    def time(self, key: str, op: Operation, payload: float, ranks: int, nodes: int = 1) -> Item:
        """A payload over ``ranks`` GPUs on ``nodes`` nodes."""
        if nodes == 1:
            return self._inside(key, op, payload, ranks)
        inside = max(1, ranks // nodes)
        network = self._between(key, op, payload, ranks, nodes, inside)
        if inside == 1 or op.startswith("deepep"):
            return network
        local = payload / nodes if op == "all_to_all" else payload
        return both_us.item(
            key, node_time=self._inside(f"{key}.node", op, local, inside), network_time=network
        )

    def _inside(self, key: str, op: Operation, payload: float, ranks: int) -> Item:
        if op == "all_reduce" and self.own_all_reduce:
            op = self._reduced_by(payload, ranks)
        curve, grown = _curve(self.borrowed, op, ranks)
        return node_us.item(
            key,
            start_us=curve.start_us * grown,
            wire_bytes=max(payload, SMALLEST) * passes(op, ranks),
            link_rate=curve.rate_gb_s * self.borrowed.scale * 1e3,
            chunk_us=curve.chunk_us,
            measured_ratio=_ratio(curve, payload),
        )

    def _reduced_by(self, payload: float, ranks: int) -> Operation:
        """Engines use their own all-reduce up to a size, and NCCL's above."""
        for curve in self.borrowed.measurements.collectives:
            if curve.op == "custom_all_reduce" and curve.ranks == ranks and curve.largest:
                return "custom_all_reduce" if payload <= curve.largest else "all_reduce"
        return "all_reduce"

    def _between(
        self, key: str, op: Operation, payload: float, ranks: int, nodes: int, inside: int
    ) -> Item:
        start, doublings = NETWORK_START_US, math.log2(nodes)
        if op == "all_reduce":
            doublings *= 2
        if op in ("all_to_all", "deepep_dispatch", "deepep_combine"):
            wire, doublings = payload * (ranks - inside) / ranks, 1.0
        else:
            wire = payload * passes(op, nodes) / inside
        share = NETWORK_SHARE
        if op.startswith("deepep"):
            start, share = DEEPEP_NETWORK_START_US, 1.0
        return network_us.item(
            f"{key}.network",
            start_us=start,
            doublings=doublings,
            wire_bytes=wire,
            link_rate=self._network_rate() * share / 1e6,
        )

    def _network_rate(self) -> float:
        if self.gpu.network is None:
            raise CalcError("network_unknown", gpu=self.gpu.id, gpus=self.gpus_per_node)
        return self.gpu.network.value

    def _point_to_point(self, key: str, payload: float, crosses: bool) -> Item:
        if crosses:
            return network_us.item(
                key,
                start_us=NETWORK_START_US,
                doublings=1.0,
                wire_bytes=payload,
                link_rate=self._network_rate() * NETWORK_SHARE / 1e6,
            )
        curve, _ = _curve(self.borrowed, "all_gather", 2)
        return node_us.item(
            key,
            start_us=curve.start_us,
            wire_bytes=payload,
            link_rate=curve.rate_gb_s * self.borrowed.scale * 1e3,
            chunk_us=curve.chunk_us,
            measured_ratio=1.0,
        )


def _operation(stage: Stage) -> Operation:
    if stage.collective is Collective.ALL_TO_ALL and stage.name in ("dispatch", "combine"):
        return "deepep_dispatch" if stage.name == "dispatch" else "deepep_combine"
    names: dict[Collective, Operation] = {
        Collective.ALL_GATHER: "all_gather",
        Collective.REDUCE_SCATTER: "reduce_scatter",
        Collective.ALL_REDUCE: "all_reduce",
        Collective.ALL_TO_ALL: "all_to_all",
    }
    assert stage.collective is not None
    return names[stage.collective]


def _curve(borrowed: Borrowed, op: Operation, ranks: int) -> tuple[Curve, float]:
    """The curve for the next larger measured group; beyond the largest, its start grows.

    A GPU without DeepEP times takes those of an all-to-all.
    """
    curves = sorted(
        (curve for curve in borrowed.measurements.collectives if curve.op == op),
        key=lambda curve: curve.ranks,
    )
    if not curves:
        return _curve(borrowed, "all_to_all", ranks)
    for curve in curves:
        if curve.ranks >= ranks:
            return curve, 1.0
    largest = curves[-1]
    exponent = 0.1 if op == "all_to_all" or op.startswith("deepep") else 0.5
    return largest, float((ranks / largest.ranks) ** exponent)


def _ratio(curve: Curve, payload: float) -> float:
    """Measured over fitted time at this payload.

    Between two points the logarithm of the measured time is straight over that
    of the fitted one, so that it never falls while the payload grows.
    """
    fitted = math.log(_fitted(curve, max(payload, SMALLEST)))
    points = _points(curve)
    right = bisect.bisect_right(points, (fitted, math.inf))
    if right == 0 or right == len(points):
        return curve.points[0 if right == 0 else -1][1]
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return math.exp(y0 + (fitted - x0) / (x1 - x0) * (y1 - y0) - fitted)


@functools.lru_cache(maxsize=1024)
def _points(curve: Curve) -> tuple[tuple[float, float], ...]:
    """(logarithm of the fitted time, of the measured time), never falling."""
    points: list[tuple[float, float]] = []
    for size, ratio in curve.points:
        fitted = math.log(_fitted(curve, size))
        measured = fitted + math.log(ratio)
        points.append((fitted, max(measured, points[-1][1] if points else measured)))
    return tuple(points)


def _fitted(curve: Curve, payload: float) -> float:
    wire = payload * passes(curve.op, curve.ranks) / (curve.rate_gb_s * 1e3)
    return curve.start_us + wire + math.sqrt(curve.chunk_us * wire)
