"""The three steps of latent attention, and the pipeline of a decode step, by plain arithmetic."""

from __future__ import annotations

import pytest

from calc.layers import LatentAttention
from calc.learn.pipeline import COMPONENTS, pipeline
from calc.learn.story import story
from calc.presets import load_preset
from calc.report import evaluate
from calc.scenario import Scenario


def latent(preset: str) -> LatentAttention:
    return load_preset(preset).latent_mixers[0]


def test_deepseek_v3_keeps_71_times_fewer_elements_when_k_is_counted_192_wide() -> None:
    """128 heads x (192 + 128) = 40,960 elements against 512 + 64 (DeepSeek-V2, section 2.1)."""
    told = story(latent("deepseek-v3"), Scenario("deepseek-v3").layout)
    assert told.ratio.value == 40_960 / 576
    written, compressed, absorbed, striped = told.told
    assert written.kept.value == 128 * 320 * 2
    assert compressed.kept.value == absorbed.kept.value == striped.kept.value == 1152


def test_kimi_k3_keeps_53_times_fewer() -> None:
    """96 x (192 + 128) / 576 = 53.3; counting a K of 128 twice gives the 42.7 often quoted."""
    told = story(latent("kimi-k3"), Scenario("kimi-k3", tp=8).layout)
    assert told.ratio.value == pytest.approx(53.33, abs=0.01)
    assert pytest.approx(42.67, abs=0.01) == 2 * 96 * 128 / 576


def test_absorption_takes_the_up_projection_out_of_every_cached_token() -> None:
    """Kimi K3 at tp = 8: 12 heads a rank, latent 512, rotary 64, K without rotation 128, V 128."""
    told = story(latent("kimi-k3"), Scenario("kimi-k3", tp=8, dcp=8).layout).told
    by = {one.name: one for one in told}
    assert by["written"].each.value == 2 * 12 * (192 + 128)
    assert by["compressed"].each.value == 2 * 12 * 320 + 2 * 12 * 512 * 256
    assert by["absorbed"].each.value == 2 * 12 * (512 + 64 + 512)
    once = by["absorbed"].once
    assert once is not None
    assert once.value == 2 * 12 * 512 * 256
    assert by["striped"].kept.value == 1152 / 8
    assert by["striped"].each.value == by["absorbed"].each.value


@pytest.mark.parametrize(
    ("scenario", "count"),
    [
        (Scenario("kimi-k3", tp=8, dcp=8, batch=64, engine="sglang", dcp_backend="fi_a2a",
                  query_replication="off"), 8),
        (Scenario("kimi-k3", tp=8, dcp=8, batch=64), 8),
        (Scenario("deepseek-v3", tp=8), 6),
        (Scenario("llama-3.1-8b", tp=16, dcp=2), 6),
        (Scenario("falcon-mamba-7b"), 0),
    ],
)  # fmt: skip
def test_the_pipeline_is_the_step_s_own_stages(scenario: Scenario, count: int) -> None:
    report = evaluate(scenario)
    boxes = pipeline(report)
    assert len({box.number for box in boxes}) == count
    assert all(box.stage in report.step.stages for box in boxes)
    assert all(set(box.components) == {"vllm", "sglang"} for box in boxes)


def test_every_component_belongs_to_a_stage_that_some_step_has() -> None:
    names = set()
    for made in (
        Scenario("kimi-k3", tp=8, dcp=8),
        Scenario("kimi-k3", tp=8, dcp=8, dcp_backend="a2a"),
        Scenario("llama-3.1-8b", tp=16, dcp=2),
    ):
        names |= {stage.name for stage in evaluate(made).step.stages}
    assert set(COMPONENTS) <= names
