"""Time of a full engine view for every preset: ``python tests/benchmarks/bench_engine.py``.

The goal is below 5 ms; the worst is printed last.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from calc.capacity import cache
from calc.engine_cache import cache_settings, conv_drafts
from calc.engines import ENGINES
from calc.engines.sglang_pool import pool_view
from calc.engines.vllm_blocks import block_view, plan
from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.layers import Sharding
from calc.presets import preset_ids
from calc.scenario import Scenario
from calc.units import GIB

REPEATS = 5


def seconds(scenario: Scenario) -> float:
    """The best of a few runs: pages, groups, blocks and waste, from the stores on."""
    model, settings = scenario.model_spec, cache_settings(scenario)
    place = Sharding(
        scenario.tp,
        scenario.dcp,
        ENGINES[scenario.engine],
        KV_FORMATS[scenario.kv_dtype],
        conv_drafts=conv_drafts(scenario),
    )
    held = cache(model, scenario.layout, place, scenario.context, 1)
    budgets = [80 * GIB] * scenario.pp
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        if scenario.engine == "vllm":
            made = plan(model, place, settings, model.stage_sizes(scenario.pp))
            block_view(made, budgets, [stage.per_request for stage in held.stages], 2**40)
        else:
            pool_view(held.stages, place, settings, budgets, 2**40)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    worst = (0.0, "")
    for engine in ENGINES:
        for preset in preset_ids():
            try:
                taken = seconds(Scenario(preset, engine=engine, context=131072))
            except CalcError as error:
                sys.stdout.write(f"{engine:8} {preset:24} {error}\n")
                continue
            sys.stdout.write(f"{engine:8} {preset:24} {taken * 1e3:6.2f} ms\n")
            worst = max(worst, (taken, f"{engine} {preset}"))
    sys.stdout.write(f"worst: {worst[1]}, {worst[0] * 1e3:.2f} ms\n")


if __name__ == "__main__":
    main()
