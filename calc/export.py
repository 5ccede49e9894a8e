"""Results as files: CSV of rows, and a Markdown report with inputs, numbers, derivations, link."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from calc.errors import CalcError
from calc.expressions import filled, number_latex, symbolic
from calc.hardware import hardware_ids
from calc.items import SUMS, Item, walk
from calc.launch import launch_command
from calc.link import VERSION as LINK_VERSION
from calc.link import encode, query_string
from calc.plan_answers import row_json
from calc.planner import Plan
from calc.report import Report
from calc.scenario import FIELDS, Scenario
from calc.sweep import Sweep
from calc.timing.report import times
from calc.traffic.json import plain
from calc.version import FORMULAS, VERSION

MOST_STEPS = 60
"""Derivation steps of one number in a report."""


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV, titles from the first; a cell that a spreadsheet would compute is made text.

    >>> csv_text([{"tp": 8, "name": "=1+1"}])
    "tp,name\\r\\n8,'=1+1\\r\\n"
    """
    kept = list(rows)
    made = io.StringIO()
    if kept:
        writer = csv.DictWriter(made, list(kept[0]))
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in kept)
    return made.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def report_data(report: Report) -> dict[str, Any]:
    """Every number of a report, how the headline ones come about, and its link."""
    link = "?" + query_string(encode(report.scenario, report.headline()))
    worked = {name: [_step(one) for one in walk(item)] for name, item in derived(report).items()}
    return report.to_json() | {"derivations": worked, "link": link}


def derived(report: Report) -> dict[str, Item]:
    """The numbers of a report whose arithmetic is told, by their names."""
    fit, cache, account = report.fit, report.cache, report.engine
    found = {
        "request": cache.stage.per_request,
        "growing": cache.stage.growing_per_token,
        "requests": fit.max_requests,
        "batch": cache.batch,
        "budget": account.budget.stages[fit.stage],
        "weights": account.weights.total,
        "sent": report.step.sent_per_rank,
    }
    if report.scenario.gpu in hardware_ids():
        found["step"] = times(report).decode.total
    return found


def _step(item: Item) -> dict[str, Any]:
    """One step of a derivation: what it is called, how it is computed, from where."""
    made = item.formula
    return {
        "key": item.key,
        "formula": symbolic(made),
        "filled": filled(item) if item.arguments else None,
        "value": plain(item.value),
        "unit": made.unit,
        "source": made.source,
    }


def report_csv(report: Report) -> str:
    """Every number of a report: its path in the JSON, and the value."""
    return csv_text(
        {"figure": path, "value": value} for path, value in _flat(report_data(report), "")
    )


def report_json(report: Report) -> str:
    """The same as JSON."""
    return json.dumps(report_data(report), indent=2, allow_nan=False) + "\n"


def sweep_link(made: Sweep) -> str:
    """The address of a sweep in the Plan view; values that no link holds are left out of it."""
    asked = {"plan_part": "sweep", "plan_output": made.output.id}
    for number, axis in zip(("", "2"), made.axes, strict=False):
        asked[f"plan_input{number}"] = axis.name
        asked[f"plan_values{number}"] = axis.text
    return "?" + query_string(encode(made.scenario, (), asked) | {"view": "plan"})


def sweep_json(made: Sweep) -> dict[str, Any]:
    """A sweep as plain data; ``faults`` says at which point a scenario cannot be, and why."""
    return {
        "version": {"package": VERSION, "formulas": FORMULAS},
        "link": sweep_link(made),
        "output": made.output.id,
        "unit": made.output.unit,
        "axes": [{"name": axis.name, "values": list(axis.values)} for axis in made.axes],
        "values": made.values.tolist(),
        "faults": [
            {"at": list(place), "reason": str(error)} for place, error in made.faults.items()
        ],
    }


def plan_csv(found: Plan) -> str:
    """The rows of a plan in order."""

    def row(number: int, given: dict[str, Any]) -> dict[str, Any]:
        lacks = given.pop("lacks")
        short = {f"lacks_{name}": lacks.get(name) for name in ("memory", "step", "traffic")}
        version = {"calculator": VERSION, "formulas": FORMULAS}
        return {"rank": number, **given, **short, **version}

    return csv_text(row(at, row_json(each)) for at, each in enumerate(found.rows, start=1))


def sweep_csv(made: Sweep) -> str:
    """The points of a sweep; above them lines that begin with # say what they are of.

    ``pandas.read_csv(file, comment="#")`` passes over those.
    """
    names = [*(axis.name for axis in made.axes), made.output.id]
    head = (
        f"calculator {VERSION}, formulas {FORMULAS}",
        f"{made.output.id} in {made.output.unit}, {made.scenario.engine}, {made.scenario.model}",
        sweep_link(made),
    )
    lines = "".join(f"# {line}\r\n" for line in head)
    return lines + csv_text(dict(zip(names, row, strict=True)) for row in made.rows())


