"""What one rank works on in a scenario, and the least time that takes. No torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from calc.collectives import Collective
from calc.presets import preset_ids
from calc.report import evaluate
from calc.scenario import Scenario
from gpu.collective_plan import calls_for, scenario_calls
from gpu.floors import Ceilings, attention_floor, state_floor, verdict
from gpu.shapes import AttentionShape, plan, tile_rows
from gpu.stages import latent_stages

ROOT = Path(__file__).resolve().parents[2]
H200 = Ceilings(read=4.606e12, copy=4.28e12, gemm=811e12)
K3 = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=2**20)


def test_a_dcp_rank_has_all_heads_and_an_eighth_of_the_tokens() -> None:
    (shape,) = plan(K3).attention
    assert (shape.kind, shape.layers, shape.heads, shape.kv_heads) == ("mla", 24, 96, 1)
    assert (shape.tokens, shape.k_dim, shape.v_dim) == (131_072, 576, 512)
    assert shape.kv_bytes == 64 * 131_072 * 1152
    assert shape.flops == 64 * 96 * 131_072 * 2 * (576 + 512)


def test_a_tp_rank_has_its_own_heads_and_all_tokens() -> None:
    (shape,) = plan(Scenario("kimi-k3", tp=8, batch=8, context=2**20)).attention
    assert (shape.heads, shape.tokens) == (12, 2**20)
    assert shape.scale == pytest.approx(192**-0.5)


def test_tokens_are_whole_pages_and_what_was_wanted_is_kept() -> None:
    (shape,) = plan(Scenario("kimi-k3", tp=8, dcp=8, context=1_000_000)).attention
    assert (shape.tokens, shape.wanted_tokens) == (124_992, 125_000)


def test_a_state_is_split_by_heads() -> None:
    (state,) = plan(K3).states
    assert (state.kind, state.layers, state.heads, state.element_bytes) == ("kda", 69, 12, 4)
    assert state.state_bytes == 64 * 12 * 128 * 128 * 4


def test_windows_are_plain_decodes_over_the_window() -> None:
    whole, window = plan(Scenario("gpt-oss-120b", tp=8, batch=64, context=32_768)).attention
    assert (whole.tokens, window.tokens, window.k_dim) == (32_768, 128, 64)
    assert (window.heads, window.kv_heads, window.group) == (8, 1, 8)


@pytest.mark.parametrize("preset", preset_ids())
def test_every_preset_has_a_plan_whose_bytes_are_those_of_the_calculator(preset: str) -> None:
    scenario = Scenario(preset, batch=4, context=8192)
    made = plan(scenario)
    report = evaluate(scenario)
    assert made.attention or made.states or made.skipped
    predicted = {
        (part.store.kind, part.layers): part.per_request.value * 4 // part.layers
        for part in report.cache.stage.components
    }
    for shape in made.attention:
        if "sparse_rows" in {skipped.code for skipped in made.skipped}:
            assert shape.tokens < 8192  # chosen ones, not the cache
        elif (shape.kind, shape.layers) in predicted and shape.tokens == shape.wanted_tokens:
            assert shape.kv_bytes == predicted[shape.kind, shape.layers]


def test_a_sparse_layer_reads_the_tokens_its_indexer_chose() -> None:
    made = plan(Scenario("deepseek-v3.2", tp=8, batch=64, context=131_072))
    (shape,) = made.attention
    assert (shape.tokens, shape.heads) == (2048, 16)
    assert {skipped.what: skipped.code for skipped in made.skipped} == {
        "mla": "sparse_rows",
        "indexer": "no_kernel",
    }
    short = plan(Scenario("deepseek-v3.2", tp=8, batch=64, context=1024))
    assert short.attention[0].tokens == 1024
    assert [skipped.what for skipped in short.skipped] == ["indexer"]


@pytest.mark.parametrize(
    ("preset", "what", "code"),
    [
        ("falcon-mamba-7b", "mamba1", "no_kernel"),
        ("deepseek-v4-pro", "compressed_latent", "no_kernel"),
        ("kimi-k3", "kda", "convolution"),
    ],
)
def test_what_has_no_kernel_here_is_named(preset: str, what: str, code: str) -> None:
    assert (what, code) in {(one.what, one.code) for one in plan(Scenario(preset)).skipped}


def test_the_cache_format_measured_is_named_where_the_scenario_has_another() -> None:
    skipped = plan(Scenario("kimi-k3", tp=8, kv_dtype="fp8")).skipped
    assert "the scenario keeps fp8" in skipped[0].reason


def latent(heads: int, tokens: int = 131_072) -> AttentionShape:
    return AttentionShape("mla", 1, 64, tokens, heads, 1, 576, 512, True, 192**-0.5, tokens)


@pytest.mark.parametrize(
    ("heads", "milliseconds", "side"),
    [(12, 2.098, "memory"), (96, 2.160, "compute"), (128, 2.880, "compute")],
)
def test_floors_of_latent_attention_on_an_h200(heads: int, milliseconds: float, side: str) -> None:
    """Published groundwork: 64 requests of 131,072 tokens, ceilings 4.606 TB/s and 811 TFLOP/s."""
    floor = attention_floor(latent(heads), H200)
    assert floor.us / 1e3 == pytest.approx(milliseconds, rel=2e-3)
    assert floor.side == side


def test_96_heads_cost_the_matrix_units_as_much_as_128() -> None:
    assert attention_floor(latent(96), H200).tile_us == attention_floor(latent(128), H200).tile_us
    assert [tile_rows(rows) for rows in (1, 16, 17, 64, 65)] == [16, 16, 64, 64, 128]


def test_a_state_is_read_and_written() -> None:
    (state,) = plan(K3).states
    assert state_floor(state, H200).us == pytest.approx(2 * state.state_bytes / 4.28e6, rel=0.02)


def test_a_short_kernel_gets_no_fraction() -> None:
    floor = attention_floor(latent(12, 64), H200)
    assert floor.fraction(5.0) is None
    assert verdict(floor.fraction(5.0)) == "launch"
    assert verdict(0.3) == "kernel_limited"


def test_collectives_have_the_sizes_of_the_traffic_view() -> None:
    """K3, 64 tokens, tp = dcp = 8: the gathered query is 64 x 96 x 576 in bf16."""
    calls = {call.name: call for call in scenario_calls(K3)}
    query = calls["mla.gather_query"]
    assert (query.collective, query.payload_bytes) == (Collective.ALL_GATHER, 7_077_888)
    assert query.bus_rate(1e-3) == pytest.approx(7_077_888e3 * 7 / 8)
    sizes = {(c.collective, c.payload_bytes) for c in scenario_calls(K3)}
    assert (Collective.REDUCE_SCATTER, 6_291_456) in sizes


def test_a_payload_is_cut_to_equal_parts_among_fewer_ranks() -> None:
    for call in calls_for(K3, 3):
        assert call.ranks == 3
        assert call.elements % 3 == 0


def test_one_rank_has_no_collectives() -> None:
    assert scenario_calls(Scenario("llama-3.1-8b")) == []


def test_stages_of_a_dcp_rank() -> None:
    stages = {stage.name: stage for stage in latent_stages(K3)}
    assert stages["o_proj"].moved_bytes > 12 * 128 * 7168 * 2
    assert stages["gather_query"].moved_bytes == 2 * 64 * 96 * 576 * 2
    assert "gather_query" not in [stage.name for stage in latent_stages(Scenario("kimi-k3", tp=8))]
    assert latent_stages(Scenario("llama-3.1-8b")) == []


def test_shapes_and_the_command_line_load_without_torch() -> None:
    modules = "gpu.shapes, gpu.floors, gpu.stages, gpu.collective_plan, gpu.__main__, ui.bench"
    code = f"import sys, {modules}; print('torch' in sys.modules, 'triton' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False", "False"]
