"""The figures by which layouts are compared, for many layouts of one model.

What ``evaluate`` computes for one scenario is put together here from pieces that
are kept for as long as they are the same: a cache does not depend on dp, nor a
step's traffic on the cache format. Nothing here is a formula of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from calc.answers import requests_in_mix
from calc.capacity import StageCache, fit_stages, stage_caches, stage_request_bytes
from calc.engine_cache import budget_beside, pages_of, place_of
from calc.errors import CalcError
from calc.hardware import Hardware
from calc.layers import Sharding
from calc.report import resolved
from calc.scenario import Scenario
from calc.timing.report import gpu_of
from calc.timing.step import TimePart, communication, gpu_rate, mixers, products, user_rate
from calc.traffic import Step, decode_step
from calc.traffic.choices import step_options
from calc.traffic.stage import Work
from calc.weights import stage_bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a layout holds, sends and takes; times are estimates, None without a known GPU.

    Bytes are per rank, ``max_requests`` per replica. ``weights_short``: what the
    weights alone miss of a rank's memory.
    """

    fits: bool
    short_bytes: int
    weights_short: int
    max_requests: int
    max_context: int | None
    request_bytes: int
    weight_bytes: int
    budget_bytes: int
    sent_bytes: float
    step_us: float | None
    user_rate: float | None
    gpu_rate: float | None


class Pieces:
    """Memory of one plan."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self._kept: dict[Hashable, Any] = {}

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def figures(self, scenario: Scenario) -> Figures:
        """What compares one layout with others; raises CalcError for one that cannot be."""
        backend, replicated = resolved(scenario)
        stages = self._stages(scenario)
        self.kept(("pages", *_cached_by(scenario)), lambda: pages_of(scenario))
        weights = self._weights(scenario, replicated)
        budgets = self._budgets(scenario, weights)
        # equal stages bind where the weights leave least
        least: dict[int, tuple[StageCache, int]] = {}
        for stage, left in zip(stages, budgets, strict=True):
            same = id(stage)
            if same not in least or left < least[same][1]:
                least[same] = (stage, left)
        distinct = [stage for stage, _ in least.values()]
        if not any(stage.per_request.value for stage in distinct):
            raise CalcError("nothing_kept", given=scenario.model_spec.name)
        lefts = [left for _, left in least.values()]
        held = self.kept(
            ("fit", *map(id, distinct), *lefts, scenario.batch),
            lambda: fit_stages(distinct, lefts, scenario.batch),
        )
        requests, short = int(held.max_requests.value), held.short_bytes
        if lengths := scenario.pairs("lengths"):
            requests, short = _mixed(distinct, min(lefts), lengths, scenario.batch)
        sent, work, moving = self._traffic(scenario, backend, replicated)
        step = None if moving is None else moving + self._working_us(scenario, replicated, work)
        ranks = scenario.layout.replica_ranks
        return Figures(
            fits=short == 0,
            short_bytes=short,
            weights_short=max(0, -min(budgets)),
            max_requests=requests,
            max_context=held.max_context,
            request_bytes=max(int(stage.per_request.value) for stage in distinct),
            weight_bytes=max(weights),
            budget_bytes=held.budget_bytes,
            sent_bytes=sent,
            step_us=step,
            user_rate=None if step is None else user_rate(step),
            gpu_rate=None if step is None else gpu_rate(scenario.batch, step, ranks),
        )

    def _stages(self, scenario: Scenario) -> tuple[StageCache, ...]:
        return self.kept(
            ("cache", *_cached_by(scenario)),
            lambda: stage_caches(
                scenario.model_spec, scenario.layout, place_of(scenario), scenario.context
            ),
        )

    def _weights(self, scenario: Scenario, replicated: bool) -> tuple[int, ...]:
        layout = scenario.layout
        stripes = layout.dcp if replicated else 1
        key = ("weights", layout.tp, layout.pp, layout.dp, layout.ep, stripes)
        return self.kept(
            key,
            lambda: stage_bytes(
                scenario.model_spec,
                layout,
                scenario.weight_format,
                replicated,
                scenario.speculative_tokens > 0,
            ),
        )

    def _budgets(self, scenario: Scenario, weights: tuple[int, ...]) -> list[int]:
        """Each stage's budget, below zero where the weights alone are too much.

        A budget falls by what the weights take, byte for byte, unless it was typed.
        """
        key = ("budget", scenario.engine, scenario.tp, scenario.pp)
        empty = self.kept(key, lambda: budget_beside(scenario, [0] * scenario.pp))
        whole = int(empty.stages[0].value)
        return [whole if empty.typed else whole - held for held in weights]

    def _traffic(
        self, scenario: Scenario, backend: str, replicated: bool
    ) -> tuple[float, Work, float | None]:
        """Bytes that a rank sends in a step, what it works on, and the time of its collectives."""
        key = ("step", scenario.engine, scenario.layout, backend, replicated, scenario.batch)

        def made() -> tuple[float, Work, float | None]:
            step = decode_step(
                scenario.model_spec,
                scenario.layout,
                scenario.engine_rules,
                scenario.batch,
                backend,
                replicated,
                step_options(scenario),
            )
            return step.sent_per_rank.value, step.work, self._moving_us(scenario, step)

        return self.kept(key, made)

    def _moving_us(self, scenario: Scenario, step: Step) -> float | None:
        if not self.timed:
            return None
        try:
            return _sum_us(communication(step, self._gpu(scenario)))
        except CalcError:  # no network between nodes is known for this GPU
            return None

    def _gpu(self, scenario: Scenario) -> Hardware:
        return self.kept("gpu", lambda: scenario.measured(gpu_of(scenario)))

    def _working_us(self, scenario: Scenario, replicated: bool, work: Work) -> float:
        """Products, attention and states of a step."""
        layout, batch = scenario.layout, scenario.batch
        model, gpu = scenario.model_spec, self._gpu(scenario)
        stripes = layout.dcp if replicated else 1
        products_key = ("products", layout.tp, layout.dp, layout.ep, stripes, batch)
        mixers_key = (
            "mixers",
            scenario.engine,
            scenario.tp,
            scenario.dcp,
            scenario.kv_dtype,
            batch,
        )
        weights = self.kept(
            products_key,
            lambda: _sum_us(products(model, work, gpu, scenario.weight_format)),
        )
        attention = self.kept(
            mixers_key,
            lambda: _sum_us(mixers(model, _timed(scenario), work, gpu, batch, scenario.context)),
        )
        return weights + attention


def _cached_by(scenario: Scenario) -> tuple[Hashable, ...]:
    """What decides how a cache is laid out, of the fields in which rows differ."""
    made = scenario
    return (made.engine, made.tp, made.dcp, made.pp, made.kv_dtype)


def _timed(scenario: Scenario) -> Sharding:
    """The place that times are computed for: drafts widen no window there."""
    place = place_of(scenario)
    return replace(place, conv_drafts=0) if place.conv_drafts else place


def _sum_us(parts: list[TimePart]) -> float:
    return float(sum(part.total.value for part in parts))


def _mixed(
    stages: list[StageCache], budget: int, lengths: tuple[tuple[int, int], ...], batch: int
) -> tuple[int, int]:
    """(requests that fit, bytes short) for a mix of lengths."""
    count = sum(often for _, often in lengths)
    mixed = sum(
        often * max(stage_request_bytes(stage, tokens) for stage in stages)
        for tokens, often in lengths
    )
    short = -(-batch * mixed // count) - budget
    return int(requests_in_mix(max(0, budget), mixed, count)), max(0, short)
