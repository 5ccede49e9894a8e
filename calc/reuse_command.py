"""``python -m calc reuse``: the usable prefix, what it weighs stored, and its identity."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Container, Mapping
from typing import Any

from calc.checkpoints import Interval
from calc.errors import MESSAGES, CalcError
from calc.fields import ChoiceField, InputField, TextField
from calc.hardware import Hardware, hardware_ids, load_hardware
from calc.identity import Identity, compared, identity
from calc.link import LinkError, Opened, decode_query
from calc.report import Report, evaluate
from calc.reuse import Hit
from calc.reuse_asked import FIELDS, Asked
from calc.scenario import Scenario
from calc.storage import Prefixes, Tier, objects, routing, steady_writes, whole_chunk
from calc.traffic.json import plain
from calc.transfer import Transfer, transfer

MEASURED_ON = "h200"
"""The GPU whose rates are taken where a scenario names none."""
UNKNOWN = ("network_unknown", "transfer_network")
"""Faults of what is known of a GPU, not of what was typed."""
NOTES = {
    "rule": "whose rule; engine: the scenario's own",
    "prefix": "tokens shared with an earlier request; default --shared-prefix, else --context",
    "new_tokens": "tokens of the request behind it",
    "chunk": "tokens of a stored chunk (LMCache, ideal rule); default 256 or what blocks divide",
    "lookahead": "whether vLLM's block hashes look ahead while drafting; off with a KV connector",
    "interval": "tokens between SGLang's tracked states; default 256 or what pages divide",
    "host_gib": "host memory of a rank for prefixes, GiB",
    "host_rate": "its rate, GB/s",
    "nvme_gb": "NVMe of a rank, GB",
    "nvme_rate": "its rate, GB/s",
    "network_gb": "remote storage of a rank, GB",
    "network_rate": "its rate, GB/s; 0: the GPU's network card",
    "snapshot_interval": "tokens between stored states; default: the smallest possible",
    "hits": "how often a prefix is used again",
    "prefill_rate": "tokens a replica prefills a second",
    "hit_lengths": "lengths of hits, such as 4096x30-32768x2, or any",
    "requests": "requests a second, for steady writes",
    "written_tokens": "new tokens a request",
    "kept_snapshots": "snapshots a request leaves behind",
    "uses": "requests that come with one prefix, for hit rates",
    "decode_tp": "TP of the replica that decodes",
    "decode_dcp": "its DCP",
    "decode_pp": "its PP",
    "decode_kv_dtype": "its KV format",
    "other_kv_dtype": "KV format of another instance, for the identity",
    "other_engine": "its engine",
    "other_tp": "its TP",
    "other_dcp": "its DCP",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a scenario."""
    for name, field in FIELDS.items():
        if name != "missing":
            note = NOTES.get(name, "part of the identity")
            parser.add_argument(_option(name), dest=f"reuse_{name}", help=_help(note, field))
    parser.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="GROUP=CHUNKS",
        help="chunks that are not in the cache, such as window=0-3,7; may be repeated",
    )
    parser.add_argument("--other", help="a link: compared with, and moved to")


def _option(name: str) -> str:
    return "--" + name.removeprefix("here_").replace("_", "-")


def _help(note: str, field: InputField) -> str:
    if isinstance(field, TextField):
        return note
    if isinstance(field, ChoiceField):
        return f"{note} ({', '.join(field.choices)}; default {field.default})"
    default = "" if field.default is None else f"; default {field.default}"
    return f"{note} ({field.minimum} to {field.maximum}{default})"


def answer(options: argparse.Namespace, scenario: Scenario, linked: Mapping[str, Any]) -> str:
    """What the command prints; ``linked`` is what a link asks, options say otherwise."""
    asked = Asked(scenario, _asked(options, linked))
    document = reuse_json(asked, _linked(options.other) if options.other else None)
    return json.dumps(document, indent=2, allow_nan=False) if options.json else summary(document)


def _linked(link: str) -> Opened:
    """What ``--other`` is."""
    try:
        return decode_query(link.rpartition("?")[2])
    except LinkError as error:
        raise CalcError("invalid_value", "other", reason=str(error)) from None


