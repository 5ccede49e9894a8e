"""The numbers that must come out, each with its source, as a user would read them."""

from __future__ import annotations

import pytest

from calc.report import Report
from calc.traffic import Stage
from calc.units import MIB
from tests.calc.models import gqa, layers, mla, model, report, sent_per_step


def row_bytes(found: Report, kind: str) -> set[int]:
    """Bytes of one token in one layer on one rank, for each component of a kind."""
    return {
        part.store.bytes.value for part in found.cache.stage.components if part.store.kind == kind
    }


def window_slope(found: Report) -> int:
    """Bytes that one more token adds in window layers as long as the windows are not full."""
    return sum(
        part.per_token.value
        for part in found.cache.stage.components
        if part.store.kind == "sliding_window" and part.per_token
    )


# DeepSeek-V3: config.json of deepseek-ai/DeepSeek-V3: 61 layers, kv_lora_rank 512,
# qk_rope_head_dim 64; "KV storage" article, section on MLA


def test_deepseek_v3_keeps_1152_bytes_a_layer_and_70272_a_token() -> None:
    found = report("deepseek-v3")
    assert row_bytes(found, "mla") == {1_152}
    assert found.cache.stage.growing_per_token.value == 70_272


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_8192_tokens_of_deepseek_v3_take_549_mib_on_each_rank_whatever_tp_is(tp: int) -> None:
    held = report("deepseek-v3", context=8_192, tp=tp).cache.stage.per_request.value
    assert held == 575_668_224 == 549 * MIB


def test_the_heads_of_deepseek_v3_written_out_would_weigh_71_times_as_much() -> None:
    # 128 x (192 + 128) x 2 B against (512 + 64) x 2 B
    heads = gqa(128, 128).model_copy(update={"k_dim": 192, "v_dim": 128})
    (written_out,) = row_bytes(report(model(layers(61, heads))), "attention")
    (latent,) = row_bytes(report("deepseek-v3"), "mla")
    assert written_out == 81_920
    assert round(written_out / latent, 1) == 71.1


def test_61_latent_layers_typed_by_hand_give_68_6_kib_a_token() -> None:
    typed = report(model(layers(61, mla()))).cache.stage.growing_per_token.value
    assert round(typed / 1024, 1) == 68.6


# swa-48: "KV storage" article, section 3.2: 8 global layers, 40 with a window of 1,024


def test_swa_48_keeps_19_3_percent_of_its_layer_tokens_at_32768_tokens() -> None:
    found = report("swa-48", context=32_768)
    (row,) = row_bytes(found, "attention") | row_bytes(found, "sliding_window")
    kept, remainder = divmod(found.cache.stage.per_request.value, row)
    assert (kept, remainder) == (303_104, 0)
    assert kept == 8 * 32_768 + 40 * 1_024
    assert 48 * 32_768 == 1_572_864
    assert round(100 * kept / 1_572_864, 1) == 19.3


# Kimi K3: config.json of moonshotai/Kimi-K3 (24 latent layers of 576, 69 KDA layers of
# 96 x 128 x 128); "MLA DCP in SGLang" article: 27.6 GB for a million tokens


def test_a_million_tokens_of_kimi_k3_take_27_648_gb_and_an_eighth_of_it_with_dcp_8() -> None:
    whole = report("kimi-k3", context=1_000_000).cache.stage
    striped = report("kimi-k3", context=1_000_000, tp=8, dcp=8).cache.stage
    assert whole.growing_per_token.value == 27_648
    assert whole.per_request.value - whole.state_per_request.value == 27_648_000_000
    assert striped.growing_per_token.value == 3_456
    assert striped.per_request.value - striped.state_per_request.value == 3_456_000_000


@pytest.mark.parametrize(
    ("tp", "dcp", "expected"),
    [(1, 1, 449_372_160), (8, 1, 56_171_520), (8, 2, 56_171_520), (8, 8, 56_171_520)],
)
def test_the_state_of_kimi_k3_is_divided_by_tp_and_never_by_dcp(
    tp: int, dcp: int, expected: int
) -> None:
    # 69 x (3 x 96 x 128 x 3 x 2 B + 96 x 128 x 128 x 4 B)
    assert report("kimi-k3", tp=tp, dcp=dcp).cache.stage.state_per_request.value == expected


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_convolution_of_kimi_k3_is_kept_in_bf16_and_its_recurrence_in_float32(
    engine: str,
) -> None:
    (kda,) = [
        part.store.bytes
        for part in report("kimi-k3", engine=engine).cache.stage.components
        if part.store.kind == "kda"
    ]
    assert (kda.arguments["conv_bytes"], kda.arguments["state_bytes"]) == (2, 4)


# "MLA DCP in SGLang" article, its per-layer budget: 64 requests, 96 heads, tp = dcp = 8


