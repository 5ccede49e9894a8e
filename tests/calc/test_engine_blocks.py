"""The engines' own accounts: aligned blocks, groups, waste that adds up, stages, pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calc.capacity import CONTEXT_LIMIT
from calc.engine_cache import place_of, vllm_plan
from calc.engines.settings import CacheSettings
from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView, Plan, longest_request
from calc.engines.vllm_groups import approximate_gcd, group_size
from calc.engines.vllm_request import blocks_rule
from calc.items import walk
from calc.layers import Growth, SlidingWindowAttention
from calc.presets import preset_ids
from calc.report import Report, evaluate
from calc.scenario import Scenario
from calc.units import GIB
from tests.calc.models import gqa, layers, model


def blocks(preset: str = "custom", **fields: Any) -> BlockView:
    view = evaluate(Scenario(preset, **fields)).engine.view
    assert isinstance(view, BlockView)
    return view


def pools(preset: str = "custom", **fields: Any) -> PoolView:
    view = evaluate(Scenario(preset, engine="sglang", **fields)).engine.view
    assert isinstance(view, PoolView)
    return view


def waste(view: BlockView | PoolView, cause: str) -> int:
    return int(next(item.value for item in view.wastes if item.key == f"waste.{cause}"))


@pytest.mark.parametrize(
    ("tp", "block", "padding"),
    [(1, 5760, 1.9), (2, 2944, 4.2), (4, 1536, 8.7), (8, 768, 8.7), (16, 384, 8.7)],
)
def test_kimi_k3_aligns_its_latent_blocks_to_its_states(
    tp: int, block: int, padding: float
) -> None:
    aligned = blocks("kimi-k3", tp=tp).alignment
    assert aligned is not None
    assert aligned.block.value == block
    assert round(aligned.padding.value, 1) == padding


def test_kimi_k3_makes_four_groups_of_24_with_three_padding_layers() -> None:
    view = blocks("kimi-k3", tp=8)
    assert [(group.kind, group.layers) for group in view.groups] == [("kda", 23)] * 3 + [
        ("mla", 24)
    ]
    assert (view.path, view.padding_layers) == ("equal", 3)
    assert view.stage.block_bytes.value == 24 * 768 * 1152
    # two states, one a draft token and one for the checkpoint
    assert [group.blocks.value for group in view.groups][:3] == [3, 3, 3]
    drafting = blocks("kimi-k3", tp=8, speculative_tokens=2)
    assert [group.blocks.value for group in drafting.groups][:3] == [5, 5, 5]
    assert blocks("kimi-k3", tp=8, prefix_caching="off").groups[0].blocks.value == 1


def test_a_window_of_19_percent_is_40_percent_at_admission() -> None:
    view = blocks("swa-48", context=32768, max_num_batched_tokens=8192, async_scheduling="off")
    everything = 48 * 32768 * 8 * 256 * 2
    assert round(100 * view.formula.value / everything, 1) == 19.3
    assert round(100 * view.allocated.value / everything, 1) == 40.1
    assert waste(view, "admission_reserve") > waste(view, "last_block") > 0
    assert blocks("swa-48", context=32768, hybrid_kv_manager="off").allocated.value == everything


@pytest.mark.parametrize("context", [1, 1000, 32768])
@pytest.mark.parametrize("preset", preset_ids())
def test_formula_and_waste_are_what_vllm_allocates(preset: str, context: int) -> None:
    for fields in ({}, {"prefix_caching": "off"}, {"hybrid_kv_manager": "off"}):
        view = blocks(preset, context=context, **fields)
        assert view.formula.value + sum(item.value for item in view.wastes) == view.allocated.value
        assert all(item.value >= 0 for item in view.wastes)


@pytest.mark.parametrize("preset", preset_ids())
def test_formula_and_waste_are_what_sglang_allocates(preset: str) -> None:
    view = pools(preset, context=5000, block_size=64)
    assert view.formula.value + sum(item.value for item in view.wastes) == view.allocated.value
    assert all(item.value >= 0 for item in view.wastes)


def test_every_figure_leads_back_to_formulas_with_a_source() -> None:
    view = blocks("kimi-k3", tp=8)
    for item in (view.tokens, view.allocated, *view.wastes):
        assert all(part.formula.source for part in walk(item))


def test_dcp_blocks_span_all_ranks() -> None:
    view = blocks("kimi-k3", tp=8, dcp=8, context=1_000_000)
    group = view.groups[-1]
    assert (group.block, group.virtual_block) == (768, 768 * 8)
    assert group.blocks.value == -(-125_000 // 768)


def test_the_null_block_counts_in_the_fit_but_not_in_the_log() -> None:
    page = 32 * 8 * 256 * 2 * 16
    gib = 129 * page / GIB
    view = blocks("llama-3.1-8b", context=2048, kv_cache_memory_gib=gib)
    assert (view.pool_blocks.value, view.request_blocks.value) == (129, 128)
    assert (view.max_requests.value, view.fits) == (1, True)
    assert view.concurrency.value == 129 / 128
    tight = blocks("llama-3.1-8b", context=2048, kv_cache_memory_gib=128 * page / GIB)
    assert (tight.max_requests.value, tight.fits, tight.short_bytes) == (0, False, page)
    assert tight.max_context == 127 * 16


def test_the_longest_request_is_exact() -> None:
    report = evaluate(Scenario("gemma-3-27b", context=8192))
    view, plan = report.engine.view, report.engine.plan
    assert isinstance(view, BlockView)
    assert plan is not None
    usable = view.pool_blocks.value - 1
    for batch in (1, 7):
        most = longest_request(plan, view.pool_blocks.value, CONTEXT_LIMIT, batch)
        assert most is not None
        assert batch * plan.request_blocks(most) <= usable < batch * plan.request_blocks(most + 1)
        assert blocks("gemma-3-27b", context=8192, batch=batch).max_context == most
    pool = pools("gemma-3-27b", batch=7, block_size=64)
    tokens = pool.pool("tokens")
    assert tokens is not None
    assert pool.max_context == tokens.size.value // 7 // 64 * 64


def test_the_stage_with_the_fewest_blocks_binds() -> None:
    """Two stages of 20 and 12 layers: the first holds fewer blocks of its memory."""
    report = evaluate(Scenario("llama-3.1-8b", pp=2, pp_layers="20-12"))
    view = report.engine.view
    assert isinstance(view, BlockView)
    assert [stage.layers for stage in view.stages] == [(0, 20), (20, 32)]
    assert view.binding == report.fit.stage == report.cache.binding == 0
    assert view.pool_blocks.value == min(stage.asked.value for stage in view.stages)
    even = evaluate(Scenario("llama-3.1-8b", pp=2)).engine.view
    assert isinstance(even, BlockView)
    assert even.pool_blocks.value == view.pool_blocks.value * 20 // 16


def test_groups_are_made_for_the_whole_model_and_cut_by_stage() -> None:
    view = blocks("kimi-k3", tp=8, pp=2)
    assert [group.layers for group in view.groups] == [23, 23, 23, 24]
    assert all(stage.block_bytes.value < 24 * 768 * 1152 for stage in view.stages)


def test_pages_that_do_not_divide_are_padded_and_those_that_do_take_more_tokens() -> None:
    def mixed(width: int) -> BlockView:
        window = SlidingWindowAttention(heads=8, kv_heads=8, k_dim=128, v_dim=128, window=128)
        spec = model(layers(4, gqa(8, 8, width)), layers(4, window))
        return blocks("custom", spec=spec, context=4096)

    doubled = mixed(64)
    assert [group.block for group in doubled.groups] == [32, 16]
    padded = mixed(96)
    assert [group.block for group in padded.groups] == [16, 16]
    assert waste(padded, "page_padding") > 0 == waste(doubled, "page_padding")


def test_group_sizes_follow_the_rarer_kind_unless_both_are_close() -> None:
    assert (group_size([13, 12]), group_size([10, 50]), group_size([24, 69])) == (13, 10, 24)
    assert approximate_gcd([11, 21, 11, 10], 11) == 11
    assert approximate_gcd([3, 1, 43], 3) == 3


def test_several_page_sizes_lie_side_by_side_where_the_layout_allows() -> None:
    view = blocks("deepseek-v4-flash")
    assert view.path == "packed"
    assert {group.growth for group in view.groups} == {"window", "growing"}


def test_sglang_has_separate_pools_for_tokens_windows_and_states() -> None:
    windowed = pools("gemma-3-27b", context=8192)
    tokens, window = windowed.pool("tokens"), windowed.pool("window")
    assert tokens is not None
    assert window is not None
    assert window.size.value == tokens.size.value * 4 // 5
    hybrid = pools("qwen3.5-27b", context=8192)
    state = hybrid.pool("state")
    assert state is not None
    assert state.request.value == 5
    assert hybrid.max_requests.value == min(pool.requests.value for pool in hybrid.pools)
    # nine parts for states beside ten for tokens
    assert state.budget.value == 80 * GIB * 9 // 19
    off = pools("qwen3.5-27b", context=8192, prefix_caching="off").pool("state")
    assert off is not None
    assert off.request.value == 1


def test_sglang_keeps_indexer_keys_whole_on_every_dcp_rank() -> None:
    """What is not striped is there once for each rank of a row's group."""
    single = pools("deepseek-v3.2", tp=8, kv_dtype="fp8").pool("tokens")
    striped = pools("deepseek-v3.2", tp=8, dcp=8, kv_dtype="fp8").pool("tokens")
    assert single is not None
    assert striped is not None
    # rounded down to pages, of 64 tokens for sparse latent attention
    assert striped.size.value // 8 == 80 * GIB // (61 * (656 + 132 * 8)) // 64 * 64
    assert single.size.value == 80 * GIB // (61 * (656 + 132)) // 64 * 64


