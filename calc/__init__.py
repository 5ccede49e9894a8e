"""Capacity and communication of LLM inference, with the arithmetic behind every number.

For use from a notebook or a program; the names below are the public ones.

>>> import calc
>>> made = calc.Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131072)
>>> report = calc.evaluate(made)
>>> report.cache.stage.per_request.value, report.fit.max_requests.value
(509156352, 168)

Every number is an Item that knows its formula and its parts:

>>> [part.key for part in report.cache.stage.per_request.parts()][:2]
['kda.state.request', 'mla.latent.request']

``times`` estimates a step's duration, ``plan`` ranks all legal layouts, ``sweep_over``
computes an output over ranges, and a scenario travels as a link:

>>> calc.times(calc.evaluate(calc.Scenario("deepseek-v3", tp=8, gpu="h200"))).decode.total.unit
'µs'
>>> best = calc.plan(calc.Scenario("deepseek-v3", gpu="h200"), gpus=8, objective="context").winner
>>> best.scenario.layout.world_size
8
>>> calc.sweep_over(made, "request_bytes", [calc.read_axis("dcp=1,2,4")]).values.tolist()
[3680050176, 1868110848, 962141184]
>>> link = calc.query_string(calc.encode(made))
>>> calc.decode_query(link).scenario == made
True
>>> calc.launch_command(made).version
'0.33'

Nothing is loaded before it is asked for, so ``import calc`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.errors import CalcError as CalcError
    from calc.export import csv_text as csv_text
    from calc.export import markdown as markdown
    from calc.launch import launch_command as launch_command
    from calc.link import decode_query as decode_query
    from calc.link import encode as encode
    from calc.link import query_string as query_string
    from calc.planner import Limits as Limits
    from calc.planner import plan as plan
    from calc.presets import load_preset as load_preset
    from calc.presets import preset_ids as preset_ids
    from calc.report import Report as Report
    from calc.report import evaluate as evaluate
    from calc.scenario import Scenario as Scenario
    from calc.sweep import read_axis as read_axis
    from calc.sweep import sweep_over as sweep_over
    from calc.timing.report import times as times

PUBLIC = {
    "CalcError": "errors",
    "Limits": "planner",
    "Report": "report",
    "Scenario": "scenario",
    "csv_text": "export",
    "decode_query": "link",
    "encode": "link",
    "evaluate": "report",
    "launch_command": "launch",
    "load_preset": "presets",
    "markdown": "export",
    "plan": "planner",
    "preset_ids": "presets",
    "query_string": "link",
    "read_axis": "sweep",
    "sweep_over": "sweep",
    "times": "timing.report",
}
"""Public names, and the module of ``calc`` that each one is from.

A name must not be that of a module: importing the module would hide it.
"""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(PUBLIC)
