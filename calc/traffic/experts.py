"""How tokens get to the experts of a MoE layer and back.

Inside one tp group every rank has all tokens: the experts' outputs are summed
like any other part and nothing is dispatched. With attention replicas (dp) the
tokens have to travel, in one of these ways:

- ``allgather_reducescatter`` (vLLM): every rank gathers all rows, and gets the
  sum of its own back.
- ``gather_scatter`` (SGLang attention-dp): the same around the whole
  feed-forward part, over tp x dp, in bf16.
- ``deepep_low_latency``: one message for each chosen expert.
- ``deepep_high_throughput``: one message for each rank that holds a chosen
  expert; between nodes, one for each node, forwarded there over NVLink.

Rows are divided over tp first where dp and tp are both above one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calc.collectives import Collective
from calc.engines import Engine
from calc.errors import CalcError
from calc.items import Formula, Item, Status, formula
from calc.layers import MoeFfn
from calc.layout import Layout
from calc.placement import Group
from calc.traffic.routing import expected_destinations
from calc.traffic.stage import BF16, Options, Stage, Work
from calc.units import Number, ceil_div, exact_div, ratio, round_up

DEEPEP_WIDTHS = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)
"""The widths that DeepEP's low-latency kernels are compiled for."""

DEEPEP_LL = "vLLM 0.33 fused_moe/prepare_finalize/deepep_ll.py"
AG_RS = "vLLM 0.33 fused_moe/prepare_finalize/naive_dp_ep.py"


@formula(unit="B", source="bf16, no scales")
def row_bytes_bf16(width: int) -> Number:
    """One token's row of an activation."""
    return width * 2


@formula(unit="B", source="block fp8: a float32 scale for every 128 elements")
def row_bytes_fp8(width: int) -> Number:
    """One token's row, quantised before it is sent."""
    return width + ceil_div(width, 128) * 4


@formula(unit="B", source="nvfp4: an fp8 scale for every 16 elements")
def row_bytes_nvfp4(width: int) -> Number:
    """One token's row, quantised before it is sent."""
    return exact_div(width, 2) + ceil_div(width, 16)


ROWS: dict[str, Formula[..., Number]] = {
    "bf16": row_bytes_bf16,
    "fp8": row_bytes_fp8,
    "nvfp4": row_bytes_nvfp4,
}


@formula(unit="B", source=AG_RS, status=Status.ENGINE)
def gathered_rows_bytes(ranks: int, tokens: Number, row_bytes: int, top_k: int) -> Number:
    """Every rank's rows, each with the ids and weights of its experts (4 bytes each)."""
    return ranks * tokens * (row_bytes + 8 * top_k)


@formula(unit="B", source=DEEPEP_LL, status=Status.ENGINE)
def expert_messages_bytes(tokens: Number, top_k: int, row_bytes: int, header_bytes: int) -> Number:
    """One message a token and chosen expert; two experts on one rank are two messages."""
    return tokens * top_k * (row_bytes + header_bytes)


@formula(unit="B", source="DeepEP README: one copy for each destination", status=Status.ESTIMATE)
def destination_messages_bytes(tokens: Number, destinations: float, row_bytes: int) -> Number:
    """One message a token and distinct destination, the own one included."""
    return tokens * destinations * row_bytes


@formula(unit="B", source="DeepEP README: one copy for each destination", status=Status.ESTIMATE)
def forwarded_bytes(
    tokens: Number, destinations: float, row_bytes: int, ranks: int, nodes: int
) -> Number:
    """Copies to ranks other than the one on each node where a token arrives."""
    return ratio(tokens * destinations * row_bytes * (ranks - nodes), ranks)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a layout's tokens travel: ``backend`` None when they are already where they must be."""

    backend: str | None
    group: Group = "tp"
    size: int = 1
    divided: bool = False
    """Whether the rows are divided over tp before they are sent."""