def test_drafts_keep_states_in_sglang_and_widen_the_convolution_in_vllm() -> None:
    drafting = pools("qwen3.5-27b", speculative_tokens=3).pool("state")
    still = pools("qwen3.5-27b").pool("state")
    assert drafting is not None
    assert still is not None
    assert drafting.size.value < still.size.value
    plain = evaluate(Scenario("qwen3.5-27b")).cache.stage.state_per_request.value
    wide = evaluate(Scenario("qwen3.5-27b", speculative_tokens=3)).cache.stage
    assert wide.state_per_request.value - plain == 48 * 10240 * 3 * 2


CHANGES: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("gpu", "llama-3.1-8b", "h200", {}),
    ("gpu_memory_gib", "llama-3.1-8b", 40.0, {"gpu": "custom"}),
    ("cache_memory", "llama-3.1-8b", "typed", {"gpu": "h200"}),
    ("gpu_memory_utilization", "llama-3.1-8b", 0.8, {"gpu": "h200"}),
    ("mem_fraction_static", "llama-3.1-8b", 0.7, {"gpu": "h200", "engine": "sglang"}),
    ("activation_gib", "llama-3.1-8b", 3.0, {"gpu": "h200"}),
    ("cuda_graph_gib", "llama-3.1-8b", 3.0, {"gpu": "h200"}),
    ("communication_gib", "llama-3.1-8b", 3.0, {"gpu": "h200"}),
    ("max_num_batched_tokens", "gemma-3-27b", 2048, {"context": 65536}),
    ("async_scheduling", "gemma-3-27b", "off", {"context": 65536}),
    ("block_size", "llama-3.1-8b", 128, {"context": 1000}),
    ("prefix_caching", "kimi-k3", "off", {}),
    ("hybrid_kv_manager", "gemma-3-27b", "off", {}),
    ("swa_full_tokens_ratio", "gemma-3-27b", 0.5, {"engine": "sglang"}),
    ("mamba_full_memory_ratio", "kimi-k3", 0.5, {"engine": "sglang"}),
    ("shared_prefix", "llama-3.1-8b", 4096, {}),
    ("lengths", "llama-3.1-8b", "4096x30-131072x2", {}),
    ("pp_layers", "llama-3.1-8b", "20-12", {"pp": 2}),
]