def _flat(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _flat(inner, f"{path}.{at}")
    else:
        yield path, value


WORDS = {
    "report": "Capacity and communication report",
    "inputs": "Inputs",
    "numbers": "Numbers",
    "derivations": "Derivations",
    "versions": "Versions",
    "launch": "Launch command",
    "link": "Link",
    "request": "Cache of one request, per rank (B)",
    "batch": "Cache of the batch, per rank (B)",
    "budget": "Cache budget, per rank (B)",
    "requests": "Largest batch at this context (requests a replica)",
    "context": "Longest context at this batch (tokens)",
    "weights": "Weights, per rank (B)",
    "sent": "Sent per rank and decode step (B)",
    "sent_all": "Sent by all ranks per step (B)",
    "ranks": "Ranks",
    "fits": "Fits",
    "yes": "yes",
    "no": "no, short of {short} B on each rank",
    "unlimited": "no limit",
    "model": "Model {name}, revision {revision} of its description",
    "engine": "Rules of {engine} {version}",
    "calculator": "Calculator {version}, formula revision {formulas}",
    "codec": "Link version {version}",
    "for_version": "For {engine} {version}; MODEL stands for the weights.",
    "left_out": "No flag here for: {fields}",
    "not_counted": "Not counted: {fields}",
}
"""The English words of a report; a page may pass its own."""


def markdown(
    report: Report,
    address: str = "",
    words: Mapping[str, str] = WORDS,
    label: Callable[[Item], str] | None = None,
) -> str:
    """A report of one scenario as Markdown. ``address`` stands before the link's query.

    ``label`` words an Item; without one its key stands.
    """
    scenario = report.scenario
    rules = scenario.engine_rules
    link = f"{address}?{query_string(encode(scenario, report.headline()))}"
    fields = {name: getattr(scenario, name) for name in ("model", *FIELDS)}
    lines = [
        f"# {words['report']}",
        *_section(words["inputs"], _table(fields.items())),
        *_section(words["numbers"], _table(_numbers(report, words).items())),
        words["not_counted"].format(fields=", ".join(report.not_counted())),
        *_section(words["derivations"], _derivations(report, label or (lambda item: item.key))),
        *_section(words["launch"], _launch(scenario, words)),
    ]
    name = _plain(report.model.name)
    lines += _section(
        words["versions"],
        [
            "- " + words["model"].format(name=name, revision=report.model.revision),
            "- " + words["engine"].format(engine=rules.name, version=rules.version),
            "- " + words["calculator"].format(version=VERSION, formulas=FORMULAS),
            "- " + words["codec"].format(version=LINK_VERSION),
        ],
    )
    lines += _section(words["link"], ["```", link, "```"])
    return "\n".join(lines) + "\n"


def _launch(scenario: Scenario, words: Mapping[str, str]) -> list[str]:
    try:
        command = launch_command(scenario)
    except CalcError as error:  # the numbers hold, but the engine would not start
        return [_plain(str(error))]
    lines = ["```sh", command.text, "```"]
    lines.append(words["for_version"].format(engine=command.engine, version=command.version))
    if command.left_out:
        lines += ["", words["left_out"].format(fields=", ".join(command.left_out))]
    return lines


def _numbers(report: Report, words: Mapping[str, str]) -> dict[str, Any]:
    fit, cache = report.fit, report.cache
    short = fit.short_bytes
    found = {
        "request": cache.stage.per_request.value,
        "batch": cache.batch.value,
        "budget": fit.budget_bytes,
        "requests": fit.max_requests.value,
        "context": words["unlimited"] if fit.max_context is None else fit.max_context,
        "weights": report.engine.weights.total.value,
        "sent": report.step.sent_per_rank.value,
        "sent_all": report.step.all_ranks.value,
        "ranks": report.scenario.layout.world_size,
        "fits": words["no"].format(short=f"{short:,}") if short else words["yes"],
    }
    return {words[name]: value for name, value in found.items()}


def _section(title: str, body: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *body, ""]


def _table(rows: Iterable[tuple[str, Any]]) -> list[str]:
    made = ["| | |", "|---|---|"]
    for name, value in rows:
        shown = _written(value) if isinstance(value, int | float) else _plain(str(value))
        made.append(f"| {name} | {shown} |")
    return made


def _written(value: float) -> str:
    """All digits of whole numbers; where ranks share a byte, two behind the point.

    >>> _written(245_288_960.0), _written(40_881_493.333333336), _written(0.92)
    ('245,288,960', '40,881,493.33', '0.92')
    """
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1000 else f"{value:g}"


def _plain(text: str) -> str:
    """A text that is nothing but text in Markdown."""
    return "".join(letter if letter.isalnum() or letter in " .,-_+:" else " " for letter in text)


def _derivations(report: Report, label: Callable[[Item], str]) -> list[str]:
    lines: list[str] = []
    for item in derived(report).values():
        steps = walk(item)
        lines += [f"### {label(item)}", ""]
        for step in steps[-MOST_STEPS:]:
            lines.append(f"- {label(step)}: ${_worked(step)}$")
        lines.append("")
    return lines


def _worked(item: Item) -> str:
    value = number_latex(item.value)
    if item.formula in SUMS.values():
        return f"{filled(item)} = {value}"
    if not item.arguments:
        return f"{symbolic(item.formula)} = {value}"
    return f"{symbolic(item.formula)} = {filled(item)} = {value}"