def plan(layout: Layout, engine: Engine, wanted: str) -> Plan:
    """The way tokens reach experts; raises CalcError for a way that cannot be."""
    backend = engine.moe_backends[0] if wanted == "auto" else wanted
    if backend not in engine.moe_backends:
        allowed = ", ".join(engine.moe_backends)
        raise CalcError("moe_backend_unknown", engine=engine.name, given=wanted, allowed=allowed)
    deepep = backend.startswith("deepep")
    spread = layout.dp * layout.pcp
    if spread == 1 and not (deepep and engine.dispatches_without_dp and layout.tp > 1):
        return Plan(None)
    if deepep and layout.ep == 1:
        raise CalcError("moe_backend_ep", given=backend)
    everyone = layout.expert_ranks
    if engine.gathers_over_all or layout.ep > 1:
        group: Group = "ep" if layout.ep > 1 else "tp_dp"
        return Plan(backend, group, everyone, layout.tp > 1)
    if layout.pcp == 1:
        return Plan(backend, "dp", layout.dp)
    return Plan(backend, "pcp" if layout.dp == 1 else "dp", spread)


def expert_stages(ffn: MoeFfn, layers: int, work: Work) -> Iterator[Stage]:
    """What one kind of MoE layer moves, from the attention's output to the next layer's input."""
    way = plan(work.layout, work.engine, work.options.moe_backend)
    match way.backend:
        case None:
            yield from _summed(ffn, layers, work)
        case "gather_scatter":
            yield from _gather_scatter(ffn, layers, work, way)
        case "allgather_reducescatter":
            yield from _gather_reduce(ffn, layers, work, way)
        case "deepep_low_latency":
            yield from _expert_messages(ffn, layers, work, way)
        case _:
            yield from _destination_messages(ffn, layers, work, way)
    if way.divided:
        rows = work.divided_tokens * work.layout.tp
        yield work.hidden_rows("experts_gather", ffn.kind, layers, Collective.ALL_GATHER, rows=rows)
    elif way.backend and work.layout.tp > 1:
        yield from _summed(ffn, layers, work)


def _summed(ffn: MoeFfn, layers: int, work: Work) -> Iterator[Stage]:
    """Routed and shared experts are summed before one all-reduce, unless their widths differ."""
    if ffn.latent_size is not None:
        yield work.all_reduce("routed_experts", ffn.kind, layers, ffn.latent_size)
        if ffn.shared_intermediate_size:
            yield from work.summed("shared_experts", ffn.kind, layers)
    else:
        yield from work.summed("ffn", ffn.kind, layers)


def _gather_scatter(ffn: MoeFfn, layers: int, work: Work, way: Plan) -> Iterator[Stage]:
    rows = way.size * _rows(work, way)

    def over_all(name: str, collective: Collective, width: int = 0) -> Stage:
        return work.hidden_rows(
            name,
            ffn.kind,
            layers,
            collective,
            width=width,
            rows=rows,
            group=way.group,
            group_size=way.size,
        )

    yield over_all("attention_dp_gather", Collective.ALL_GATHER)
    if ffn.latent_size is not None:
        yield over_all("routed_experts", Collective.ALL_REDUCE, ffn.latent_size)
    yield over_all("attention_dp_scatter", Collective.REDUCE_SCATTER)


def _gather_reduce(ffn: MoeFfn, layers: int, work: Work, way: Plan) -> Iterator[Stage]:
    width, rows = ffn.latent_size or work.hidden_size, _rows(work, way)
    dtype = _dispatch_dtype(work.options, way)
    payload = gathered_rows_bytes.item(
        f"{ffn.kind}.dispatch.payload",
        ranks=way.size,
        tokens=rows,
        row_bytes=ROWS[dtype].item(f"{ffn.kind}.dispatch.row", width=width),
        top_k=ffn.top_k,
    )
    stage = Stage("dispatch", ffn.kind, layers, "layer", (way.size * rows, width), dtype)
    yield work.moved(stage, Collective.ALL_GATHER, way.group, way.size, payload)
    yield work.hidden_rows(
        "combine",
        ffn.kind,
        layers,
        Collective.REDUCE_SCATTER,
        width=width,
        rows=way.size * rows,
        group=way.group,
        group_size=way.size,
    )


