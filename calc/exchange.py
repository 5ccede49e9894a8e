"""What DCP trades: communication for cache held and read, over context and batch.

Everything here is for one kind of attention layer of a model on one GPU kind;
times are estimates (``calc.timing``). Contexts may be arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from calc.capacity import mixer_counts
from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.hardware import Hardware
from calc.items import Item, Status, formula
from calc.layers import Attention, Growth, Indexer, LatentAttention, Sharding
from calc.layout import Layout, legal_dcp
from calc.scenario import Scenario
from calc.timing import Kernels, communication
from calc.traffic import Options, Step, decode_step
from calc.traffic.choices import step_options
from calc.units import Number, ceil_div, greater, lesser

Floats = npt.NDArray[np.float64]

DCP_STAGES = (
    "gather_query",
    "gather_lse",
    "reduce_partials",
    "exchange_partials",
    "merge_top_k",
)
"""The stages that there are only because of dcp."""


@formula(unit="FLOP/B", source="operations for a byte of cache read", status=Status.EXACT)
def attention_intensity(
    query_rows: int, score_width: int, output_width: int, row_bytes: float
) -> Number:
    """Arithmetic of decode attention for each byte of cache: independent of context and batch."""
    return 2 * query_rows * (score_width + output_width) / row_bytes


@formula(unit="FLOP/B", source="where arithmetic and memory take equally long")
def ridge(flop_rate: float, memory_rate: float) -> Number:
    """Intensity above which the arithmetic rate binds."""
    return flop_rate / memory_rate


@formula(unit="FLOP/s", source="the roofline")
def attainable(intensity: Number, memory_rate: float, flop_rate: float) -> Number:
    """The rate that an intensity allows."""
    return lesser(intensity * memory_rate, flop_rate)


@dataclass(frozen=True, slots=True)
class DcpCurve:
    """One dcp over contexts: microseconds a step, and cache bytes of one request on a rank.

    ``attention`` and ``communication`` are over all layers that dcp concerns;
    ``heads`` the query heads that attend on one rank.
    """

    dcp: int
    heads: int
    contexts: Floats
    attention: Floats
    communication: float
    kv_bytes: Floats
    compute_bound: npt.NDArray[np.bool_]

    @property
    def time(self) -> Floats:
        return self.attention + self.communication


@dataclass(frozen=True, slots=True)
class Exchange:
    """All legal dcp sizes of a scenario, smallest first."""

    curves: tuple[DcpCurve, ...]

    def crossover(self, dcp: int, against: int = 1) -> float | None:
        """The context from which ``dcp`` takes less time than ``against``; None for never.

        0 where it does already at the shortest context looked at.
        """
        curves = {curve.dcp: curve for curve in self.curves}
        gain = curves[against].time - curves[dcp].time
        contexts = curves[dcp].contexts
        # the last change of sign: noise of ceilings at short contexts does not count
        worse = np.flatnonzero(gain <= 0)
        if worse.size == 0:
            return 0.0
        last = int(worse[-1])
        if last == gain.size - 1:
            return None
        share = -gain[last] / (gain[last + 1] - gain[last])
        return float(contexts[last] + share * (contexts[last + 1] - contexts[last]))


@dataclass(frozen=True, slots=True)
class Gain:
    """Why the gain of a dcp is less than dcp-fold, at one context: factors that multiply.

    ``attention``: the attention time without dcp over that with it (at most
    ``dcp``); it falls short as heads a rank grow ``heads_grow``-fold and
    attention becomes bound by arithmetic; ``whole`` counts communication too.
    """

    dcp: int
    context: float
    heads_grow: int
    attention: float
    whole: float
    compute_bound: bool
    communication_share: float


def exchange(scenario: Scenario, gpu: Hardware, contexts: Sequence[int] | None = None) -> Exchange:
    """Attention and DCP communication of a step against context for each legal dcp."""
    points = np.asarray(contexts or np.unique(np.geomspace(1024, 2**20, 81).astype(int)))
    model, engine = scenario.model_spec, scenario.engine_rules
    sizes = legal_dcp(model, scenario.tp, engine)
    gpu = scenario.measured(gpu)
    return Exchange(tuple(_curve(replace(scenario, dcp=dcp), gpu, points) for dcp in sizes))


def gain(found: Exchange, dcp: int, context: float) -> Gain:
    """The gain of one dcp over none at one context (between points: the nearest)."""
    curves = {curve.dcp: curve for curve in found.curves}
    if dcp not in curves:
        raise CalcError("not_a_choice", field="dcp", given=dcp, allowed=", ".join(map(str, curves)))
    one, many = curves[1], curves[dcp]
    at = int(np.argmin(np.abs(many.contexts - context)))
    return Gain(
        dcp,
        float(many.contexts[at]),
        many.heads // one.heads,
        float(one.attention[at] / many.attention[at]),
        float(one.time[at] / many.time[at]),
        bool(many.compute_bound[at]),
        float(many.communication / many.time[at]),
    )


def _curve(scenario: Scenario, gpu: Hardware, contexts: npt.NDArray[np.int64]) -> DcpCurve:
    layout = scenario.layout
    place = _place(scenario, layout)
    kernels = Kernels(gpu)
    attention = np.zeros(contexts.size)
    held = np.zeros(contexts.size)
    bound = np.zeros(contexts.size, dtype=bool)
    heads = 0
    counts = mixer_counts(scenario.model_spec.stages(1)[0])
    chosen = next((mixer.top_k for mixer in counts if isinstance(mixer, Indexer)), 0)
    for mixer, count in counts.items():
        growing = isinstance(mixer, Attention) and mixer.growth is Growth.GROWING
        if not isinstance(mixer, LatentAttention | Indexer) and not growing:
            continue
        rows = 1 + scenario.speculative_tokens
        for item in kernels.mixer(mixer, place, scenario.batch, contexts, rows, chosen):
            attention = attention + count * item.value
            bound |= _compute_bound(item)
        for store in mixer.stores(place):
            held = held + store.request_bytes(count, contexts)
        if isinstance(mixer, LatentAttention | Attention):
            heads = max(heads, mixer.heads // layout.tp * layout.dcp)
    spent = sum(
        part.total.value
        for part in communication(_step(scenario, layout), gpu)
        if part.name in DCP_STAGES
    )
    return DcpCurve(layout.dcp, heads, contexts.astype(float), attention, float(spent), held, bound)


def _compute_bound(item: Item) -> Number:
    def value(name: str) -> Number:
        found = item.arguments[name]
        return found.value if isinstance(found, Item) else found

    return value("flop") / value("flop_rate") > value("read_bytes") / value("read_rate")


def _place(scenario: Scenario, layout: Layout) -> Sharding:
    return Sharding(
        layout.tp,
        layout.dcp,
        scenario.engine_rules,
        KV_FORMATS[scenario.kv_dtype],
        scenario.conv_dtype,
        scenario.state_dtype,
    )


def _step(scenario: Scenario, layout: Layout, options: Options | None = None) -> Step:
    engine, model = scenario.engine_rules, scenario.model_spec
    backend = engine.resolve_backend(model, scenario.dcp_backend)
    replicated = engine.resolve_query_replication(model, backend, scenario.query_replication)
    return decode_step(
        model,
        layout,
        engine,
        scenario.batch,
        backend,
        replicated,
        options or step_options(scenario),
    )


# ---------------------------------------------------------------- batch and links


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """Traffic and time of communication at one batch, per rank and step."""

    batch: int
    sent_bytes: Number
    calls: int
    communication_us: float
    bytes_by_collective: dict[str, Number]


def against_batch(
    scenario: Scenario, gpu: Hardware, batches: Iterable[int] = (1, 4, 16, 64, 256)
) -> Iterator[BatchPoint]:
    """How a step's traffic grows with the batch: bytes in proportion, calls not at all."""
    options = step_options(scenario)
    for batch in batches:
        step = _step(replace(scenario, batch=batch), scenario.layout, options)
        kinds: dict[str, Number] = {}
        for row in step.stages:
            if row.collective is not None and row.sent is not None:
                name = row.collective.value
                kinds[name] = kinds.get(name, 0) + row.sent.value * row.calls
        spent = sum(part.total.value for part in communication(step, gpu))
        yield BatchPoint(
            batch,
            step.sent_per_rank.value,
            sum(row.calls for row in step.stages),
            float(spent),
            kinds,
        )


