"""What layers keep, against sums done by hand and figures that engines printed."""

from __future__ import annotations

from typing import Any

import pytest

from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView
from calc.errors import CalcError
from calc.layers import (
    AnyMixer,
    Attention,
    ChunkedAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    ShortConvolution,
    SlidingWindowAttention,
)
from calc.report import Report
from calc.units import GIB
from tests.calc.models import gqa, indexer, layers, mla, model, report


def per_token(found: Report) -> Any:
    return found.cache.stage.growing_per_token.value


def growing(mixer: AnyMixer, **fields: Any) -> Any:
    """Bytes that one more token adds on a rank, in one layer."""
    return per_token(report(model(layers(1, mixer)), **fields))


# --- Attention over tp and dcp --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "heads_held", "copies"), [(1, 8, 1), (2, 4, 1), (8, 1, 1), (16, 1, 2), (64, 1, 8)]
)
def test_kv_heads_are_split_and_then_copied(tp: int, heads_held: int, copies: int) -> None:
    """vLLM 0.33 config/model.py get_num_kv_heads: max(1, kv_heads // tp)."""
    found = report(model(layers(1, gqa(64, 8))), tp=tp, context=10)
    (part,) = found.cache.stage.components
    assert part.store.bytes.value == heads_held * (128 + 128) * 2
    assert part.store.copies == copies
    assert found.cache.per_replica.value == copies * 8 * 256 * 2 * 10


def test_a_stripe_is_one_part_in_dcp_of_a_copied_head_in_vllm() -> None:
    # vLLM log of Qwen3-235B-A22B at TP8 DCP2: 94 x 2 x 1 x 128 x 2 B / 2 a token and rank
    assert per_token(report("qwen3-235b-a22b", tp=8, dcp=2)) == 24_064


def test_sglang_holds_more_heads_of_fewer_tokens_under_dcp() -> None:
    """SGLang 0.5.23 configs/model_config.py get_num_kv_heads: kv_heads // (tp / dcp)."""
    found = report(model(layers(1, gqa(64, 4))), engine="sglang", tp=4, dcp=2, context=101)
    (part,) = found.cache.stage.components
    assert part.store.bytes.value == 2 * 256 * 2  # two heads instead of one
    assert part.per_request.value == 2 * 256 * 2 * 51  # of every second token


def test_sglang_saves_memory_under_dcp_only_where_heads_are_copied() -> None:
    def held(tp: int, dcp: int) -> Any:
        return growing(gqa(64, 4), engine="sglang", tp=tp, dcp=dcp)

    assert held(4, 2) == held(4, 1)
    assert held(16, 4) == held(16, 1) / 4


def test_the_fullest_rank_of_a_stripe_holds_the_odd_token() -> None:
    found = report(model(layers(1, mla())), tp=8, dcp=8, context=17)
    assert found.cache.stage.per_request.value == 3 * 1_152
    assert found.cache.per_replica.value == 17 * 1_152  # no copies: each token lies on one rank


def test_latent_rows_are_copied_on_the_tp_ranks_that_do_not_stripe_them() -> None:
    found = report(model(layers(1, mla())), tp=8, dcp=2, context=16)
    assert found.cache.stage.components[0].store.copies == 4
    assert found.cache.per_replica.value == 4 * 16 * 1_152


def test_a_layer_that_reads_another_layers_keys_keeps_none() -> None:
    reader = Attention(heads=8, kv_heads=8, k_dim=64, v_dim=64, reads_other_layer=True)
    alone = report(model(layers(3, gqa(8, 8))))
    assert per_token(report(model(layers(3, gqa(8, 8)), layers(5, reader)))) == per_token(alone)


def test_the_latent_width_is_the_models_own() -> None:
    # vLLM log of Mistral-Small-4-119B at TP2: 1,048,576 tokens need 22.5 GiB on each rank
    found = report(
        model(layers(36, mla(32, kv_lora_rank=256))), tp=2, context=1_048_576
    ).cache.stage
    assert found.per_request.value == 22.5 * GIB


# --- Windows and chunks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "kept"), [(1, 1), (4_095, 4_095), (4_096, 4_096), (9_999, 4_096)]
)
def test_a_window_keeps_no_more_than_its_tokens(context: int, kept: int) -> None:
    window = SlidingWindowAttention(heads=24, kv_heads=2, k_dim=128, v_dim=128, window=4_096)
    stage = report(model(layers(30, window)), context=context).cache.stage
    assert stage.window_per_request.value == 30 * 2 * 256 * 2 * kept
    assert stage.growing_per_token.value == 0