def _expert_messages(ffn: MoeFfn, layers: int, work: Work, way: Plan) -> Iterator[Stage]:
    width = _low_latency_width(ffn.latent_size or work.hidden_size, work.engine)
    dtype = _dispatch_dtype(work.options, way)
    for name, element, header in (("dispatch", dtype, 16), ("combine", "bf16", 0)):
        payload = expert_messages_bytes.item(
            f"{ffn.kind}.{name}.payload",
            tokens=_rows(work, way),
            top_k=ffn.top_k,
            row_bytes=ROWS[element].item(f"{ffn.kind}.{name}.row", width=width),
            header_bytes=header,
        )
        shape = (_rows(work, way), ffn.top_k, width)
        stage = Stage(name, ffn.kind, layers, "layer", shape, element)
        yield work.moved(stage, Collective.ALL_TO_ALL, way.group, way.size, payload)


def _destination_messages(ffn: MoeFfn, layers: int, work: Work, way: Plan) -> Iterator[Stage]:
    # the kernels copy 512 bytes at a time
    width = int(round_up((ffn.latent_size or work.hidden_size) * BF16, 512)) // BF16
    rows, nodes = _rows(work, way), work.placement.expert_nodes(way.group)
    dtype = _dispatch_dtype(work.options, way)
    to_ranks = expected_destinations(f"{ffn.kind}.ranks_reached", ffn, way.size)
    to_nodes = expected_destinations(f"{ffn.kind}.nodes_reached", ffn, nodes)
    for name, element in (("dispatch", dtype), ("combine", "bf16")):
        row = ROWS[element].item(f"{ffn.kind}.{name}.row", width=width)

        def leg(
            name: str, group: Group, size: int, reached: Item, row: Item, element: str
        ) -> Stage:
            payload = destination_messages_bytes.item(
                f"{ffn.kind}.{name}.payload", tokens=rows, destinations=reached, row_bytes=row
            )
            stage = Stage(name, ffn.kind, layers, "layer", (rows, width), element)
            return work.moved(stage, Collective.ALL_TO_ALL, group, size, payload)

        if nodes == 1:
            yield leg(name, way.group, way.size, to_ranks, row, element)
            continue
        between = leg(name, way.group, nodes, to_nodes, row, element)
        inside = forwarded_bytes.item(
            f"{ffn.kind}.{name}_forward.payload",
            tokens=rows,
            destinations=to_ranks,
            row_bytes=row,
            ranks=way.size,
            nodes=nodes,
        )
        forward = work.forwarded(
            Stage(f"{name}_forward", ffn.kind, layers, "layer", (rows, width), element),
            way.group,
            way.size // nodes,
            inside,
        )
        yield from (between, forward) if name == "dispatch" else (forward, between)


def _rows(work: Work, way: Plan) -> int:
    return work.divided_tokens if way.divided else work.tokens


def _dispatch_dtype(options: Options, way: Plan) -> str:
    """As the engine does it: quantised before sending where the experts' weights are."""
    if options.dispatch_dtype != "auto":
        return options.dispatch_dtype
    if options.expert_format == "fp8":
        return "fp8"
    if options.expert_format == "nvfp4" and way.backend == "allgather_reducescatter":
        return "nvfp4"
    return "bf16"


def _low_latency_width(width: int, engine: Engine) -> int:
    """The width that DeepEP's low-latency kernels run at."""
    if width in DEEPEP_WIDTHS:
        return width
    larger = [known for known in DEEPEP_WIDTHS if known > width]
    if not engine.deepep_pads or not larger:
        raise CalcError(
            "moe_backend_width",
            engine=engine.name,
            given="deepep_low_latency",
            width=width,
            allowed=", ".join(map(str, DEEPEP_WIDTHS)),
        )
    return larger[0]
