"""The model presets: each loads, has its published layer pattern, and a faulty file is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from calc.engines import ENGINES
from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.layers import Growth, Sharding
from calc.model import ModelSpec
from calc.presets import load_preset, preset_ids, read_preset

TP1 = Sharding(tp=1, dcp=1, engine=ENGINES["vllm"], kv_format=KV_FORMATS["bf16"])

# config.json of the repositories named in the presets
LAYER_COUNTS: dict[str, dict[str, int]] = {
    "bamba-9b": {"mamba2": 29, "attention": 3},
    "command-a": {"sliding_window": 48, "attention": 16},
    "deepseek-v3": {"mla": 61},
    "deepseek-v3.2": {"mla+indexer": 61},
    "deepseek-v4-flash": {"compressed_latent": 43},
    "deepseek-v4-pro": {"compressed_latent": 61},
    "falcon-h1-34b": {"attention+mamba2": 72},
    "falcon-mamba-7b": {"mamba1": 64},
    "gemma-2-9b": {"sliding_window": 21, "attention": 21},
    "gemma-3-27b": {"sliding_window": 52, "attention": 10},
    "gemma-3n-e4b": {"sliding_window": 28, "attention": 7},
    "gemma-4-26b-a4b": {"sliding_window": 25, "attention": 5},
    "gemma-4-31b": {"sliding_window": 50, "attention": 10},
    "gemma-4-e2b": {"sliding_window": 28, "attention": 7},
    "glm-5": {"mla+indexer": 78},
    "glm-5.2": {"mla+indexer": 21, "mla": 57},
    "gpt-oss-120b": {"sliding_window": 18, "attention": 18},
    "gpt-oss-20b": {"sliding_window": 12, "attention": 12},
    "granite-4.0-h-small": {"mamba2": 36, "attention": 4},
    "jamba-1.5-large": {"mamba1": 63, "attention": 9},
    "jamba-1.5-mini": {"mamba1": 28, "attention": 4},
    "kimi-k2": {"mla": 61},
    "kimi-k3": {"kda": 69, "mla": 24},
    "kimi-linear-48b": {"kda": 20, "mla": 7},
    "llama-3.1-70b": {"attention": 80},
    "llama-3.1-8b": {"attention": 32},
    "llama-4-maverick": {"chunked": 36, "attention": 12},
    "mamba-codestral-7b": {"mamba2": 64},
    "mimo-v2-flash": {"sliding_window": 39, "attention": 9},
    "minimax-m3": {"attention": 3, "attention+indexer": 57},
    "minimax-text-01": {"lightning": 70, "attention": 10},
    "mistral-7b": {"sliding_window": 32},
    "nemotron-3-nano": {"mamba2": 23, "attention": 6, "none": 23},
    "nemotron-3-super": {"mamba2": 40, "attention": 8, "none": 40},
    "nemotron-h-47b": {"mamba2": 45, "attention": 5, "none": 48},
    "nemotron-h-56b": {"mamba2": 54, "attention": 10, "none": 54},
    "nemotron-h-8b": {"mamba2": 24, "attention": 4, "none": 24},
    "phi-3-mini-4k": {"sliding_window": 32},
    "qwen3-235b-a22b": {"attention": 94},
    "qwen3-next-80b-a3b": {"gdn": 36, "attention": 12},
    "qwen3.5-397b-a17b": {"gdn": 45, "attention": 15},
    "step-3.5-flash": {"attention": 12, "sliding_window": 33},
    "swa-48": {"sliding_window": 40, "attention": 8},
    "zamba2-7b": {"mamba2": 68, "attention+mamba2": 13},
}

# position of every layer with a growing cache, 0-based, from the same files
FULL_LAYERS: dict[str, list[int]] = {
    "bamba-9b": [9, 18, 27],
    "gemma-3-27b": list(range(5, 60, 6)),
    "gemma-3n-e4b": [4, 9, 14, 19],  # the last 15 layers read the cache of layers 18 and 19
    "gemma-4-e2b": [4, 9, 14],
    "granite-4.0-h-small": [5, 15, 25, 35],
    "hunyuan-large": list(range(0, 64, 2)),
    "gpt-oss-120b": list(range(1, 36, 2)),
    "jamba-1.5-mini": list(range(4, 32, 8)),
    "kimi-k3": [*range(3, 92, 4), 92],
    "kimi-linear-48b": [*range(3, 24, 4), 26],
    "mimo-v2-flash": [0, *range(5, 48, 6)],
    "minimax-text-01": list(range(7, 80, 8)),
    "nemotron-3-nano": [5, 12, 19, 26, 33, 42],
    "qwen3.5-397b-a17b": list(range(3, 60, 4)),
    "step-3.5-flash": list(range(0, 45, 4)),
    "zamba2-7b": [6, *range(11, 78, 6)],
}


def layer_counts(model: ModelSpec) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for layer in model.layers:
        counts["+".join(layer.kinds)] += layer.count
    return dict(counts)


def bytes_kept(model: ModelSpec, growth: Growth) -> int:
    """bf16, tp=1: bytes a token (growing and window) or a request (state), all layers."""
    return sum(
        store.bytes.value * layer.count
        for layer in model.layers
        for mixer in layer.mixers
        for store in mixer.stores(TP1)
        if store.growth is growth
    )


def growing_positions(model: ModelSpec) -> list[int]:
    position = 0
    found: list[int] = []
    for layer in model.layers:
        grows = any(
            store.growth is Growth.GROWING for mixer in layer.mixers for store in mixer.stores(TP1)
        )
        found += range(position, position + layer.count) if grows else []
        position += layer.count
    return found


@pytest.mark.parametrize("preset", preset_ids())
def test_every_preset_loads_and_names_its_sources(preset: str) -> None:
    model = load_preset(preset)
    assert model.id == preset
    assert model.sources


@pytest.mark.parametrize("preset", LAYER_COUNTS)
def test_a_preset_has_the_published_number_of_layers_of_each_kind(preset: str) -> None:
    assert layer_counts(load_preset(preset)) == LAYER_COUNTS[preset]


@pytest.mark.parametrize("preset", FULL_LAYERS)
def test_the_layers_with_a_growing_cache_stand_where_the_config_puts_them(preset: str) -> None:
    assert growing_positions(load_preset(preset)) == FULL_LAYERS[preset]


@pytest.mark.parametrize(
    ("preset", "growth", "expected"),
    [
        # (512 + 64) x 2 B x 61 layers
        ("deepseek-v3", Growth.GROWING, 70_272),
        # (512 + 64) x 2 B x 24; state 69 x (36,864 x 3 x 2 + 96 x 128 x 128 x 4) B
        ("kimi-k3", Growth.GROWING, 27_648),
        ("kimi-k3", Growth.STATE, 449_372_160),
        # 8 x (128 + 128) x 2 B x 80
        ("llama-3.1-70b", Growth.GROWING, 327_680),
        # 8 x (64 + 64) x 2 B x 18 in each kind
        ("gpt-oss-120b", Growth.GROWING, 36_864),
        ("gpt-oss-120b", Growth.WINDOW, 36_864),
        # (192 + 128) x 2 B: 4 heads x 9 layers, 8 heads x 39 layers
        ("mimo-v2-flash", Growth.GROWING, 23_040),
        ("mimo-v2-flash", Growth.WINDOW, 199_680),
        # 54 x (20,480 x 3 x 2 + 256 x 64 x 256 x 4) B
        ("nemotron-h-56b", Growth.GROWING, 40_960),
        ("nemotron-h-56b", Growth.STATE, 912_605_184),
        # 576 x 2 B x 78 and an indexer key of 132 B in 21 layers
        ("glm-5.2", Growth.GROWING, 576 * 2 * 78 + 132 * 21),
        # 2 x 32 heads x 224 x 2 B in each of 13 calls of the shared blocks
        ("zamba2-7b", Growth.GROWING, 2 * 32 * 224 * 2 * 13),
        # 20 layers of 4 KV heads, and 72 states of 32 x 128 x 256 bf16 with 5,120 x 3 inputs
        ("falcon-h1-34b", Growth.GROWING, 4 * 256 * 2 * 72),
        ("falcon-h1-34b", Growth.STATE, (5_120 * 3 + 32 * 128 * 256) * 2 * 72),
    ],
)
def test_the_cache_of_a_preset_weighs_what_its_config_implies(
    preset: str, growth: Growth, expected: int
) -> None:
    assert bytes_kept(load_preset(preset), growth) == expected


def test_a_compressed_cache_keeps_a_window_and_one_row_for_each_complete_group() -> None:
    # DeepSeek-V4-Flash, bf16, 10,001 tokens: 43 windows of 128 rows, 21 layers with a row and an
    # indexer key for each 4 tokens, 20 layers with a row for each 128
    model = load_preset("deepseek-v4-flash")
    held = sum(
        store.request_bytes(layer.count, 10_001)
        for layer in model.layers
        for mixer in layer.mixers
        for store in mixer.stores(TP1)
    )
    row = 512 * 2
    assert held == 43 * 128 * row + 21 * 2_500 * (row + 132) + 20 * 78 * row


def test_a_packed_compressed_row_weighs_584_bytes() -> None:
    # vLLM 0.33 models/deepseek_v4/attention.py: 448 fp8, 64 bf16, 8 bytes of scales
    place = Sharding(tp=8, dcp=1, engine=ENGINES["vllm"], kv_format=KV_FORMATS["fp8"])
    window, *_ = load_preset("deepseek-v4-pro").mixers[0].stores(place)
    assert window.bytes.value == 584
    assert window.copies == 8


def test_a_format_without_a_compressed_row_is_refused() -> None:
    place = Sharding(tp=1, dcp=1, engine=ENGINES["vllm"], kv_format=KV_FORMATS["nvfp4"])
    with pytest.raises(CalcError, match=r"kv_dtype: nvfp4 .*compressed_latent"):
        load_preset("deepseek-v4-pro").mixers[0].stores(place)


def test_glm_with_sparse_attention_defaults_to_a2a_with_query_replication_in_vllm() -> None:
    # vLLM 0.33 model_executor/models/config.py
    for preset in ("glm-5", "glm-5.2"):
        defaults = load_preset(preset).defaults_in("vllm")
        assert (defaults.dcp_backend, defaults.query_replication) == ("a2a", True)


GOOD = """\
id: good
name: Good
revision: 1
hidden_size: 64
vocab_size: 100
mixers:
  full: {kind: attention, heads: 4, kv_heads: 2, k_dim: 16, v_dim: 16}
