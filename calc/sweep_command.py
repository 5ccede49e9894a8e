"""``python -m calc sweep``: one output over ranges of one or two inputs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from calc.errors import CalcError
from calc.export import sweep_csv, sweep_json
from calc.plan_inputs import NONE, SWEEP_OUTPUTS, SWEEPS, SWEPT
from calc.scenario import Scenario
from calc.sweep import read_axis, sweep_over

MOST_LINES = 50


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a scenario."""
    parser.add_argument("--output", help=f"{', '.join(SWEEP_OUTPUTS)}; default request_bytes")
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="INPUT=VALUES",
        help="a list (tp=1,2,4), a range (context=1024:8192:1024) or multiples (batch=1:64:x2); "
        f"once or twice; inputs: {', '.join(SWEPT)}",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--csv", action="store_true", help="print all points as CSV")


def answer(options: argparse.Namespace, scenario: Scenario, linked: Mapping[str, Any]) -> str:
    """What the command prints; ``linked`` is what a link asks, options say otherwise."""
    texts = options.axis or axis_texts(linked)
    if not texts:
        raise CalcError("sweep_axes", given=0)
    output = options.output or linked.get("plan_output", SWEEP_OUTPUTS[0])
    made = sweep_over(scenario, output, [read_axis(text) for text in texts])
    if options.json:
        return json.dumps(sweep_json(made), indent=2, allow_nan=False)
    if options.csv:
        return sweep_csv(made).rstrip()
    names = [*(axis.name for axis in made.axes), f"{made.output.id} ({made.output.unit})"]
    lines = ["  ".join(f"{name:>24}" for name in names)]
    for at, row in enumerate(made.rows()):
        if at == MOST_LINES:
            lines.append(f"and {made.values.size - MOST_LINES:,} more: --csv prints all")
            break
        lines.append("  ".join(f"{_cell(value):>24}" for value in row))
    lines += [f"cannot be: {error}" for error in dict.fromkeys(map(str, made.faults.values()))]
    return "\n".join(lines)


def axis_texts(asked: Mapping[str, Any]) -> list[str]:
    """The axes that a link asks for; none where it asks for no sweep."""
    if not any(name in asked for name in ("plan_input", "plan_values", "plan_input2")):
        return []
    said = {field.name: asked.get(field.name, field.default) for field in SWEEPS}
    axes = [f"{said['plan_input']}={said['plan_values']}"]
    if said["plan_input2"] != NONE:
        axes.append(f"{said['plan_input2']}={said['plan_values2']}")
    return axes


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
