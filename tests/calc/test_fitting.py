"""What would fit, and a log's inputs as fields."""

from __future__ import annotations

from dataclasses import replace

from calc.fitting import by_engine, longest_alone, ways_to_hold_weights
from calc.log_inputs import inputs_of, preset_of
from calc.logs import read_log
from calc.reconcile import reconcile
from calc.report import evaluate
from calc.scenario import Scenario
from tests.calc.test_logs import KIMI, QWEN


def test_the_smallest_layout_that_holds_the_weights_is_found() -> None:
    scenario = Scenario("llama-3.1-70b", gpu="h100")
    assert evaluate(scenario).engine.budget.short_bytes > 0
    ways = ways_to_hold_weights(scenario)
    assert [way.changes for way in ways] == [{"tp": 2}, {"pp": 2}]
    for way in ways:
        report = evaluate(replace(scenario, **way.changes))
        assert report.engine.budget.short_bytes == 0
        assert min(report.engine.budget.bytes) == way.budget_bytes
        assert report.scenario.layout.world_size == way.ranks
        assert report.engine.view is not None
        assert way.max_context == report.engine.view.max_context
    # half of 141.1 GB is 65.7 GiB, and 0.92 x 79.18 GiB less 3.5 GiB is 69.3 GiB
    assert ways[0].budget_bytes >> 30 == 3
    smaller = ways_to_hold_weights(replace(scenario, gpu="l40s"))
    assert [way.changes for way in smaller] == [{"tp": 4}, {"pp": 4}]


def test_a_larger_model_on_one_gpu_may_have_no_way_by_pipeline_alone() -> None:
    assert ways_to_hold_weights(Scenario("kimi-k3", gpu="l4")) == ()


def test_the_longest_request_alone_fits_and_one_block_more_does_not() -> None:
    scenario = Scenario("llama-3.1-8b", context=131072, batch=64, kv_cache_memory_gib=4)
    report = evaluate(scenario)
    longest = longest_alone(report)
    # 2 MiB a block of 16 tokens, one of 2,048 blocks is the null block
    assert longest == 2047 * 16
    alone = replace(scenario, batch=1)
    for context, fits in ((longest, True), (longest + 1, False)):
        view = evaluate(replace(alone, context=context)).engine.view
        assert view is not None
        assert view.fits is fits
    assert by_engine(evaluate(alone)) == (0, longest)


def test_a_log_sets_fields_and_its_reasons_do_too() -> None:
    log = KIMI + "INFO gpu_memory_utilization=0.85\n"
    found = reconcile(read_log(log), Scenario("kimi-linear-48b"))
    made = inputs_of(found)
    assert (made["tp"], made["context"], made["kv_cache_memory_gib"]) == (2, 120000, 2.3)
    assert (made["cache_memory"], made["gpu_memory_utilization"]) == ("typed", 0.85)
    assert made["prefix_caching"] == "off"  # the reason found
    assert "kernel_block" not in made
    Scenario("kimi-linear-48b", **made)


def test_what_a_log_states_about_prefix_caching_is_a_word_here() -> None:
    made = inputs_of(reconcile(read_log(QWEN), Scenario("qwen3.5-27b", prefix_caching="on")))
    assert made["prefix_caching"] == "off"


def test_values_that_no_field_takes_are_left_out() -> None:
    log = QWEN + "INFO Available KV cache memory: 0.00 GiB\n"
    made = inputs_of(reconcile(read_log(log), Scenario("qwen3.5-27b")))
    assert "kv_cache_memory_gib" not in made


def test_a_model_is_known_by_its_name() -> None:
    assert preset_of("Qwen/Qwen3.5-27B") == "qwen3.5-27b"
    assert preset_of("meta-llama/Meta-Llama-3.1-8B-Instruct/") == "llama-3.1-8b"
    assert preset_of("deepseek-ai/DeepSeek-V3.2-Exp") == "deepseek-v3.2"
    assert preset_of("some/thing") is None
