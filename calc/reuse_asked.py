"""What is asked about reuse, worked out for one scenario: the same for page, link and command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from calc.checkpoints import Interval, Workload, best, each_token_us, interval_cost, trade_off
from calc.chunks import Chunks, parse_chunks
from calc.errors import CalcError, shown
from calc.fields import ListField
from calc.hardware import Hardware
from calc.identity import Identity, Serving, identity
from calc.report import Report
from calc.reuse import Hit, ReuseGroup, Rule, usable
from calc.reuse_groups import hash_lookahead, reuse_groups, usual_chunk
from calc.reuse_inputs import PLACES, REUSE_INPUTS, SAME, SERVING
from calc.scenario import Scenario
from calc.storage import Places, Prefixes, Tier, tiers
from calc.transfer import Transfer, transfer
from calc.units import GIB

FIELDS = {field.name.removeprefix("reuse_"): field for field in REUSE_INPUTS}
"""By the names that the command line has."""
NUMBERS = tuple(name for name, *_ in PLACES)
PER_GB = 1e9
OTHER_ENGINE = {"dcp_backend": "auto", "query_replication": "auto", "moe_backend": "auto"}
"""Choices of one engine that another may not have."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Costs of the chosen interval, of some others, densest first, and the cheapest of all."""

    chosen: Interval
    every: tuple[Interval, ...]
    best: Interval


@dataclass(frozen=True)
class Asked:
    """``values`` by the names of ``FIELDS``; what is not named is at its default."""

    scenario: Scenario
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            FIELDS[name].check(value)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name, FIELDS[name].default)

    @property
    def rule(self) -> Rule:
        """Whose rule; the scenario's own engine unless another is named."""
        named = self["rule"]
        return Rule(self.scenario.engine if named == "engine" else named)

    @property
    def enabled(self) -> bool:
        """Whether anything is looked up: an engine with prefix caching off finds nothing."""
        return looks_up(self.scenario, self.rule)

    @property
    def prefix(self) -> int:
        """Tokens shared with an earlier request."""
        return int(self["prefix"] or self.scenario.shared_prefix or self.scenario.context)

    @cached_property
    def groups(self) -> tuple[ReuseGroup, ...]:
        drops = self["lookahead"] == "off"
        return reuse_groups(
            self.scenario, self.rule, self["chunk"] or 0, self["interval"] or 0, drops
        )

    @property
    def missing(self) -> dict[str, Chunks]:
        """Chunks that are not there, by group."""
        return {name: parse_chunks(text, name) for name, text in split(self["missing"]).items()}

    @cached_property
    def hit(self) -> Hit:
        """The usable prefix."""
        return self.found(self.groups, self.missing)

    def found(self, groups: Sequence[ReuseGroup], missing: Mapping[str, Iterable[int]]) -> Hit:
        """The usable prefix where these chunks are missing."""
        looks_ahead = self.rule is Rule.VLLM and self["lookahead"] == "on"
        return usable(
            groups,
            self.prefix,
            missing,
            self.rule,
            self["new_tokens"],
            self.enabled,
            hash_lookahead(self.scenario) if looks_ahead else 0,
        )

    def by_rule(self, rule: Rule) -> Hit:
        """The same prefix by another rule with its usual chunks, nothing missing."""
        names = ("prefix", "new_tokens", "lookahead")
        values = {name: self[name] for name in names} | {"rule": rule.value}
        return Asked(self.scenario, values).hit

    @property
    def stored_chunk(self) -> int:
        """Tokens of a stored chunk: LMCache's way, where nobody names one."""
        return int(self["chunk"] or usual_chunk(self.scenario, Rule.LMCACHE))

    @property
    def snapshot_unit(self) -> int:
        """Tokens between the places at which the engine can save a state."""
        rule = Rule(self.scenario.engine)
        groups = reuse_groups(self.scenario, rule, interval=self["interval"] or 0)
        return max(group.chunk for group in groups)

    @property
    def snapshot_interval(self) -> int:
        return int(self["snapshot_interval"] or self.snapshot_unit)

    @property
    def hit_lengths(self) -> tuple[tuple[int, int], ...]:
        """(tokens, how often); empty where hits end anywhere."""
        field = FIELDS["hit_lengths"]
        assert isinstance(field, ListField)
        return field.pairs(self["hit_lengths"])

    def snapshots(
        self, report: Report, prefixes: Prefixes, places: Sequence[Tier]
    ) -> Snapshots | None:
        """How often to save a state; None without states, or where a prefix is too short."""
        state = report.cache.stage.state_per_request
        unit = self.snapshot_unit
        if not state.value or self.prefix < unit:
            return None
        _, computing = prefixes.at(self.prefix)
        work = Workload(
            self.prefix,
            float(self["hits"]),
            each_token_us.item("checkpoints.token", recompute_us=computing, prefix=self.prefix),
            next(tier.rate for tier in places if tier.id == "nvme"),
            float(self["prefill_rate"]),
            self.hit_lengths,
        )
        with named("snapshot"):
            chosen = interval_cost(state, self.snapshot_interval, unit, work)
        with named("hit"):
            return Snapshots(chosen, trade_off(state, unit, work), best(state, unit, work))

    @property
    def network_rate(self) -> float | None:
        """Bytes a second of one rank over the network; None: by the GPU's data sheet."""
        return self["network_rate"] * PER_GB or None

    def tiers(self, report: Report, gpu: Hardware) -> tuple[Tier, ...]:
        """Where prefixes can lie."""
        places = Places(
            int(self["host_gib"] * GIB),
            self["host_rate"] * PER_GB,
            int(self["nvme_gb"] * PER_GB),
            self["nvme_rate"] * PER_GB,
            int(self["network_gb"] * PER_GB),
            self.network_rate,
        )
        return tiers(report, gpu, places)

    def moved(self, gpu: Hardware) -> Transfer:
        """What goes to the replica that decodes what this scenario prefilled."""
        changes = self._changes("decode", "tp", "dcp", "pp")
        with named("decode"):
            decode = replace(self.scenario, **changes, pp_layers="even", ep="off")
            return transfer(self.scenario, decode, gpu, self.network_rate)

    def identity(self) -> Identity:
        """The identity of this instance's blocks."""
        return identity(self.scenario, self.serving("here"), self["interval"] or 0)

    def other_identity(self) -> Identity:
        """That of the other instance's."""
        with named("there"), named("other"):
            return identity(self.other(), self.serving("there"), self["interval"] or 0)

    def other(self) -> Scenario:
        """The instance that might be served by this one's blocks."""
        changes = self._changes("other", "tp", "dcp")
        if self["other_engine"] not in (SAME, self.scenario.engine):
            changes |= {"engine": self["other_engine"]} | OTHER_ENGINE
        return replace(self.scenario, **changes)

    def _changes(self, side: str, *sizes: str) -> dict[str, Any]:
        changes = {name: self[f"{side}_{name}"] for name in sizes}
        changes = {name: value for name, value in changes.items() if value is not None}
        kv_dtype = self[f"{side}_kv_dtype"]
        return changes if kv_dtype == SAME else changes | {"kv_dtype": kv_dtype}

    def serving(self, side: str) -> Serving:
        """What a deployment adds to the identity: this one (here), or the other (there)."""
        return Serving(**{name: self[f"{side}_{name}"] for name in (*SERVING, *NUMBERS)})