def test_a_chunk_is_counted_at_its_peak() -> None:
    # Llama-4-Scout at 131,072 tokens: 12 full layers and 36 with chunks of 8,192 take 7.125 GiB
    chunked = ChunkedAttention(heads=40, kv_heads=8, k_dim=128, v_dim=128, chunk=8_192)
    scout = model(layers(12, gqa(40, 8)), layers(36, chunked))
    assert report(scout, context=131_072).cache.stage.per_request.value == 7.125 * GIB
    early = report(scout, context=8_191).cache.stage
    assert early.window_per_request.value == 36 * 4_096 * 8_191


def test_windows_are_divided_by_tp_like_any_kv_heads() -> None:
    window = SlidingWindowAttention(heads=64, kv_heads=8, k_dim=64, v_dim=64, window=128)
    at = [
        report(model(layers(18, window)), tp=tp).cache.stage.window_per_request.value
        for tp in (1, 8, 16)
    ]
    assert at == [18 * 8 * 128 * 2 * 128, 18 * 128 * 2 * 128, 18 * 128 * 2 * 128]


# --- KV formats -----------------------------------------------------------------------------------

LATENT_ROWS = {  # 512 + 64 elements; vLLM 0.33 unless said otherwise
    "bf16": 1_152,
    "fp8": 576,
    "fp8_ds_mla": 656,  # 512 + 4 x 4 + 64 x 2
    "int8_per_token_head": 584,  # a pair of float32 scales
    "fp8_per_token_head": 584,
    "int4_per_token_head": 296,
    "nvfp4": 324,  # 576 / 2 + 576 / 16 (SGLang's fp4)
    "nvfp4_ds_mla": 352,  # 256 + 32 + 64
}

DENSE_ROWS = {  # 8 heads of 128 + 128
    "bf16": 4_096,
    "fp8": 2_048,
    "int8_per_token_head": 2_112,  # 8 x (256 + 8)
    "fp8_per_token_head": 2_112,
    "int4_per_token_head": 1_088,  # 8 x (128 + 8)
    "nvfp4": 1_152,  # 8 x 2 x (64 + 8)
}


@pytest.mark.parametrize(("kv_dtype", "expected"), LATENT_ROWS.items())
def test_a_latent_row_weighs_what_its_layout_says(kv_dtype: str, expected: int) -> None:
    engine = "sglang" if kv_dtype == "nvfp4" else "vllm"
    assert growing(mla(), kv_dtype=kv_dtype, engine=engine) == expected


def test_vllm_has_no_plain_nvfp4_for_latent_rows() -> None:
    """vLLM 0.33 config/vllm.py validate_nvfp4_kv_cache_with_mla."""
    with pytest.raises(CalcError, match=r"kv_dtype: nvfp4 .*mla.*K and V rows only"):
        growing(mla(), kv_dtype="nvfp4")
    assert growing(gqa(64, 8), kv_dtype="nvfp4") == DENSE_ROWS["nvfp4"]


@pytest.mark.parametrize(("kv_dtype", "expected"), DENSE_ROWS.items())
def test_a_dense_row_weighs_what_its_layout_says(kv_dtype: str, expected: int) -> None:
    assert growing(gqa(64, 8), kv_dtype=kv_dtype) == expected


def test_fp8_on_sparse_attention_is_the_packed_layout_with_its_indexer_beside() -> None:
    # vLLM on DeepSeek-V3.2: 61 x (656 + 132) B a token (43.67 GiB hold 975,424 tokens)
    sparse = model(layers(61, mla(sparse=True), indexer()))
    assert per_token(report(sparse, kv_dtype="fp8")) == 61 * (656 + 132)
    assert per_token(report(sparse, kv_dtype="fp8")) == per_token(
        report(sparse, kv_dtype="fp8_ds_mla")
    )


def test_an_indexer_key_takes_132_bytes_in_any_format_and_only_where_there_is_one() -> None:
    # vLLM on GLM-5: 78 latent layers, 21 of them with an indexer of their own
    glm = model(layers(57, mla(64, sparse=True)), layers(21, mla(64, sparse=True), indexer()))
    assert per_token(report(glm)) == 78 * 1_152 + 21 * 132


def test_dcp_stripes_the_indexer_in_vllm_and_not_in_sglang() -> None:
    sparse = model(layers(61, mla(sparse=True), indexer()))
    fields = {"kv_dtype": "fp8", "tp": 8, "dcp": 8}
    assert per_token(report(sparse, **fields)) == 61 * (656 + 132) / 8
    assert per_token(report(sparse, engine="sglang", **fields)) == 61 * (656 / 8 + 132)


# --- States ---------------------------------------------------------------------------------------