@pytest.mark.parametrize(("name", "preset", "value", "others"), CHANGES, ids=lambda v: str(v)[:24])
def test_every_option_moves_a_figure_of_capacity(
    name: str, preset: str, value: Any, others: dict[str, Any]
) -> None:
    before = evaluate(Scenario(preset, **others)).to_json()["capacity"]
    after = evaluate(Scenario(preset, **{**others, name: value})).to_json()["capacity"]
    assert before != after


def test_settings_overrule_the_tokens_in_flight() -> None:
    assert CacheSettings(1, in_flight=7).tokens_in_flight(4) == 7
    made = CacheSettings(1, max_num_batched_tokens=100).tokens_in_flight(4)
    assert not isinstance(made, int)
    assert made.value == 500


def test_the_whole_report_takes_under_five_milliseconds() -> None:
    """As a guard against a slip by an order of magnitude; the benchmark has the figures."""
    import time

    scenario = Scenario("kimi-k3", tp=8, dcp=8, context=100_000)
    reports: list[Report] = []
    start = time.perf_counter()
    for context in range(100_000, 100_020):
        reports.append(evaluate(Scenario("kimi-k3", tp=8, dcp=8, context=context)))
    assert (time.perf_counter() - start) / 20 < 0.05
    assert evaluate(scenario).engine.view is not None


def plain_search(made: Plan, pool_blocks: int, longest: int, batch: int) -> int | None:
    """The most tokens by halving alone, as the definition says."""
    low, high = 0, longest + 1
    while high - low > 1:
        middle = (low + high) // 2
        if batch * made.request_blocks(middle) <= pool_blocks - 1:
            low = middle
        else:
            high = middle
    return None if low == longest else low


