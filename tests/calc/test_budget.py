"""From a GPU to a cache budget, and what a budget holds beside equal requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from calc.answers import tokens_with_prefix
from calc.budget import requested_memory
from calc.errors import CalcError
from calc.hardware import hardware_ids, load_hardware, read_hardware
from calc.report import evaluate
from calc.scenario import Scenario
from calc.units import GIB

CARDS = (
    "a100-40gb a100-80gb h100 h200 h20 b200 b300 gb200 gb300 l40s rtx-pro-6000 l4 a10g "
    "mi300x mi325x mi355x"
)


def test_every_card_is_described_with_sources() -> None:
    assert set(hardware_ids()) == set(CARDS.split())
    for gpu in hardware_ids():
        card = load_hardware(gpu)
        figures = [card.memory_rate, card.link.rate, *card.flops.values()]
        assert card.memory_bytes.source
        assert all(figure.source and figure.basis for figure in figures)
        assert card.flops["bf16"].value > 1e13
        assert 20 * GIB < card.memory_bytes.value < 300 * GIB


def test_measured_and_published_memory_is_exact() -> None:
    # cuMemGetInfo on the card itself; rocm-smi
    assert load_hardware("h200").memory_bytes.value == 150_109_880_320
    assert load_hardware("h200").memory_bytes.basis == "measured"
    assert load_hardware("mi300x").memory_bytes.value == 206_141_652_992


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("basis: measured", "basis: guessed"), "memory_bytes.basis"),
        (("value: 150109880320", "value: -1"), "memory_bytes.value"),
        (("maker: nvidia", "maker: acme"), "maker"),
        (("gpus_per_node: 8", "gpus: 8"), "gpus_per_node"),
        (("id: h200", "id: other"), "id"),
        (("id: h200", "id: [h200"), "yaml"),
    ],
)
def test_a_faulty_card_is_refused_by_field(
    tmp_path: Path, change: tuple[str, str], field: str
) -> None:
    text = Path("presets/hardware/h200.yaml").read_text(encoding="utf-8")
    path = tmp_path / "h200.yaml"
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(CalcError) as caught:
        read_hardware(path)
    assert caught.value.values["field"] == field
    assert "h200.yaml" in str(caught.value)


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(CalcError, match="gpu: "):
        load_hardware("h300")
    with pytest.raises(CalcError, match="gpu: "):
        Scenario("kimi-k3", gpu="h300")


def test_vllm_claims_a_share_and_takes_off_what_is_no_cache() -> None:
    report = evaluate(Scenario("llama-3.1-8b", gpu="h200"))
    weights = report.engine.weights.total.value
    claimed = requested_memory(150_109_880_320, 0.92)
    assert report.fit.budget_bytes == claimed - weights - int(3.5 * GIB)
    assert "weights" not in report.to_json()["not_counted"]
    assert report.engine.budget.stages[0].status.value == "estimate"


def test_sglang_keeps_a_reserve_or_takes_a_fraction() -> None:
    auto = evaluate(Scenario("llama-3.1-8b", gpu="h200", engine="sglang"))
    weights = auto.engine.weights.total.value
    reserve = int((0.5 + 8192 * 1.5 / 1024 + 256 * 2 / 1024 + 1 / 8) * GIB)
    assert auto.fit.budget_bytes == 150_109_880_320 - reserve - weights - GIB // 2
    fixed = evaluate(Scenario("llama-3.1-8b", gpu="h200", engine="sglang", mem_fraction_static=0.5))
    assert fixed.fit.budget_bytes == 150_109_880_320 // 2 - weights - GIB // 2


def test_a_typed_budget_overrules_the_card() -> None:
    typed = evaluate(
        Scenario("llama-3.1-8b", gpu="h200", cache_memory="typed", kv_cache_memory_gib=10.0)
    )
    assert typed.fit.budget_bytes == 10 * GIB
    assert typed.engine.budget.typed


def test_weights_that_do_not_fit_say_by_how_much() -> None:
    report = evaluate(Scenario("kimi-k3", tp=8, gpu="h200", ep="on"))
    found = report.to_json()["capacity"]
    assert (found["fits"], found["kv_budget_bytes_per_rank"], found["max_requests"]) == (
        False,
        0,
        0,
    )
    short = found["budget"]["short_bytes_per_rank"]
    parts = found["budget"]["parts"]
    assert short == sum(parts.values()) - 2 * parts["requested_bytes"]
    assert found["blocks"]["short_bytes_per_rank"] == found["blocks"]["needed_bytes_per_rank"]


def test_each_stage_has_the_budget_that_its_weights_leave() -> None:
    report = evaluate(Scenario("llama-3.1-70b", tp=4, pp=2, gpu="h100"))
    first, last = report.engine.budget.bytes
    held = report.engine.weights.stage_bytes
    assert first + held[0] == last + held[1]
    assert report.fit.budget_bytes == min(first, last)


def test_a_shared_prefix_is_kept_once() -> None:
    report = evaluate(Scenario("llama-3.1-8b", context=10_000, batch=50, shared_prefix=8_000))
    shared = report.engine.prefix
    assert shared is not None
    assert shared.tokens.value == 8_000 + 50 * 2_000 == tokens_with_prefix(8_000, 10_000, 50)
    assert shared.batch.value == 131_072 * shared.tokens.value
    assert shared.max_requests is not None
    assert shared.max_requests.value == (80 * GIB - 131_072 * 8_000) // (131_072 * 2_000)
    assert shared.shared_blocks is not None
    assert shared.shared_blocks.value == 500
    assert shared.max_requests_engine is not None
    assert shared.max_requests_engine.value == (40_960 - 1 - 500) // 125
    assert evaluate(Scenario("llama-3.1-8b")).engine.prefix is None


def test_a_prefix_of_everything_leaves_nothing_of_ones_own() -> None:
    shared = evaluate(Scenario("llama-3.1-8b", context=16, shared_prefix=16)).engine.prefix
    assert shared is not None
    assert (shared.own.value, shared.max_requests) == (0, None)


def test_a_prefix_longer_than_the_context_is_refused() -> None:
    with pytest.raises(CalcError) as caught:
        evaluate(Scenario("llama-3.1-8b", context=16, shared_prefix=17))
    assert (caught.value.code, caught.value.field) == ("prefix_context", "shared_prefix")


def test_states_and_windows_are_not_shared() -> None:
    report = evaluate(Scenario("kimi-k3", tp=8, context=1000, batch=2, shared_prefix=1000))
    shared = report.engine.prefix
    assert shared is not None
    assert shared.own.value == report.cache.stage.state_per_request.value


def test_a_mix_of_lengths_is_added_up() -> None:
    report = evaluate(Scenario("llama-3.1-8b", lengths="4096x30-131072x2"))
    mix = report.engine.mix
    assert mix is not None
    assert (mix.requests, mix.tokens) == (32, 30 * 4096 + 2 * 131_072)
    assert mix.bytes.value == 131_072 * mix.tokens
    assert mix.blocks is not None
    assert mix.blocks.value == mix.tokens // 16
    assert (mix.fits, mix.fits_engine) == (True, True)
    small = evaluate(
        Scenario("llama-3.1-8b", lengths="4096x30-131072x2", kv_cache_memory_gib=40.0)
    ).engine.mix
    assert small is not None
    assert (small.fits, small.short_bytes) == (False, mix.bytes.value - 40 * GIB)


@pytest.mark.parametrize("bad", ["12-", "x3", "4096x0", "0", "1.5", "a", "-1", "1-" * 100 + "1"])
def test_what_is_no_list_is_refused(bad: str) -> None:
    for field in ("lengths", "pp_layers"):
        with pytest.raises(CalcError) as caught:
            Scenario("llama-3.1-8b", **{field: bad})  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.field) == ("not_a_choice", field)


@pytest.mark.parametrize("cut", ["16", "16-17", "16-8-8"])
def test_a_cut_that_is_none_is_refused(cut: str) -> None:
    with pytest.raises(CalcError) as caught:
        evaluate(Scenario("llama-3.1-8b", pp=2, pp_layers=cut))
    assert (caught.value.code, caught.value.field) == ("pp_cut", "pp_layers")
    assert evaluate(Scenario("llama-3.1-8b", pp=2, pp_layers="2x16")).fit.fits


def test_attention_dp_serves_as_many_requests_on_each_replica() -> None:
    one = evaluate(Scenario("deepseek-v3", tp=1, dp=1)).to_json()["capacity"]
    eight = evaluate(Scenario("deepseek-v3", tp=1, dp=8, ep="on")).to_json()["capacity"]
    assert eight["max_requests"] == one["max_requests"]
    assert eight["max_requests_deployment"] == 8 * one["max_requests"]