@pytest.fixture(scope="module")
def kimi_k3_under_dcp() -> Report:
    return report(
        "kimi-k3",
        engine="sglang",
        tp=8,
        dcp=8,
        batch=64,
        dcp_backend="fi_a2a",
        query_replication="off",
    )


@pytest.mark.parametrize(
    ("name", "payload", "sent"),
    [
        ("gather_query", 7_077_888, 6_193_152),  # 64 x 96 x 576 x 2 B; x 7/8
        ("exchange_partials", 6_340_608, 5_548_032),  # 64 x 96 x (512 + 4) x 2 B; x 7/8
        ("o_proj", 917_504, 1_605_632),  # 64 x 7168 x 2 B; x 2 x 7/8
    ],
)
def test_a_latent_layer_of_kimi_k3_moves_what_the_article_says(
    kimi_k3_under_dcp: Report, name: str, payload: int, sent: int
) -> None:
    def is_it(row: Stage) -> bool:
        return row.kind == "mla" and row.name == name

    (row,) = filter(is_it, kimi_k3_under_dcp.step.stages)
    assert row.payload is not None
    assert row.sent is not None
    assert (row.calls, row.group_size) == (24, 8)
    assert (row.payload.value, row.sent.value) == (payload, sent)


def test_the_latent_layers_of_kimi_k3_send_320_mb_a_rank_and_2_6_gb_on_8_ranks(
    kimi_k3_under_dcp: Report,
) -> None:
    names = ("gather_query", "exchange_partials", "o_proj")
    per_rank = sent_per_step(kimi_k3_under_dcp, "mla", *names)
    assert per_rank == 320_323_584
    assert per_rank * kimi_k3_under_dcp.scenario.layout.world_size == 2_562_588_672


def test_the_whole_step_of_kimi_k3_is_the_latent_layers_and_everything_beside_them(
    kimi_k3_under_dcp: Report,
) -> None:
    all_reduce = 2 * 7 * 64 * 7168 * 2 // 8  # a [64, 7168] bf16 tensor over 8 ranks
    narrow = 2 * 7 * 64 * 3584 * 2 // 8  # the routed experts work in 3,584
    logits = 7 * 64 * 163_840 * 2 // 8
    beside = (1 + 69 + 1 + 92) * all_reduce + 92 * narrow + logits
    assert kimi_k3_under_dcp.step.sent_per_rank.value == 320_323_584 + beside


# config.json of the repositories named in the presets; layer counts x heads x (K + V) x 2 B


@pytest.mark.parametrize(
    ("preset", "tp", "expected"),
    [
        ("llama-3.1-70b", 1, 327_680),  # 80 x 8 x 256 x 2 B
        ("llama-3.1-70b", 8, 40_960),
        ("llama-3.1-70b", 16, 40_960),  # each KV head lies on two ranks
        ("llama-3.1-8b", 1, 131_072),  # 32 x 8 x 256 x 2 B
        ("qwen3-235b-a22b", 1, 192_512),  # 94 x 4 x 256 x 2 B
        ("gpt-oss-120b", 1, 36_864),  # 18 x 8 x 128 x 2 B
        ("mimo-v2-flash", 1, 23_040),  # 9 x 4 x (192 + 128) x 2 B
        ("nemotron-h-56b", 1, 40_960),  # 10 x 8 x 256 x 2 B
    ],
)
def test_a_token_adds_what_the_published_widths_imply(preset: str, tp: int, expected: int) -> None:
    assert report(preset, tp=tp).cache.stage.growing_per_token.value == expected


@pytest.mark.parametrize(
    ("preset", "slope"),
    [
        ("gpt-oss-120b", 36_864),  # 18 x 8 x (64 + 64) x 2 B
        ("mimo-v2-flash", 199_680),  # 39 x 8 x (192 + 128) x 2 B
    ],
)
@pytest.mark.parametrize(("context", "kept"), [(1, 1), (127, 127), (128, 128), (100_000, 128)])
def test_window_layers_grow_to_128_tokens_and_no_further(
    preset: str, slope: int, context: int, kept: int
) -> None:
    found = report(preset, context=context)
    assert window_slope(found) == slope
    assert found.cache.stage.window_per_request.value == slope * kept


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tp": 1}, 912_605_184),  # 54 x (20,480 x 3 x 2 B + 256 x 64 x 256 x 4 B)
        ({"tp": 8}, 114_075_648),
        ({"tp": 1, "state_dtype": "bf16"}, 459_620_352),
    ],
)
def test_the_state_of_nemotron_h_56b_is_float32_unless_told_otherwise(
    fields: dict[str, int | str], expected: int
) -> None:
    assert report("nemotron-h-56b", **fields).cache.stage.state_per_request.value == expected
