"""``python -m calc reuse``: the usable prefix, what it weighs stored, and its identity."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from calc.errors import CalcError, shown
from calc.hardware import hardware_ids, load_hardware
from calc.identity import Identity, Serving, compared, identity
from calc.link import decode_query
from calc.report import Report, evaluate
from calc.reuse import Hit, Rule, parse_chunks, usable
from calc.reuse_groups import reuse_groups
from calc.scenario import Scenario
from calc.storage import Prefixes, objects, routing, tiers, whole_chunk
from calc.traffic.json import plain
from calc.transfer import Transfer, transfer

TEXTS = ("rope", "lora", "lora_version", "media", "draft", "salt")
NUMBERS = {"prefix": 0, "new_tokens": 1, "chunk": 0, "interval": 0, "uses": 10}
MEASURED_ON = "h200"
"""The GPU whose rates are taken where a scenario names none."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a scenario."""
    parser.add_argument("--rule", choices=[rule.value for rule in Rule], help="default: the engine")
    notes = {
        "prefix": "tokens shared with an earlier request; default --shared-prefix, else --context",
        "new-tokens": "tokens of the request behind it; default 1",
        "chunk": "tokens of a stored chunk (LMCache, ideal rule); default 256",
        "interval": "tokens between SGLang's tracked states; default 256",
        "uses": "requests that come with one prefix, for hit rates; default 10",
    }
    for name, note in notes.items():
        parser.add_argument(f"--{name}", help=note)
    parser.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="GROUP=CHUNKS",
        help="chunks that are not in the cache, such as window=0-3,7; may be repeated",
    )
    for name in TEXTS:
        parser.add_argument("--" + name.replace("_", "-"), default="", help="part of the identity")
    parser.add_argument("--other", help="a link: compared with, and moved to")


def answer(options: argparse.Namespace, scenario: Scenario) -> str:
    """What the command prints."""
    asked = {name: _number(options, name, default) for name, default in NUMBERS.items()}
    asked["prefix"] = asked["prefix"] or scenario.shared_prefix or scenario.context
    rule = Rule(options.rule or scenario.engine)
    hit = find(scenario, rule, asked, _missing(options.missing))
    other = options.other and decode_query(options.other.rpartition("?")[2]).scenario
    said = Serving(**{name: getattr(options, name) for name in TEXTS})
    document = reuse_json(scenario, hit, asked["uses"], said, other or None)
    return json.dumps(document, indent=2, allow_nan=False) if options.json else summary(document)


def find(
    scenario: Scenario, rule: Rule, asked: Mapping[str, int], missing: Mapping[str, frozenset[int]]
) -> Hit:
    """The usable prefix of a scenario."""
    groups = reuse_groups(scenario, rule, asked["chunk"], asked["interval"])
    return usable(groups, asked["prefix"], missing, rule, asked["new_tokens"])


def _number(options: argparse.Namespace, name: str, default: int) -> int:
    text = getattr(options, name)
    if text is None:
        return default
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20):
        raise CalcError("not_an_integer", name, given=shown(text), minimum=0, maximum=2**24)
    number = int(text)
    # 0 leaves a default in place only where nothing was typed
    if name != "new_tokens" and number < 1:
        raise CalcError("out_of_range", name, given=number, minimum=1, maximum=2**24)
    return number


def _missing(given: list[str]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for text in given:
        group, sign, chunks = text.partition("=")
        if not sign:
            raise CalcError("reuse_unreadable", group="?", given=shown(text))
        if group in found:
            raise CalcError("reuse_overlap", group=group, given=chunks)
        found[group] = parse_chunks(chunks, group)
    return found


def reuse_json(
    scenario: Scenario, hit: Hit, uses: int, said: Serving, other: Scenario | None
) -> dict[str, Any]:
    """Everything about reuse as plain data."""
    report = evaluate(scenario)
    made = identity(scenario, said)
    return {
        "reuse": hit_json(hit),
        "storage": _storage(report, hit, uses),
        "identity": _identity(made),
        "other": None if other is None else _other(scenario, made, said, other),
    }


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


def _storage(report: Report, hit: Hit, uses: int) -> dict[str, Any]:
    scenario = report.scenario
    gpu = load_hardware(scenario.gpu if scenario.gpu in hardware_ids() else MEASURED_ON)
    prefixes = Prefixes(report, gpu, max(1, hit.new_tokens))
    found = objects(report, whole_chunk(report, hit.align))
    ways = routing(scenario.dp, uses)
    costs = [prefixes.cost(tier, hit.prefix) for tier in tiers(report, gpu)]
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
        "tiers": [
            {
                "id": cost.tier.id,
                "bytes_per_second": cost.tier.rate,
                "capacity_bytes": cost.tier.capacity_bytes,
                "source": cost.tier.source,
                "prefixes_held": plain(cost.held.value),
                "load_us": round(float(cost.point.loaded.value), 3),
                "recompute_us": round(float(cost.point.recomputed.value), 3),
                "break_even_tokens": cost.break_even,
            }
            for cost in costs
        ],
        "hit_rate": {
            "replicas": ways.replicas,
            "uses": ways.uses,
            "cache_aware": round(float(ways.aware.value), 6),
            "random": round(float(ways.random.value), 6),
        },
    }


def _identity(made: Identity) -> dict[str, Any]:
    return {"digest": made.digest, "key": made.text, "fields": made.values}


def _other(scenario: Scenario, made: Identity, said: Serving, other: Scenario) -> dict[str, Any]:
    second = identity(other, said)
    found = compared(made, second)
    moved = None
    if scenario.model_spec == other.model_spec:
        gpu = scenario.gpu if scenario.gpu in hardware_ids() else MEASURED_ON
        moved = _transfer(transfer(scenario, other, load_hardware(gpu)))
    return {
        "identity": _identity(second),
        "compatible": found.compatible,
        "first_difference": found.first.field.id if found.first else None,
        "differences": [row.field.id for row in found.rows if not row.same],
        "transfer": moved,
    }


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
    lines.append(f"identity                          {document['identity']['digest']}")
    other = document["other"]
    if other is not None:
        first_difference = other["first_difference"] or "none"
        lines.append(f"first field that differs          {first_difference:>20}")
    return "\n".join(lines)
