"""The benchmark's command line: ``python -m gpu run|facts|collectives``.

``run`` prints one JSON line a step; the last one is the result, or an error of
one sentence. Exit status: 0 a result, 1 no result, 2 input that cannot be,
124 the time limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calc.errors import CalcError
from calc.link import LinkError
from gpu import options as scenario_options
from gpu.facts import UnavailableError, facts
from gpu.guard import BusyError, end_after, only_one
from gpu.progress import fail, say

TIME_LIMIT_S = 90.0
CALIBRATION_LIMIT_S = 240.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned."""
    options = _parser().parse_args(arguments)
    if options.command == "facts":
        print(json.dumps(facts(), indent=2))
        return 0
    try:
        return _run(options) if options.command == "run" else _collectives(options)
    except (CalcError, LinkError) as error:
        fail("bad_scenario", str(error))
        print(error, file=sys.stderr)
        return 2
    except UnavailableError as error:
        fail(error.code, error.message)
    except BusyError:
        fail("busy", "another benchmark is running on this machine")
    except Exception as error:
        fail(*_unexpected(error))
    return 1


def _run(options: argparse.Namespace) -> int:
    scenario = scenario_options.scenario(options)
    with only_one():
        calibrating = CALIBRATION_LIMIT_S if options.calibrate else TIME_LIMIT_S
        end_after(options.time_limit or calibrating)
        result = _measure(options, scenario)
    if options.out:
        Path(options.out).write_text(result + "\n", encoding="utf-8")
    say({"result": json.loads(result)})
    return 0


def _measure(options: argparse.Namespace, scenario: Any) -> str:
    from gpu.facts import usable_device

    usable_device()
    from gpu.worker import Wanted, Worker

    wanted = Wanted(
        scenario,
        tuple(options.backends.split(",")),
        options.memory_fraction,
        not options.no_sustained,
        not options.no_collectives,
        options.calibrate,
        options.loaded,
    )
    return Worker(wanted).run()


def _collectives(options: argparse.Namespace) -> int:
    """One rank of a run over several processes, or the start of all of them here."""
    scenario = scenario_options.scenario(options)
    if options.ranks:
        return _all_here(options, scenario)
    if not {"RANK", "WORLD_SIZE"} <= set(os.environ):
        raise UnavailableError("no_ranks", "start it with --ranks N, or under torchrun")
    end_after(options.time_limit or TIME_LIMIT_S, with_parent=options.store is not None)
    import torch.distributed as dist

    from gpu.collective_plan import calls_for
    from gpu.collectives import join, measure
    from gpu.dcp_run import measure_layers

    place = join(options.backend, options.store)
    rows = [measure(call, place) for call in calls_for(scenario, place.ranks)]
    layers: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    if options.layer or options.loaded:
        layers, skipped = measure_layers(scenario, place, options.loaded)
    if place.rank == 0:
        say({"collectives": rows, "layers": layers, "skipped": skipped})
    dist.destroy_process_group()
    return 0


def _all_here(options: argparse.Namespace, scenario: Any) -> int:
    from gpu.collectives import run_here

    arguments = scenario_options.as_arguments(scenario)
    arguments += ["--layer"] * options.layer + ["--loaded"] * options.loaded
    if options.time_limit:
        arguments += ["--time-limit", f"{options.time_limit:g}"]
    with only_one():
        say(run_here(arguments, options.ranks, options.backend))
    return 0


def _unexpected(error: Exception) -> tuple[str, str]:
    text = str(error) or type(error).__name__
    if "out of memory" in text.lower():
        return "out_of_memory", "the GPU has too little free memory for this run"
    if "illegal memory access" in text.lower():
        return "kernel_fault", "a kernel accessed memory it must not; nothing after it was measured"
    return "failed", f"{type(error).__name__}: {text}"


def _ranks(text: str) -> int:
    count = int(text)
    if not 2 <= count <= 64:
        raise argparse.ArgumentTypeError(f"{text}: 2 to 64 processes")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("facts", help="what is here, as JSON; nothing is run")
    run = commands.add_parser("run", help="measure a scenario on this GPU", allow_abbrev=False)
    scenario_options.add_scenario(run)
    run.add_argument("--backends", default="quick", help="quick, all, or ids with commas")
    run.add_argument("--memory-fraction", type=float, default=0.5, help="of the free memory")
    run.add_argument("--no-sustained", action="store_true", help="leave out the long loops")
    run.add_argument("--no-collectives", action="store_true")
    run.add_argument("--calibrate", action="store_true", help="measure further shapes too")
    run.add_argument("--out", help="write the result to this file too")
    ranks = commands.add_parser(
        "collectives", help="one rank of several, under torchrun", allow_abbrev=False
    )
    scenario_options.add_scenario(ranks)
    ranks.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    ranks.add_argument("--ranks", type=_ranks, help="start so many processes here")
    ranks.add_argument("--layer", action="store_true", help="a latent layer under DCP too")
    ranks.add_argument("--store", help="a file to meet at, instead of torchrun's address")
    for command in (run, ranks):
        command.add_argument(
            "--loaded", action="store_true", help="that layer beside the expert all-to-all too"
        )
        command.add_argument("--time-limit", type=float, help="seconds; 90, calibrating 240")
        command.add_argument("--json", action="store_true", help="the only form there is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