ffns:
  dense: {kind: dense, intermediate_size: 128}
layers:
  - {mixers: [full], ffns: [dense], count: 2}
sources:
  hidden_size: a page
  vocab_size: a page
  mixers: a page
  ffns: a page
  layers: a page
"""


def read_text(folder: Path, text: str) -> ModelSpec:
    path = folder / "good.yaml"
    path.write_text(text, encoding="utf-8")
    return read_preset(path)


def test_a_minimal_preset_is_read(tmp_path: Path) -> None:
    assert read_text(tmp_path, GOOD).layer_count == 2


@pytest.mark.parametrize(
    ("good", "bad", "named"),
    [
        ("hidden_size: 64\n", "", "hidden_size"),
        ("kv_heads: 2, ", "", "kv_heads"),
        ("hidden_size: 64\n", "hidden_sise: 64\n", "hidden_siz|hidden_sise"),
        ("kv_heads: 2", "kv_head: 2", "kv_head"),
        ("vocab_size: 100\n", "vocab_size: '100'\n", "vocab_size"),
        ("k_dim: 16", "k_dim: 1.5", "k_dim"),
        ("k_dim: 16", "k_dim: 0", "k_dim"),
        ("count: 2", "count: 1000000", "count"),
        ("  vocab_size: a page\n", "", "vocab_size"),
        ("  mixers: a page\n", "  mixers.full.heads: a page\n", "mixers.full.kind"),
        ("vocab_size: 100\n", "vocab_size: 100\nvocab_size: 100\n", "vocab_size"),
        ("mixers: [full]", "mixers: [wide]", "layers.mixers.*wide"),
        ("ffns: [dense]", "ffns: [moe]", "layers.ffns.*moe"),
        ("kind: attention", "kind: atention", "mixers.full"),
        ("id: good", "id: other", "id"),
        ("layers:\n  - {mixers: [full], ffns: [dense], count: 2}\n", "layers: []\n", "layers"),
        (GOOD, "", "whole"),
        (GOOD, "- 1\n", "whole"),
        (GOOD, "{", "yaml"),
    ],
)
def test_a_faulty_preset_is_refused_by_the_name_of_the_field(
    tmp_path: Path, good: str, bad: str, named: str
) -> None:
    assert good in GOOD
    with pytest.raises(CalcError, match=f"good.yaml: .*({named})"):
        read_text(tmp_path, GOOD.replace(good, bad, 1))


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(CalcError, match=r"nonesuch.*deepseek-v3"):
        load_preset("nonesuch")
