"""What engines really printed at start-up comes out of the inputs that decide it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from calc.capacity import StageCache, stage_cache
from calc.engines import ENGINES
from calc.engines.settings import CacheSettings
from calc.engines.sglang_pool import PoolView, pool_view, printed_sizes
from calc.engines.vllm_blocks import BlockView, block_view, plan
from calc.formats import KV_FORMATS
from calc.layers import Sharding
from calc.model import ModelSpec, read_model
from calc.presets import load_preset
from calc.units import GIB

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "engine_logs.toml").read_text(encoding="utf-8")
)["case"]
SETTINGS = (
    "block_size",
    "kernel_block",
    "prefix_caching",
    "checkpoint_slots",
    "in_flight",
    "speculative_tokens",
)
LONGEST = 2**31


def model_of(case: dict[str, Any]) -> ModelSpec:
    if case.get("preset"):
        return load_preset(case["preset"])
    layers = []
    for given in case["layers"]:
        widths = dict(given)
        count, index = widths.pop("count"), widths.pop("index_dim", None)
        mixers = [widths]
        if index:
            mixers.append({"kind": "indexer", "heads": 64, "index_dim": index, "top_k": 2048})
        layers.append({"count": count, "mixers": tuple(mixers)})
    described = {
        "id": "custom",
        "name": case["name"],
        "hidden_size": 1024,
        "vocab_size": 1024,
        "layers": tuple(layers),
    }
    return read_model(described)


def parts(case: dict[str, Any]) -> tuple[ModelSpec, Sharding, CacheSettings, StageCache]:
    model = model_of(case)
    place = Sharding(
        case.get("tp", 1),
        case.get("dcp", 1),
        ENGINES[case.get("engine", "vllm")],
        KV_FORMATS[case.get("kv_dtype", "bf16")],
    )
    given = {name: case[name] for name in SETTINGS if name in case}
    settings = CacheSettings(max_model_len=case["max_model_len"], **given)
    return model, place, settings, stage_cache(model.layers, place, case["max_model_len"])


def vllm_view(case: dict[str, Any], gib: float) -> BlockView:
    model, place, settings, stage = parts(case)
    made = plan(model, place, settings, [model.layer_count])
    budget = int(gib * GIB)
    if "blocks" in case:
        budget = case["blocks"] * int(made.block_bytes[0].value)
    view = block_view(made, [budget], [stage.per_request], LONGEST)
    assert view is not None
    return view


def possible_gib(case: dict[str, Any]) -> list[float]:
    """The values that two printed decimals may stand for."""
    gib = case.get("gib", 0.0)
    return [gib + step / 1000 for step in range(-5, 6)] if gib else [gib]


def printed(view: BlockView) -> dict[str, float]:
    return {
        "blocks": view.pool_blocks.value,
        "request_blocks": view.request_blocks.value,
        "tokens": view.tokens.value,
        "tokens_by_group": view.tokens_by_group.value,
        "concurrency": round(view.concurrency.value, 2),
        "request_gib": round(view.allocated.value / GIB, 2),
        "max_context": view.max_context or LONGEST,
        "aligned_block": view.alignment.block.value if view.alignment else 0,
        "padding_layers": view.padding_layers,
        "fits": view.fits,
    }


VLLM_CASES = [case for case in CASES if case.get("engine", "vllm") == "vllm"]
SGLANG_CASES = [case for case in CASES if case.get("engine") == "sglang"]


@pytest.mark.parametrize("case", VLLM_CASES, ids=lambda case: case["name"])
def test_vllm_printed_what_the_inputs_give(case: dict[str, Any]) -> None:
    views = [printed(vllm_view(case, gib)) for gib in possible_gib(case)]
    for name, value in case["expect"].items():
        found = [view[name] for view in views]
        slack = 0.006 if name == "concurrency" else 0
        # published to four digits, or rounded to a block that no rank is short of
        slack = max(slack, value * 5e-4 if name in ("tokens", "max_context") else 0)
        assert min(found) - slack <= value <= max(found) + slack, (name, value, found)


@pytest.mark.parametrize("case", SGLANG_CASES, ids=lambda case: case["name"])
def test_sglang_printed_what_the_inputs_give(case: dict[str, Any]) -> None:
    _, place, settings, stage = parts(case)

    def view(budget: int) -> PoolView:
        made = pool_view([stage], place, settings, [budget], LONGEST)
        assert made is not None
        return made

    expected = case["expect"]
    if "pool_tokens" in expected:
        row = sum(part.store.bytes.value * part.layers for part in stage.components)
        budgets = [case["pool_rows"] * row] if "pool_rows" in case else []
        budgets = budgets or [int(gib * GIB) for gib in possible_gib(case)]
        sizes = [pool.size.value for one in map(view, budgets) if (pool := one.pool("tokens"))]
        assert min(sizes) <= expected["pool_tokens"] <= max(sizes)
    if "fits" in expected:
        assert view(case["pool_rows"] * row).fits is expected["fits"]
    sizes_printed = printed_sizes(stage, case.get("slots", 0), case.get("tokens", 0))
    for name in ("recurrent_gib", "k_gib"):
        if name in expected:
            assert round(sizes_printed[name].value / GIB, 2) == expected[name]