@formula(unit="B/s", source="bytes a step at the rate of steps")
def link_load(bytes_per_step: Number, steps_per_second: Number) -> Number:
    """What one rank puts on a link."""
    return bytes_per_step * steps_per_second


@formula(unit="B/s", source="the cache of each new request arrives once", status=Status.ESTIMATE)
def transfer_load(request_bytes: Number, requests_per_second: Number) -> Number:
    """Cache that a prefill instance sends to one rank."""
    return request_bytes * requests_per_second


@dataclass(frozen=True, slots=True)
class LinkBudget:
    """One link of a rank: what uses it, and the share of its rate."""

    link: Literal["node", "network"]
    rate: float
    loads: dict[str, Item]

    @property
    def used(self) -> float:
        """Share of the rate; above 1 it does not fit."""
        return float(sum(item.value for item in self.loads.values()) / self.rate)


def link_budgets(
    step: Step,
    gpu: Hardware,
    steps_per_second: float,
    request_bytes: Number,
    requests_per_second: float,
) -> tuple[LinkBudget, LinkBudget]:
    """The link inside a node and the network, with cache transfers and a step's collectives.

    ``request_bytes`` is one request's cache on a rank, ``requests_per_second`` new ones a
    replica takes in. A group that crosses nodes is counted on the network with all it sends.
    """
    sent: dict[bool, dict[str, Number]] = {False: {}, True: {}}
    for row in step.stages:
        if row.sent is not None:
            name = "experts" if row.name.startswith(("dispatch", "combine")) else "other"
            side = sent[row.crosses_nodes]
            side[name] = side.get(name, 0) + row.sent.value * row.calls

    def loads(side: bool) -> dict[str, Item]:
        return {
            name: link_load.item(
                f"link.{name}", bytes_per_step=found, steps_per_second=steps_per_second
            )
            for name, found in sent[side].items()
        }

    transfers = transfer_load.item(
        "link.cache_transfer", request_bytes=request_bytes, requests_per_second=requests_per_second
    )
    if gpu.network is None:
        raise CalcError("network_unknown", gpu=gpu.id, gpus=step.work.options.gpus_per_node)
    network = gpu.network.value
    return (
        LinkBudget("node", gpu.link.rate.value, loads(False)),
        LinkBudget("network", network, loads(True) | {"cache_transfer": transfers}),
    )