def _asked(options: argparse.Namespace, linked: Mapping[str, Any]) -> dict[str, Any]:
    names = {f"reuse_{name}": name for name in FIELDS}
    values = {names[key]: value for key, value in linked.items() if key in names}
    for key, name in names.items():
        text = getattr(options, key, None)
        if text is not None:
            values[name] = _parsed(name, text)
    if options.missing:
        values["missing"] = _parsed("missing", ";".join(options.missing))
    return values


def _parsed(name: str, text: str) -> Any:
    """The value of an option; a fault names the option, not the link's key."""
    try:
        return FIELDS[name].parse(text)
    except CalcError as error:
        raise error.about(name.removeprefix("here_")) from None


def reuse_json(asked: Asked, other: Opened | None = None) -> dict[str, Any]:
    """Everything about reuse as plain data; ``other`` is compared with, or what is asked."""
    scenario = asked.scenario
    report = evaluate(scenario)
    gpu = load_hardware(scenario.gpu if scenario.gpu in hardware_ids() else MEASURED_ON)
    return {
        "asked": {name: asked[name] for name in FIELDS},
        "reuse": hit_json(asked.hit),
        "storage": _storage(asked, report, gpu),
        "disaggregation": _known(lambda: _transfer(asked.moved(gpu))),
        "identity": _identity(asked.identity()),
        "other": _other(asked, other, gpu),
    }


def _known(part: Callable[[], Any], codes: Container[str] = UNKNOWN) -> Any:
    """A part of the answer, or why there is none: nobody knows a rate of this GPU that it takes.

    What was typed and cannot be ends the command instead.
    """
    try:
        return part()
    except CalcError as error:
        if error.code not in codes:
            raise
        return {"error": {"code": error.code, "field": error.field, "message": str(error)}}


def hit_json(hit: Hit) -> dict[str, Any]:
    """A usable prefix with each group's part in it."""
    return {
        "rule": hit.rule.value,
        "prefix_tokens": hit.prefix,
        "usable_tokens": hit.tokens,
        "recomputed_tokens": hit.recomputed.value,
        "alignment_tokens": hit.align,
        "reason": hit.cut.value,
        "binding_group": hit.binding,
        "blocking_chunk": hit.blocking,
        "groups": [
            {
                "id": one.group.id,
                "kind": one.group.kind,
                "growth": one.group.growth.value,
                "layers": one.group.layers,
                "chunk_tokens": one.group.chunk,
                "token_limit": one.group.limit or None,
                "usable_tokens": one.usable,
                "reason": one.cut.value,
                "blocking_chunk": one.blocking,
                "needed_chunks": [one.needed.start, one.needed.stop],
            }
            for one in hit.groups
        ],
    }


def _storage(asked: Asked, report: Report, gpu: Hardware) -> dict[str, Any]:
    prefixes = Prefixes(report, gpu, max(1, asked["new_tokens"]))
    found = objects(report, whole_chunk(report, asked.stored_chunk))
    ways = routing(asked.scenario.dp, asked["uses"])
    places = asked.tiers(report, gpu)
    writes = steady_writes(
        report, float(asked["requests"]), asked["written_tokens"], asked["kept_snapshots"]
    )
    return {
        "gpu": gpu.id,
        "status": "estimate",
        "chunk_tokens": found.chunk,
        "objects": [
            {
                "kind": one.part.store.kind,
                "name": one.part.store.name,
                "bytes_per_rank": one.on_rank.value,
                "bytes_on_tp_group": one.on_ranks.value,
                "bytes_without_copies": one.unique.value,
                "copies": one.part.store.copies,
            }
            for one in found.stored
        ],
        "saved_percent": plain(found.saved.value),
        "tiers": _known(lambda: [_tier(prefixes, tier, asked.prefix) for tier in places]),
        "snapshots": _known(lambda: _snapshots(asked, report, prefixes, places)),
        "write_bytes_per_second_per_rank": plain(writes.value),
        "hit_rate": {
            "replicas": ways.replicas,
            "uses": ways.uses,
            "cache_aware": round(float(ways.aware.value), 6),
            "random": round(float(ways.random.value), 6),
        },
    }


def _tier(prefixes: Prefixes, tier: Tier, prefix: int) -> dict[str, Any]:
    cost = prefixes.cost(tier, prefix)
    return {
        "id": tier.id,
        "bytes_per_second": tier.rate,
        "capacity_bytes": tier.capacity_bytes,
        "source": tier.source,
        "prefixes_held": plain(cost.held.value),
        "load_us": round(float(cost.point.loaded.value), 3),
        "recompute_us": round(float(cost.point.recomputed.value), 3),
        "break_even_tokens": cost.break_even,
    }


