"""What would fit where a scenario does not: other layouts for the weights, another length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView
from calc.errors import CalcError
from calc.report import Report, evaluate
from calc.scenario import Scenario

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Group sizes that are tried, smallest first."""


@dataclass(frozen=True, slots=True)
class Way:
    """A layout that leaves cache memory: the fields to change, what is left, what it holds.

    ``max_context`` is for one request, as the engine allocates it; None: no limit.
    """

    changes: dict[str, Any]
    budget_bytes: int
    ranks: int
    max_context: int | None


def ways_to_hold_weights(scenario: Scenario) -> tuple[Way, ...]:
    """The smallest tp, and the smallest pp, at which weights and reserves leave memory."""
    return tuple(
        way for name in ("tp", "pp") if (way := next(_ways(scenario, name), None)) is not None
    )


def _ways(scenario: Scenario, name: str) -> Iterator[Way]:
    alone: dict[str, Any] = {"batch": 1, "shared_prefix": 0, "lengths": "off"}
    striped: tuple[dict[str, Any], ...] = ({}, {"dcp": 1})
    for size in SIZES:
        if size <= getattr(scenario, name):
            continue
        changes: dict[str, Any] = {name: size}
        if name == "pp" and scenario.pp_layers != "even":
            changes["pp_layers"] = "even"
        if scenario.ep not in ("off", "on"):
            changes["ep"] = "on"
        for further in striped:
            try:
                report = evaluate(replace(scenario, **alone, **changes, **further))
            except CalcError:
                continue
            if not report.engine.budget.short_bytes and min(report.engine.budget.bytes):
                yield Way(
                    changes | {k: v for k, v in further.items() if getattr(scenario, k) != v},
                    min(report.engine.budget.bytes),
                    report.scenario.layout.world_size,
                    report.engine.view.max_context if report.engine.view else None,
                )
            break


def longest_alone(report: Report) -> int | None:
    """Most tokens of a single request, as the engine allocates it; 0 for none, None for any."""
    if report.scenario.batch == 1:
        view = report.engine.view
    else:
        view = evaluate(replace(report.scenario, batch=1)).engine.view
    return view.max_context if view else None


def by_engine(report: Report) -> tuple[int, int | None] | None:
    """(largest batch, longest context of the batch) as the engine allocates; None without cache."""
    view: BlockView | PoolView | None = report.engine.view
    return None if view is None else (int(view.max_requests.value), view.max_context)
