"""What a plan says beyond its rows: what binds the best one, and the rows as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calc.link import encode, query_string
from calc.plan_inputs import ALL, LAYOUTS
from calc.planner import TIMED, Limits, Plan, Row, plan
from calc.report import evaluate
from calc.scenario import Scenario
from calc.timing.report import times
from calc.version import FORMULAS, VERSION

FIELDS = {field.name.removeprefix("plan_"): field for field in LAYOUTS}
"""By the names that the command line has."""

LAYOUT = ("engine", "tp", "dcp", "dp", "pp", "ep", "dcp_backend", "query_replication", "kv_dtype")
"""The fields that differ between the rows of a plan."""


def plan_of(
    scenario: Scenario,
    asked: Mapping[str, Any],
    progress: Callable[[float], None] | None = None,
) -> Plan:
    """The plan that is asked for; what is not named is at the default of its field."""
    said = {name: asked.get(name, field.default) for name, field in FIELDS.items()}
    for name, value in said.items():
        FIELDS[name].check(value)
    own: dict[str, tuple[str, ...]] = {
        "engines": (),
        "kv_dtypes": (),
        "backends": (scenario.dcp_backend,),
        "replications": (scenario.query_replication,),
    }
    choices = {name: (ALL,) if said[name] == ALL else usual for name, usual in own.items()}
    return plan(
        scenario,
        said["gpus"],
        said["objective"],
        **choices,
        concurrency=said["concurrency"],
        limits=Limits(said["max_step_ms"] * 1e3 or None, said["max_sent_mb"] * 1e6 or None),
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Why:
    """What binds a layout: ``code`` is memory, traffic, silent or time; the page words it."""

    code: str
    values: dict[str, Any]


def why(row: Row, objective: str) -> Why:
    """What sets the figure that a row is ranked by."""
    report = evaluate(row.scenario)
    if objective in TIMED:
        step = times(report).decode
        groups = {name: float(step.group(name)) for name in ("products", "attention", "state")}
        groups["communication"] = float(step.group("communication"))
        most = max(groups, key=groups.__getitem__)
        whole = float(step.total.value)
        return Why("time", {"group": most, "share": groups[most] / whole, "step_us": whole})
    if objective == "traffic":
        ranks = report.step.per_rank
        fullest = max(range(len(ranks)), key=lambda index: ranks[index].value)
        there = report.step.pipeline[fullest]
        sends = [stage for stage in there if stage.per_step is not None]
        if not sends:
            return Why("silent", {})
        most_sent = max(sends, key=lambda stage: _sent(stage))
        whole = sum(_sent(stage) for stage in sends)
        values = {"stage": most_sent.name, "kind": most_sent.kind, "sent_bytes": _sent(most_sent)}
        return Why("traffic", values | {"share": _sent(most_sent) / whole})
    bound = report.fit.stage
    return Why(
        "memory",
        {
            "typed": report.engine.budget.typed,
            "budget_bytes": report.engine.budget.bytes[bound],
            "weight_bytes": report.engine.weights.stage_bytes[bound],
            "request_bytes": report.cache.stages[bound].per_request.value,
            "context": row.scenario.context,
            "requests": row.figures.max_requests,
            "replicas": row.scenario.dp,
        },
    )


def _sent(stage: Any) -> float:
    return float(stage.per_step.value)


def row_json(row: Row) -> dict[str, Any]:
    """One row as plain data, with the link that opens it."""
    made = row.scenario
    return {
        **{name: getattr(made, name) for name in LAYOUT},
        "batch": made.batch,
        "gpus": row.gpus,
        "concurrency": row.concurrency,
        **asdict(row.figures),
        "lacks": dict(row.lacks),
        "pareto_front": row.front,
        "link": "?" + query_string(encode(made)),
    }


def plan_json(found: Plan, most: int, base: Scenario, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The best ``most`` rows, what binds the first, and what could not be; with what was ``asked``
    about ``base``, and the link that asks it again."""
    given = {f"plan_{name}": value for name, value in asked.items()}
    winner, nearest = found.winner, found.nearest
    reason = why(winner, found.objective) if winner else None
    return {
        "version": {"package": VERSION, "formulas": FORMULAS},
        "objective": found.objective,
        "asked": dict(asked),
        "link": "?" + query_string(encode(base, (), given) | {"view": "plan"}),
        "layouts": len(found.rows),
        "fitting": sum(not row.lacks for row in found.rows),
        "winner_binds": None if reason is None else {"by": reason.code, **reason.values},
        "nearest": None if nearest is None else row_json(nearest),
        "rows": [row_json(row) for row in found.rows[:most]],
        "unavailable": [str(error) for error in found.unavailable],
    }