@given(
    preset=st.sampled_from(
        ["kimi-k3", "gemma-3-27b", "gpt-oss-20b", "llama-4-scout", "deepseek-v4-flash", "bamba-9b"]
    ),
    tp=st.sampled_from([1, 8]),
    dcp=st.sampled_from([1, 8]),
    batched=st.integers(1, 20_000),
    caching=st.sampled_from(["on", "off"]),
    hybrid=st.sampled_from(["on", "off"]),
    pool=st.one_of(st.integers(0, 3000), st.integers(0, 2**40)),
    longest=st.one_of(st.integers(1, 50_000), st.just(CONTEXT_LIMIT)),
    batch=st.integers(1, 300),
)
def test_the_longest_request_is_the_one_that_halving_finds(
    preset: str,
    tp: int,
    dcp: int,
    batched: int,
    caching: str,
    hybrid: str,
    pool: int,
    longest: int,
    batch: int,
) -> None:
    assume(dcp <= tp and (dcp == 1 or preset == "kimi-k3"))
    scenario = Scenario(
        preset,
        tp=tp,
        dcp=dcp,
        max_num_batched_tokens=batched,
        prefix_caching=caching,
        hybrid_kv_manager=hybrid,
    )
    made = vllm_plan(scenario, place_of(scenario))
    assert longest_request(made, pool, longest, batch) == plain_search(made, pool, longest, batch)


# --- blocks follow the kernels of the GPU ---------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "tp", "gpu", "block"),
    [
        ("qwen3-next-80b-a3b", 1, "h200", 576),
        ("qwen3-next-80b-a3b", 4, "h200", 320),
        ("qwen3-next-80b-a3b", 8, "h200", 192),
        ("qwen3-next-80b-a3b", 4, "b200", 320),
        ("qwen3-next-80b-a3b", 4, "a100-80gb", 272),
        ("qwen3-next-80b-a3b", 4, "mi300x", 272),
        ("qwen3.5-397b-a17b", 8, "h200", 576),
        ("kimi-k3", 8, "h200", 768),
        ("kimi-k3", 8, "a100-80gb", 768),
    ],
)
def test_a_state_kernels_grid_is_part_of_the_aligned_block(
    preset: str, tp: int, gpu: str, block: int
) -> None:
    """vLLM 0.33 platforms/interface.py: 64 ceil(state page / (64 row)) with FlashInfer's GDN."""
    scenario = Scenario(preset, tp=tp, gpu=gpu)
    made = vllm_plan(scenario, place_of(scenario))
    assert made.alignment is not None
    assert made.alignment.block.value == block
    off = replace(scenario, prefix_caching="off")
    without = vllm_plan(off, place_of(off)).alignment
    assert without is not None
    assert without.block.value <= block, "nothing is saved, so no grid is kept"


@pytest.mark.parametrize(
    ("preset", "gpu", "slots"),
    [
        ("kimi-k3", "h200", 3),  # a working state, the last boundary's, one of a prefill
        ("kimi-k3", "a100-80gb", 2),
        ("qwen3-next-80b-a3b", "h200", 3),
        ("qwen3-next-80b-a3b", "l40s", 2),
        ("nemotron-h-8b", "l40s", 3),
        ("falcon-mamba-7b", "h200", 2),
        ("minimax-text-01", "h200", 2),
    ],
)
def test_states_saved_in_a_prefill_take_a_slot(preset: str, gpu: str, slots: int) -> None:
    """vLLM 0.33 v1/kv_cache_interface.py: 2 + num_speculative + num_prefill_checkpoint_blocks."""
    scenario = Scenario(preset, tp=8 if preset == "kimi-k3" else 1, gpu=gpu)
    made = vllm_plan(scenario, place_of(scenario))
    kept = [
        blocks_rule(group, scenario.context, made.settings, made.in_flight)
        for group in made.grouping.groups
        if group.lead.growth is Growth.STATE
    ]
    assert {rule.item("slots", **arguments).value for rule, arguments in kept} == {slots}


@pytest.mark.parametrize(
    ("preset", "kv_dtype", "gpu", "block"),
    [
        ("deepseek-v3", "bf16", "h200", 16),  # FlashAttention
        ("deepseek-v3", "fp8", "h200", 64),  # FlashMLA
        ("deepseek-v3", "bf16", "b200", 32),  # FlashInfer
        ("deepseek-v3", "fp8", "b200", 32),
        ("deepseek-v3", "bf16", "a100-80gb", 16),  # Triton
        ("deepseek-v3.2", "bf16", "b200", 64),  # its indexer asks for 64 on CUDA
        ("deepseek-v3.2", "bf16", "mi300x", 16),
        ("llama-3.1-8b", "bf16", "b200", 16),
    ],
)
def test_latent_attention_has_the_block_of_its_kernel(
    preset: str, kv_dtype: str, gpu: str, block: int
) -> None:
    """vLLM 0.33 platforms/cuda.py _get_backend_priorities and the backends' kernel blocks."""
    scenario = Scenario(preset, tp=8, kv_dtype=kv_dtype, gpu=gpu)
    (group,) = vllm_plan(scenario, place_of(scenario)).grouping.groups
    assert group.lead.block_tokens == block
    typed = replace(scenario, block_size=128)
    (group,) = vllm_plan(typed, place_of(typed)).grouping.groups
    assert group.lead.block_tokens == 128