MAMBA1 = Mamba1(inner_size=8192, state_size=16, conv_kernel=4, dt_rank=256)
MAMBA2 = Mamba2(heads=256, head_dim=64, state_size=256, groups=8, conv_kernel=4)
GDN = GatedDeltaNet(key_heads=16, key_dim=128, value_heads=32, value_dim=128, conv_kernel=4)
KDA = KimiDeltaAttention(heads=96, head_dim=128, conv_kernel=4)
LIGHTNING = LightningAttention(heads=64, head_dim=128)
SHORT = ShortConvolution(channels=2048, conv_kernel=3)

STATES = [  # vLLM 0.33 layers/mamba/mamba_utils.py, one layer, one rank
    (MAMBA1, {}, (8192 * 3 + 8192 * 16) * 2),
    (MAMBA1, {"tp": 2}, (4096 * 3 + 4096 * 16) * 2),
    (MAMBA1, {"engine": "sglang"}, 8192 * 3 * 2 + 8192 * 16 * 4),
    (MAMBA2, {}, 20_480 * 3 * 2 + 256 * 64 * 256 * 2),
    (MAMBA2, {"engine": "sglang"}, 20_480 * 3 * 2 + 256 * 64 * 256 * 4),
    (MAMBA2, {"tp": 8}, 2_560 * 3 * 2 + 32 * 64 * 256 * 2),
    # 8 groups on 16 ranks: each needs a whole one, (16,384 + 2 x 16 x 256) / 16 channels
    (MAMBA2, {"tp": 16}, 1_536 * 3 * 2 + 16 * 64 * 256 * 2),
    (GDN, {"state_dtype": "float32"}, 49_152 + 2_097_152),
    (GDN, {}, 49_152 + 1_048_576),
    (GDN, {"tp": 16}, (49_152 + 1_048_576) // 16),
    (KDA, {}, 221_184 + 6_291_456),
    (KDA, {"tp": 8}, 814_080),
    (KDA, {"state_dtype": "bf16"}, 221_184 + 3_145_728),
    # llama.cpp keeps both in float32; for 69 such layers its log says 443.11 MiB
    (KDA, {"conv_dtype": "float32"}, 442_368 + 6_291_456),
    (LIGHTNING, {}, 64 * 128 * 128 * 2),
    (LIGHTNING, {"tp": 4}, 16 * 128 * 128 * 2),
    (SHORT, {}, 2048 * 2 * 2),
    (SHORT, {"tp": 2, "conv_dtype": "float32"}, 1024 * 2 * 4),
]


@pytest.mark.parametrize(("mixer", "fields", "expected"), STATES)
def test_a_state_has_the_engines_shape_and_dtypes(
    mixer: AnyMixer, fields: dict[str, Any], expected: int
) -> None:
    stage = report(model(layers(1, mixer)), **fields).cache.stage
    assert stage.state_per_request.value == stage.per_request.value == expected
    assert stage.growing_per_token.value == stage.window_per_request.value == 0


def test_a_models_own_state_dtype_goes_before_the_engines_and_after_the_users() -> None:
    asked = GDN.model_copy(update={"state_dtype": "float32"})
    held = [
        report(model(layers(1, asked)), state_dtype=dtype).cache.stage.state_per_request.value
        for dtype in ("auto", "bf16")
    ]
    assert held == [49_152 + 2_097_152, 49_152 + 1_048_576]


# --- Pipeline and data parallelism ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "pp", "expected"),
    [
        (61, 4, [15, 15, 16, 15]),  # the remainder goes to the stages before the last
        (62, 4, [15, 16, 16, 15]),
        (63, 4, [16, 16, 16, 15]),
        (64, 4, [16, 16, 16, 16]),
        (5, 5, [1, 1, 1, 1, 1]),
    ],
)
def test_layers_are_cut_into_stages_as_vllm_cuts_them(
    count: int, pp: int, expected: list[int]
) -> None:
    """vLLM 0.33 distributed/utils.py get_pp_indices."""
    found = report(model(layers(count, mla())), pp=pp, context=1).cache
    assert [stage.per_request.value // 1_152 for stage in found.stages] == expected


@pytest.mark.parametrize("preset", ["kimi-k3", "gemma-3-27b", "nemotron-h-56b", "mimo-v2-flash"])
@pytest.mark.parametrize("pp", [2, 3, 7])
def test_the_stages_of_a_pipeline_hold_together_what_one_rank_held(preset: str, pp: int) -> None:
    whole, cut = (report(preset, pp=size, context=5_000) for size in (1, pp))
    held = [stage.per_request.value for stage in cut.cache.stages]
    assert sum(held) == whole.cache.stage.per_request.value
    assert cut.cache.per_replica.value == whole.cache.per_replica.value
    assert cut.cache.stage.per_request.value == max(held)


def test_the_fullest_stage_binds_and_it_changes_with_the_context() -> None:
    window = SlidingWindowAttention(heads=8, kv_heads=8, k_dim=64, v_dim=64, window=100)
    uneven = model(layers(9, window), layers(1, gqa(8, 8, 64)), layers(8))
    short, long = (report(uneven, pp=2, context=context) for context in (90, 1_000))
    assert (short.cache.binding, long.cache.binding) == (0, 1)
    assert short.fit.max_context == long.fit.max_context == 80 * GIB // (8 * 128 * 2)


@pytest.mark.parametrize("preset", ["kimi-k3", "llama-3.1-70b"])
def test_more_replicas_change_no_figure_of_a_rank(preset: str) -> None:
    one, many = (report(preset, tp=8, dp=dp, batch=3) for dp in (1, 12))
    assert many.cache.stage.per_request.value == one.cache.stage.per_request.value
    assert many.cache.per_replica.value == one.cache.per_replica.value
    assert many.fit.max_requests.value == one.fit.max_requests.value
    if not many.model.moe_ffns:  # experts are shared by the replicas, and tokens travel to them
        assert many.step.sent_per_rank.value == one.step.sent_per_rank.value
        assert many.step.all_ranks.value == 12 * one.step.all_ranks.value


# --- Mixtures -------------------------------------------------------------------------------------


def test_mixers_side_by_side_add_up_and_a_layer_without_one_keeps_nothing() -> None:
    both = model(layers(6, gqa(8, 2, 64), GDN), layers(10))
    stage = report(both, context=1_000).cache.stage
    assert stage.growing_per_token.value == 6 * 2 * 128 * 2
    assert stage.state_per_request.value == 6 * (49_152 + 1_048_576)
    assert stage.per_request.value == 6 * (2 * 128 * 2 * 1_000 + 49_152 + 1_048_576)


# --- Drafting (MTP) layers ------------------------------------------------------------------------


def test_mtp_layers_keep_a_cache_while_they_draft() -> None:
    # DeepSeek-V3: 61 latent layers and one MTP layer, (512 + 64) x 2 B each
    alone, drafting = (report("deepseek-v3", speculative_tokens=k, context=100) for k in (0, 1))
    assert per_token(alone) == 61 * 1152
    assert per_token(drafting) == 62 * 1152
    assert drafting.cache.stage.per_request.value == 62 * 1152 * 100
    assert [(part.layers, part.drafts) for part in drafting.cache.stage.components] == [
        (61, False),
        (1, True),
    ]


def test_an_mtp_layer_has_an_indexer_of_its_own() -> None:
    # GLM-5.2: 21 of 78 layers have one, and the MTP layer
    assert per_token(report("glm-5.2", speculative_tokens=1)) == 79 * 1152 + 22 * 132


def test_mtp_layers_lie_on_the_last_pipeline_stage_only() -> None:
    alone, drafting = (report("deepseek-v3", speculative_tokens=k, pp=2) for k in (0, 1))
    first, last = (stage.growing_per_token.value for stage in drafting.cache.stages)
    assert first == alone.cache.stages[0].growing_per_token.value
    assert last == alone.cache.stages[1].growing_per_token.value + 1152
    assert drafting.cache.per_replica.value == alone.cache.per_replica.value + 1152 * 8192


@pytest.mark.parametrize(
    ("engine", "drafted"),
    # SGLang 0.5.23 model_executor/pool_configurator.py: dcp rows of the draft pool for each
    [("vllm", 1152 / 8), ("sglang", 1152)],
)
def test_only_vllm_stripes_the_cache_of_drafts(engine: str, drafted: float) -> None:
    fields = {"engine": engine, "tp": 8, "dcp": 8, "speculative_tokens": 1}
    assert per_token(report("deepseek-v3", **fields)) == 61 * 1152 / 8 + drafted


def test_mtp_layers_share_the_pool_of_blocks() -> None:
    # Qwen3.5-397B: 15 attention layers, one more drafts; 45 of gated delta net in 3 groups
    found = report("qwen3.5-397b-a17b", speculative_tokens=1)
    view = found.engine.view
    assert isinstance(view, BlockView)
    assert [(group.kind, group.layers) for group in view.groups] == [
        *3 * [("gdn", 15)],
        ("attention", 16),
    ]
    assert view.padding_layers == 3
    assert view.formula.value + sum(waste.value for waste in view.wastes) == view.allocated.value


def test_sglang_gives_each_drafted_token_rows_on_every_rank() -> None:
    found = report("deepseek-v3", engine="sglang", tp=8, dcp=8, speculative_tokens=1, context=64)
    view = found.engine.view
    assert isinstance(view, PoolView)
    pool = view.pool("tokens")
    assert pool is not None
    # a row of the pool: 61 layers of one token in eight, and the MTP layer of all eight
    assert pool.size.value == 80 * GIB // ((61 + 8) * 1152) * 8