@contextmanager
def named(side: str) -> Iterator[None]:
    """Faults of another replica's fields bear the names of the inputs that describe it."""
    try:
        yield
    except CalcError as error:
        name = f"{side}_{error.field}"
        raise (error.about(name) if name in FIELDS else error) from None


def looks_up(scenario: Scenario, rule: Rule) -> bool:
    """LMCache and the ideal rule do not look into the engine's own prefix cache."""
    return scenario.prefix_caching == "on" or rule not in (Rule.VLLM, Rule.SGLANG)


def split(missing: str) -> dict[str, str]:
    """``window=0-3,7;state=2`` by group; the chunks are still text.

    >>> split("window=0-3,7;state=2")
    {'window': '0-3,7', 'state': '2'}
    """
    found: dict[str, str] = {}
    for piece in missing.split(";") if missing else ():
        group, sign, chunks = piece.partition("=")
        if not sign or not group:
            raise CalcError("reuse_unreadable", group="?", given=shown(piece))
        if group in found:
            raise CalcError("reuse_overlap", group=group, given=shown(chunks))
        found[group] = chunks
    return found


def joined(by_group: Mapping[str, str]) -> str:
    """Inverse of ``split``; groups that lack nothing are left out."""
    return ";".join(
        f"{name}={chunks.strip()}" for name, chunks in by_group.items() if chunks.strip()
    )
