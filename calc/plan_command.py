"""``python -m calc plan``: all legal layouts for a number of GPUs, ranked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from calc.errors import CalcError
from calc.export import plan_csv
from calc.fields import ChoiceField
from calc.plan_answers import FIELDS, LAYOUT, Why, plan_json, plan_of, why
from calc.planner import Plan, Row
from calc.scenario import Scenario

TOP = 20
NOTES = {
    "gpus": "GPUs of the whole deployment",
    "objective": "what rows are ranked by",
    "concurrency": "requests of the whole deployment; default: --batch in each replica",
    "engines": "this: the scenario's engine",
    "backends": "this: --dcp-backend",
    "kv_dtypes": "this: --kv-dtype",
    "replications": "this: --query-replication",
    "max_step_ms": "a limit for the estimated step, ms; 0: none",
    "max_sent_mb": "a limit for what a rank sends in a step, MB; 0: none",
    "top": "rows that are printed",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a scenario."""
    for name, field in FIELDS.items():
        note = NOTES[name]
        if isinstance(field, ChoiceField):
            note += f" ({', '.join(field.choices)}; default {field.default})"
        elif field.default is not None:
            note += f" (default {field.default})"
        parser.add_argument("--" + name.replace("_", "-"), dest=f"plan_{name}", help=note)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--csv", action="store_true", help="print all rows as CSV")


def answer(options: argparse.Namespace, scenario: Scenario, linked: Mapping[str, Any]) -> str:
    """What the command prints; ``linked`` is what a link asks, options say otherwise."""
    asked = _asked(options, linked)
    found = plan_of(scenario, asked)
    top = asked.get("top") or TOP
    if options.csv:
        return plan_csv(found).rstrip()
    if options.json:
        return json.dumps(plan_json(found, top, scenario, asked), indent=2, allow_nan=False)
    return table(found, top)


def _asked(options: argparse.Namespace, linked: Mapping[str, Any]) -> dict[str, Any]:
    names = {f"plan_{name}": name for name in FIELDS}
    values = {names[key]: value for key, value in linked.items() if key in names}
    for key, name in names.items():
        text = getattr(options, key)
        if text is None:
            continue
        try:
            values[name] = FIELDS[name].parse(text)
        except CalcError as error:
            raise CalcError(error.code, **error.values | {"field": name}) from None
    return values


def table(found: Plan, top: int) -> str:
    """The best rows for a terminal, and what binds the first."""
    fitting = sum(not row.lacks for row in found.rows)
    head = f"{len(found.rows):,} layouts, {fitting:,} fit; by {found.objective}"
    lines = [head, _verdict(found), "", _TITLES]
    lines += [_line(at, row) for at, row in enumerate(found.rows[:top], start=1)]
    lines += [f"unavailable: {error}" for error in found.unavailable]
    return "\n".join(lines)


def _verdict(found: Plan) -> str:
    if found.winner is not None:
        return _bound(why(found.winner, found.objective))
    nearest = found.nearest
    assert nearest is not None
    lacks = ", ".join(f"{_amount(what, by)} of {what}" for what, by in nearest.lacks)
    return f"nothing fits; the nearest lacks {lacks}"


def _amount(what: str, by: float) -> str:
    unit = {"memory": "B on each rank", "step": "µs too long", "traffic": "B too much"}[what]
    return f"{by:,.0f} {unit}"


def _bound(reason: Why) -> str:
    given = reason.values
    match reason.code:
        case "memory":
            return (
                f"bound by memory: {given['budget_bytes']:,} B of cache on a rank beside "
                f"{given['weight_bytes']:,} B of weights, {given['request_bytes']:,} B a request"
            )
        case "traffic":
            return f"bound by {given['stage']} ({given['share']:.0%} of what is sent)"
        case "silent":
            return "nothing is sent"
        case _:
            return f"bound by {given['group']} ({given['share']:.0%} of the estimated step)"


_TITLES = (
    f"{'':>3} {'engine':<7}{'tp':>4}{'dcp':>5}{'dp':>5}{'pp':>4} {'ep':<4}{'backend':<8}"
    f"{'kv':<20}{'requests':>10}{'context':>14}{'sent MB':>10}{'step ms':>9}  front, lacks"
)


def _line(at: int, row: Row) -> str:
    made, figures = row.scenario, row.figures
    values = {name: getattr(made, name) for name in LAYOUT}
    longest = "no limit" if figures.max_context is None else f"{figures.max_context:,}"
    step = "-" if figures.step_us is None else f"{figures.step_us / 1e3:.2f}"
    lacks = " ".join(f"{what} {by:,.0f}" for what, by in row.lacks)
    return (
        f"{at:>3} {values['engine']:<7}{values['tp']:>4}{values['dcp']:>5}{values['dp']:>5}"
        f"{values['pp']:>4} {values['ep']:<4}{values['dcp_backend']:<8}{values['kv_dtype']:<20}"
        f"{row.concurrency:>10,}{longest:>14}{float(figures.sent_bytes) / 1e6:>10.2f}{step:>9}"
        f"  {'*' if row.front else ' '} {lacks}"
    ).rstrip()