def _snapshots(
    asked: Asked, report: Report, prefixes: Prefixes, places: tuple[Tier, ...]
) -> dict[str, Any] | None:
    """State snapshots at the asked interval, the densest and the best; None without states."""
    ways = asked.snapshots(report, prefixes, places)
    if ways is None:
        return None
    return {
        "unit_tokens": asked.snapshot_unit,
        "state_bytes_per_rank": plain(report.cache.stage.state_per_request.value),
        "chosen": _interval(ways.chosen),
        "densest": _interval(ways.every[0]),
        "best": _interval(ways.best),
    }


def _interval(one: Interval) -> dict[str, Any]:
    return {
        "interval_tokens": one.tokens,
        "snapshots": plain(one.kept.value),
        "storage_bytes": plain(one.storage.value),
        "write_bytes_per_second": round(float(one.write_rate.value), 3),
        "mean_recomputed_tokens": round(float(one.recompute.value), 3),
        "cost_us": round(float(one.cost.value), 3),
    }


def _identity(made: Identity) -> dict[str, Any]:
    return {"digest": made.digest, "key": made.text, "fields": made.values}


def _other(asked: Asked, linked: Opened | None, gpu: Hardware) -> dict[str, Any]:
    scenario = asked.scenario
    second = asked.other_identity() if linked is None else _identity_of(linked, asked)
    other = asked.other() if linked is None else linked.scenario
    found = compared(asked.identity(), second)
    same_model = scenario.model_spec == other.model_spec
    # each of them can be; where the bytes of one cannot lie in the other, there is no transfer
    moved = _known(lambda: _transfer(transfer(scenario, other, gpu, asked.network_rate)), MESSAGES)
    return {
        "identity": _identity(second),
        "compatible": found.compatible,
        "first_difference": found.first.field.id if found.first else None,
        "differences": [row.field.id for row in found.rows if not row.same],
        "transfer": moved if same_model else None,
    }


def _identity_of(linked: Opened, asked: Asked) -> Identity:
    """A link's scenario; what its deployment adds is taken to be the same."""
    interval = linked.asked.get("reuse_interval") or 0
    try:
        return identity(linked.scenario, asked.serving("here"), interval)
    except CalcError as error:
        raise CalcError("invalid_value", "other", reason=str(error)) from None


def _transfer(found: Transfer) -> dict[str, Any]:
    return {
        "context": found.context,
        "distinct_bytes": plain(found.distinct.value),
        "moved_bytes": plain(found.moved.value),
        "sent_bytes_per_rank": plain(found.sent.value),
        "received_bytes_per_rank": plain(found.received.value),
        "us": round(float(found.time.value), 3),
        "laid_out_anew_for": list(found.relaid),
    }


def summary(document: Mapping[str, Any]) -> str:
    """The same for reading in a terminal."""
    hit = document["reuse"]
    lines = [
        f"rule {hit['rule']}, hits are multiples of {hit['alignment_tokens']:,} tokens",
        f"usable of the prefix              {hit['usable_tokens']:>20,} tokens ({hit['reason']})",
        f"computed again                    {hit['recomputed_tokens']:>20,} tokens",
    ]
    for one in hit["groups"]:
        first, end = one["needed_chunks"]
        lines.append(
            f"  {one['id']:<12} {one['kind']:<18} chunks {first:,} to {end - 1:,} of "
            f"{one['chunk_tokens']:,} tokens; alone {one['usable_tokens']:,} ({one['reason']})"
            if end > first
            else f"  {one['id']:<12} {one['kind']:<18} nothing needed; alone "
            f"{one['usable_tokens']:,} ({one['reason']})"
        )
    stored = document["storage"]
    weight = sum(one["bytes_per_rank"] for one in stored["objects"])
    lines += [
        f"stored in chunks of               {stored['chunk_tokens']:>20,} tokens",
        f"  of all layers, on a rank        {weight:>20,.0f} B",
        f"  saved without copies            {stored['saved_percent']:>20,.1f} %",
    ]
    lines.append(f"identity                          {document['identity']['digest']}")
    first_difference = document["other"]["first_difference"] or "none"
    lines.append(f"first field that differs          {first_difference:>20}")
    return "\n".join(lines)
