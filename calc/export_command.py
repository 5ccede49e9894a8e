"""``python -m calc export``: a scenario as CSV, JSON, a Markdown report, or a launch command."""

from __future__ import annotations

import argparse

from calc.export import markdown, report_csv, report_json
from calc.launch import launch_command
from calc.report import evaluate
from calc.scenario import Scenario

FORMATS = ("markdown", "csv", "json", "launch")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a scenario."""
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="default markdown")
    parser.add_argument("--address", default="", help="of the page, put before the link")


def answer(options: argparse.Namespace, scenario: Scenario) -> str:
    """What the command prints."""
    if options.format == "launch":
        made = launch_command(scenario)
        left = f"\n# no flag here for: {', '.join(made.left_out)}" if made.left_out else ""
        return f"# {made.engine} {made.version}\n{made.text}{left}"
    report = evaluate(scenario)
    text = {"csv": report_csv, "json": report_json}.get(options.format)
    return (text(report) if text else markdown(report, options.address)).rstrip()
