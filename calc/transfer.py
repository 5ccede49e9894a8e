"""Prefill and decode on different ranks: what a request moves between two layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from calc.capacity import Component
from calc.engine_cache import place_of
from calc.errors import CalcError
from calc.hardware import Hardware
from calc.items import Item, Status, formula, total
from calc.layers import Growth
from calc.report import Report, evaluate
from calc.scenario import Scenario
from calc.units import Number, exact_div, greater

LAID_OUT_BY = (
    "kv_dtype",
    "state_dtype",
    "conv_dtype",
    "tp",
    "dcp",
    "pp",
    "pp_layers",
    "block_size",
    "engine",
)
"""Fields that decide which bytes lie where; a difference means laying out anew."""


@formula(unit="B", source="each distinct row once, copies left out")
def distinct_rows(
    row_bytes: int, layers: int, held_tokens: Number, tp: int, dcp: int, copies: int
) -> Number:
    """Rows of one request that the sending ranks hold between them."""
    return row_bytes * layers * held_tokens * exact_div(tp, dcp * copies)


@formula(unit="B", source="each TP rank holds its part of the state")
def distinct_states(bytes_per_layer: int, layers: int, tp: int, copies: int) -> int:
    """States of one request that the sending ranks hold between them."""
    return bytes_per_layer * layers * exact_div(tp, copies)


@formula(
    unit="B",
    source="each stage sends its layers, its ranks share that evenly",
    status=Status.ESTIMATE,
)
def sent_by_rank(
    moved_bytes: Number, request_bytes: Number, whole_bytes: Number, ranks: int
) -> Number:
    """What one rank of the fullest sending stage sends."""
    return moved_bytes * request_bytes / whole_bytes / ranks


@formula(unit="µs", source="the busier end of the link", status=Status.ESTIMATE)
def transfer_us(sent_bytes: Number, received_bytes: Number, link_rate: float) -> Number:
    """Time of moving one request, nothing else on the links."""
    return 1000000 * greater(sent_bytes, received_bytes) / link_rate


@dataclass(frozen=True, slots=True)
class Transfer:
    """One request of ``context`` tokens from a prefill replica to a decode replica.

    ``distinct`` is what the sender holds without copies; ``moved`` what all receiving ranks take
    in, each its own part, in the sender's format; ``received`` that of the fullest rank.
    ``relaid`` names the fields whose difference means laying the bytes out anew.
    """

    context: int
    distinct: Item
    moved: Item
    sent: Item
    received: Item
    time: Item
    relaid: tuple[str, ...]


def transfer(
    prefill: Scenario, decode: Scenario, gpu: Hardware, network_rate: float | None = None
) -> Transfer:
    """What the decode replica has to be given, for requests of its context.

    ``network_rate`` None: the network card of the GPU's data sheet.
    """
    if prefill.model_spec != decode.model_spec:
        raise CalcError("transfer_model")
    context = decode.context
    asked: dict[str, Any] = {"context": context, "batch": 1, "shared_prefix": 0, "lengths": "off"}
    asked |= {"prefill_tokens": 0}
    evaluate(replace(decode, **asked))  # a replica that cannot be is refused by its own format
    rate = network_rate or (gpu.network.value if gpu.network else None)
    if rate is None:
        raise CalcError("transfer_network", gpu=gpu.name)
    formats = {name: getattr(prefill, name) for name in ("kv_dtype", "state_dtype", "conv_dtype")}
    sender = evaluate(replace(prefill, **asked))
    receiver = evaluate(replace(decode, **asked, **formats))
    moved = receiver.cache.per_replica
    received = receiver.cache.stage.per_request
    stages = [stage.per_request for stage in sender.cache.stages]
    sent = sent_by_rank.item(
        "transfer.sent",
        moved_bytes=moved,
        request_bytes=max(stages, key=lambda one: one.value),
        whole_bytes=total("transfer.stages", "B", stages),
        ranks=prefill.layout.replica_ranks // prefill.pp,
    )
    return Transfer(
        context,
        distinct_bytes(sender),
        moved,
        sent,
        received,
        transfer_us.item("transfer.us", sent_bytes=sent, received_bytes=received, link_rate=rate),
        tuple(name for name in LAID_OUT_BY if getattr(prefill, name) != getattr(decode, name)),
    )


def distinct_bytes(report: Report) -> Item:
    """One request's cache on a whole replica, each distinct byte once."""
    return total(
        "transfer.distinct",
        "B",
        [
            _distinct(part, report.scenario, f"stage{number}.")
            for number, stage in enumerate(report.cache.stages)
            for part in stage.components
        ],
    )


def _distinct(part: Component, scenario: Scenario, prefix: str) -> Item:
    store, tp = part.store, place_of(scenario).tp
    key = f"{prefix}{store.kind}.{store.name}.distinct"
    if part.growth is Growth.STATE:
        return distinct_states.item(
            key, bytes_per_layer=store.bytes, layers=part.layers, tp=tp, copies=store.copies
        )
    return distinct_rows.item(
        key,
        row_bytes=store.bytes,
        layers=part.layers,
        held_tokens=store.rows(scenario.context),
        tp=tp,
        dcp=store.dcp,
        copies=store.copies,
    )
