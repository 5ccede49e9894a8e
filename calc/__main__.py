"""The command line: ``python -m calc COMMAND``, from ``evaluate`` to ``claims``.

Exit status 0 for every result, also for one that does not fit; 2 for input
that cannot be, with the field and the reason on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from calc import export_command, plan_command, reuse_command, sweep_command
from calc.errors import CalcError
from calc.fields import ChoiceField, Field
from calc.hardware import hardware_ids
from calc.hf_config import command as import_command
from calc.learn import claims_command, quiz_command
from calc.link import LinkError, decode_query, encode, query_string
from calc.presets import CUSTOM, load_preset, preset_ids
from calc.report import Report, evaluate
from calc.scenario import FIELDS, Scenario
from calc.timing import command as timing_command
from calc.timing.report import times, times_json

CAUTIONS = {
    "dcp_heads": "SGLang starts with this dcp and then corrupts the cache: ranks of a DCP group "
    "hold different KV heads; tp / dcp should be a multiple of the KV heads"
}
ALIASES = {"bfloat16": "bf16", "fp32": "float32"}
"""Other spellings of dtypes that the command line takes."""


class _Parser(argparse.ArgumentParser):
    """argparse with whole option names only, whose errors name the option."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "presets":
                status = _presets(options.json)
            case "import":
                status = _print(import_command.answer(options))
            case "timing":
                status = _print(timing_command.answer(options))
            case "reuse":
                status = _print(reuse_command.answer(options, *_linked(options)))
            case "claims":
                status = _print(claims_command.answer(options))
            case "quiz":
                status = _print(quiz_command.answer(options))
            case "plan":
                status = _print(plan_command.answer(options, *_linked(options)))
            case "sweep":
                status = _print(sweep_command.answer(options, *_linked(options)))
            case "export":
                status = _print(export_command.answer(options, _scenario(options)))
            case _:
                status = _evaluate(options)
        sys.stdout.flush()
        return status
    except (CalcError, LinkError) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads (head, a pager) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m calc", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    presets = commands.add_parser("presets", help="list the model presets", allow_abbrev=False)
    presets.add_argument("--json", action="store_true", help="ids, names and revisions as JSON")
    importing = commands.add_parser(
        "import", help="what a model's config.json says", allow_abbrev=False
    )
    import_command.add_options(importing)
    timing = commands.add_parser(
        "timing", help="times of collectives and kernels, and their errors", allow_abbrev=False
    )
    timing_command.add_options(timing)
    evaluating = commands.add_parser("evaluate", help="compute one scenario", allow_abbrev=False)
    _add_scenario(evaluating)
    evaluating.add_argument("--json", action="store_true", help="print one JSON object")
    planning = commands.add_parser(
        "plan", help="all legal layouts for a number of GPUs, ranked", allow_abbrev=False
    )
    _add_scenario(planning)
    plan_command.add_options(planning)
    sweeping = commands.add_parser(
        "sweep", help="an output over ranges of inputs", allow_abbrev=False
    )
    _add_scenario(sweeping)
    sweep_command.add_options(sweeping)
    exporting = commands.add_parser(
        "export", help="a scenario as a report or a launch command", allow_abbrev=False
    )
    _add_scenario(exporting)
    export_command.add_options(exporting)
    claiming = commands.add_parser(
        "claims", help="what articles say, and what is right", allow_abbrev=False
    )
    claims_command.add_options(claiming)
    quizzing = commands.add_parser(
        "quiz", help="questions to practise with, the same for a seed", allow_abbrev=False
    )
    quiz_command.add_options(quizzing)
    reusing = commands.add_parser(
        "reuse", help="the usable prefix, its storage and identity", allow_abbrev=False
    )
    _add_scenario(reusing)
    reuse_command.add_options(reusing)
    reusing.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    """The model and every field of a Scenario."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--preset", help="id of a model preset")
    model.add_argument("--config", help="a model's config.json instead of a preset")
    model.add_argument("--link", help="a share link, or the text after its question mark")
    for field in FIELDS.values():
        parser.add_argument(_option(field.name), dest=field.name, help=_allowed(field))


def _print(text: str) -> int:
    print(text)
    return 0


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")


def _allowed(field: Field) -> str:
    if isinstance(field, ChoiceField):
        return f"{', '.join(field.choices)}; default {field.default}"
    return f"{field.minimum} to {field.maximum}; default {field.default}"


def _presets(as_json: bool) -> int:
    models = [load_preset(preset) for preset in preset_ids()]
    if as_json:
        rows = [{"id": m.id, "name": m.name, "revision": m.revision} for m in models]
        print(json.dumps(rows, indent=2))
    else:
        print("\n".join(model.id for model in models))
    return 0


def _scenario(options: argparse.Namespace) -> Scenario:
    """The scenario of a link, or of a model and the fields that were typed."""
    typed = {name: getattr(options, name) for name in FIELDS if getattr(options, name) is not None}
    if options.link is not None:
        if typed:
            raise CalcError(
                "invalid_value",
                next(iter(typed)),
                reason="a link already says every field; give --link alone",
            )
        return decode_query(options.link.rpartition("?")[2]).scenario
    values: dict[str, Any] = {
        name: FIELDS[name].parse(ALIASES.get(text, text)) for name, text in typed.items()
    }
    if "kv_cache_memory_gib" in values and "gpu" in values:
        values.setdefault("cache_memory", "typed")
    if options.config is not None:
        imported = import_command.import_file(options.config)
        for notice in imported.warnings:
            print(f"warning: {notice}", file=sys.stderr)
        return Scenario(CUSTOM, spec=imported.spec, **values)
    return Scenario(options.preset, **values)


def _linked(options: argparse.Namespace) -> tuple[Scenario, Mapping[str, Any]]:
    """The scenario, and what a link asks beside it."""
    scenario = _scenario(options)
    if options.link is None:
        return scenario, {}
    return scenario, decode_query(options.link.rpartition("?")[2]).asked


def _evaluate(options: argparse.Namespace) -> int:
    report = evaluate(_scenario(options))
    if options.json:
        timed = times_json(times(report)) if report.scenario.gpu in hardware_ids() else None
        document = report.to_json() | {"timing": timed}
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        print(_summary(report))
    return 0


def _summary(report: Report) -> str:
    """The same numbers for reading in a terminal."""
    stage = report.cache.stage
    fit = report.fit
    lines = [
        f"{report.model.name}, {report.scenario.layout.world_size} ranks",
        f"cache of one request, per rank    {stage.per_request.value:>20,} B",
        f"  growing, per token              {stage.growing_per_token.value:>20,} B",
        f"  window, per request             {stage.window_per_request.value:>20,} B",
        f"  state, per request              {stage.state_per_request.value:>20,} B",
        f"cache of the batch, per rank      {report.cache.batch.value:>20,} B",
        f"cache budget, per rank            {fit.budget_bytes:>20,} B ({_budget(report)})",
        f"largest batch at this context     {fit.max_requests.value:>20,} requests a replica",
        f"largest context at this batch     {_or_unlimited(fit.max_context):>20} tokens",
        f"sent per rank and decode step     {report.step.sent_per_rank.value:>20,} B",
        f"sent by all ranks per step        {report.step.all_ranks.value:>20,} B",
        f"link                              ?{query_string(encode(report.scenario))}",
    ]
    lines += [f"caution: {CAUTIONS[name]}" for name in report.cautions()]
    if not fit.fits:
        lines.insert(6, f"  does not fit: short of          {fit.short_bytes:>20,} B on each rank")
    return "\n".join(lines)


def _budget(report: Report) -> str:
    return "typed" if report.engine.budget.typed else f"estimated from {report.scenario.gpu}"


def _or_unlimited(tokens: int | None) -> str:
    return "no limit" if tokens is None else f"{tokens:,}"


if __name__ == "__main__":
    sys.exit(main())
