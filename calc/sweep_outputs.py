"""What can be swept: each output for one report, and where a formula allows it, for arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from calc.capacity import batch_bytes, request_bytes, requests_that_fit, stage_request_bytes
from calc.checkpoints import checkpoint_bytes, checkpoints_kept, mean_recompute
from calc.errors import CalcError
from calc.report import Report
from calc.reuse import Rule
from calc.reuse_groups import reuse_groups
from calc.timing.report import times
from calc.units import Number, greater, lesser

Grid = Mapping[str, Number]
"""Arrays (or numbers) of context and batch."""


@dataclass(frozen=True, slots=True)
class Output:
    """A number of a report. ``ignores`` are inputs among context and batch that do not matter;
    ``over_grid`` computes it for arrays of both, ``at_interval`` for state snapshots that many
    tokens apart."""

    id: str
    unit: str
    read: Callable[[Report], Number | None]
    ignores: tuple[str, ...] = ()
    over_grid: Callable[[Report, Grid], Number] | None = None
    at_interval: Callable[[Report, int], Number] | None = None


def _stage_bytes(report: Report, grid: Grid) -> list[Number]:
    return [stage_request_bytes(stage, grid["context"]) for stage in report.cache.stages]


def _spread(value: Number, grid: Grid) -> Number:
    return np.broadcast_to(np.asarray(value), grid["shape"])


def _request_grid(report: Report, grid: Grid) -> Number:
    return _spread(request_bytes(report.cache, grid["context"]), grid)


def _batch_grid(report: Report, grid: Grid) -> Number:
    return _spread(batch_bytes(_request_grid(report, grid), grid["batch"]), grid)


def _requests_grid(report: Report, grid: Grid) -> Number:
    budgets = report.engine.budget.bytes
    fitting = (
        requests_that_fit(budget, held)
        for budget, held in zip(budgets, _stage_bytes(report, grid), strict=True)
    )
    return _spread(functools.reduce(lesser, fitting), grid)


def _short_grid(report: Report, grid: Grid) -> Number:
    missing = (
        batch_bytes(held, grid["batch"]) - budget
        for budget, held in zip(report.engine.budget.left, _stage_bytes(report, grid), strict=True)
    )
    return _spread(functools.reduce(greater, itertools.chain([0], missing)), grid)


def snapshot_unit(report: Report) -> int:
    """Tokens between the places where the engine can save a state; CalcError without states."""
    if not report.cache.stage.state_per_request.value:
        raise CalcError("sweep_stateless", "state_interval", model=report.model.name)
    rule = Rule(report.scenario.engine)
    return max(group.chunk for group in reuse_groups(report.scenario, rule))


def _whole_interval(report: Report, interval: int) -> int:
    unit = snapshot_unit(report)
    if interval % unit:
        raise CalcError("reuse_interval", interval=interval, unit=unit)
    return interval


def _snapshots(report: Report, interval: int) -> Number:
    kept = checkpoints_kept(report.scenario.context, _whole_interval(report, interval))
    return checkpoint_bytes(report.cache.stage.state_per_request.value, kept)


def _behind(report: Report, interval: int) -> Number:
    return mean_recompute(report.scenario.context, _whole_interval(report, interval))


BOTH = ("context", "batch")

OUTPUTS = {
    made.id: made
    for made in (
        Output(
            "request_bytes",
            "B",
            lambda r: r.cache.stage.per_request.value,
            ("batch",),
            _request_grid,
        ),
        Output("batch_bytes", "B", lambda r: r.cache.batch.value, (), _batch_grid),
        Output(
            "max_requests",
            "requests",
            lambda r: r.fit.max_requests.value,
            ("batch",),
            _requests_grid,
        ),
        Output("short_bytes", "B", lambda r: r.fit.short_bytes, (), _short_grid),
        Output("max_context", "tokens", lambda r: r.fit.max_context, ("context",)),
        Output(
            "growing_bytes", "B/token", lambda r: r.cache.stage.growing_per_token.value, ("batch",)
        ),
        Output("weight_bytes", "B", lambda r: r.engine.weights.total.value, BOTH),
        Output("budget_bytes", "B", lambda r: min(r.engine.budget.bytes), BOTH),
        Output("sent_bytes", "B", lambda r: r.step.sent_per_rank.value, ("context",)),
        Output("step_us", "µs", lambda r: times(r).decode.total.value),
        Output("user_rate", "tokens/s", lambda r: times(r).decode.tokens_per_second_user.value),
        Output(
            "snapshot_bytes",
            "B",
            lambda r: _snapshots(r, snapshot_unit(r)),
            ("batch",),
            at_interval=_snapshots,
        ),
        Output(
            "recomputed_tokens",
            "tokens",
            lambda r: _behind(r, snapshot_unit(r)),
            ("batch",),
            at_interval=_behind,
        ),
        Output("gpu_rate", "tokens/s", lambda r: times(r).decode.tokens_per_second_gpu.value),
    )
}
"""Everything that can be swept."""