# ---------------------------------------------------------------- the roofline


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """Decode attention of one kind on a rank: intensity in FLOP a cache byte, rate it allows."""

    name: str
    dcp: int
    query_rows: int
    bytes_per_token: Number
    intensity: Item
    attainable: Item


def roofline(
    gpu: Hardware,
    heads: int = 128,
    head_dim: int = 128,
    groups: int = 8,
    latent: tuple[int, int] = (512, 64),
    tp: int = 8,
    dcp: int = 8,
    element_bytes: int = 2,
) -> tuple[Item, tuple[RooflinePoint, ...]]:
    """The ridge of a GPU, and MHA, GQA, MQA and MLA of one width, without and with dcp.

    Heads are split over tp; a KV head is shared by the query heads of its group.
    DCP brings the group's heads to each stripe wherever a row is replicated.
    """
    flops = gpu.flops["bf16"].value
    memory = gpu.memory_rate.value
    bend = ridge.item("roofline.ridge", flop_rate=flops, memory_rate=memory)
    kinds = (("MHA", heads), ("GQA", groups), ("MQA", 1))
    points = []
    for striped in (1, dcp) if dcp > 1 else (1,):
        for name, kv_heads in kinds:
            copies = greater(1, tp // kv_heads)
            if striped > copies:
                continue  # nothing is replicated that dcp could stripe
            held = greater(1, kv_heads // tp)
            rows = ceil_div(heads, tp) * striped // held
            row = 2 * head_dim * element_bytes
            points.append(_point(name, striped, rows, (head_dim, head_dim), row, held, bend))
        row = sum(latent) * element_bytes
        rows = ceil_div(heads, tp) * striped
        points.append(_point("MLA", striped, rows, (sum(latent), latent[0]), row, 1, bend))
    return bend, tuple(points)


def _point(
    name: str,
    dcp: int,
    rows: int,
    widths: tuple[int, int],
    row_bytes: int,
    held: int,
    bend: Item,
) -> RooflinePoint:
    intensity = attention_intensity.item(
        f"roofline.{name}.{dcp}.intensity",
        query_rows=rows,
        score_width=widths[0],
        output_width=widths[1],
        row_bytes=row_bytes,
    )
    rate = attainable.item(
        f"roofline.{name}.{dcp}.attainable",
        intensity=intensity,
        memory_rate=bend.arguments["memory_rate"],
        flop_rate=bend.arguments["flop_rate"],
    )
    return RooflinePoint(name, dcp, rows, row_bytes * held, intensity, rate)
