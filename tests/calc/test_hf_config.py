"""config.json files: each family reads to the layers of its preset, and bad ones say what is wrong.

The files in tests/data/configs hold only the fields that matter, with the values of the repository
that the preset of the same name gives as its source.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.hf_config import Imported, read_config
from calc.hf_config.families import FAMILIES
from calc.hf_config.parse import MAX_BYTES
from calc.layers import Attention, SlidingWindowAttention
from calc.model import Layer, ModelSpec
from calc.presets import load_preset
from calc.weights import parameters

FOLDER = Path(__file__).parents[1] / "data" / "configs"
CONFIGS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.json"))}

# of the checkpoint, and not in the config
MTP_NOT_IN_CONFIG = {"qwen3-next-80b-a3b"}

LLAMA: dict[str, Any] = json.loads(CONFIGS["llama-3.1-8b"])
DEEPSEEK: dict[str, Any] = json.loads(CONFIGS["deepseek-v3"])


def one_by_one(layers: tuple[Layer, ...]) -> list[Layer]:
    return [layer.model_copy(update={"count": 1}) for layer in layers for _ in range(layer.count)]


def changed(config: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy with fields set, or taken out where the value is ``...``."""
    made = {**config, **fields}
    return {name: value for name, value in made.items() if value is not ...}


def kinds(imported: Imported) -> list[str]:
    return ["+".join(layer.kinds) for layer in one_by_one(imported.spec.layers)]


def warnings(imported: Imported) -> str:
    return "\n".join(str(notice) for notice in imported.warnings)


@pytest.mark.parametrize("preset", CONFIGS)
def test_a_config_reads_to_the_layers_of_its_preset(preset: str) -> None:
    expected, found = load_preset(preset), read_config(CONFIGS[preset]).spec
    assert one_by_one(found.layers) == one_by_one(expected.layers)
    if preset not in MTP_NOT_IN_CONFIG:
        assert one_by_one(found.mtp_layers) == one_by_one(expected.mtp_layers)
    for field in (
        "hidden_size",
        "vocab_size",
        "tied_embeddings",
        "norms_per_part",
        "extra_weights",
        "checkpoint",
        "engine_defaults",
    ):
        assert getattr(found, field) == getattr(expected, field), field
    assert found.max_context in (expected.max_context, None) or expected.max_context is None


@pytest.mark.parametrize("preset", CONFIGS)
def test_everything_in_a_published_config_is_understood(preset: str) -> None:
    imported = read_config(CONFIGS[preset])
    assert {notice.code for notice in imported.warnings} <= {"config_assumed"}
    assert [sum(count for _, count in finding.counts) for finding in imported.findings] == [
        imported.spec.layer_count
    ] * 2


def test_reading_a_config_takes_under_fifty_milliseconds() -> None:
    def seconds(text: str) -> float:
        started = time.perf_counter()
        read_config(text)
        return time.perf_counter() - started

    for preset, text in CONFIGS.items():
        assert min(seconds(text) for _ in range(3)) < 0.05, preset


# ---------------------------------------------------------------- traps, one by one


def test_what_mla_configs_say_of_kv_heads_and_head_dim_does_not_matter() -> None:
    misled = read_config(changed(DEEPSEEK, num_key_value_heads=7, head_dim=13))
    assert misled.spec.layers == read_config(DEEPSEEK).spec.layers
    assert "not understood" not in warnings(misled)


def test_a_window_that_is_switched_off_is_no_window() -> None:
    # Qwen/Qwen2-7B: sliding_window 131072, max_window_layers 28, use_sliding_window false
    config = changed(
        LLAMA,
        model_type="qwen2",
        sliding_window=4096,
        max_window_layers=2,
        use_sliding_window=False,
    )
    assert set(kinds(read_config(config))) == {"attention"}
    on = read_config(changed(config, use_sliding_window=True))
    assert kinds(on) == ["attention"] * 2 + ["sliding_window"] * 30


@pytest.mark.parametrize("nothing", [None, -1, ...])
def test_null_absent_and_minus_one_all_mean_no_window(nothing: Any) -> None:
    config = changed(LLAMA, model_type="mistral", sliding_window=nothing)
    assert set(kinds(read_config(config))) == {"attention"}


def test_a_window_longer_than_the_context_is_full_attention() -> None:
    # microsoft/Phi-3-mini-128k-instruct: sliding_window 262144, context 131072
    config = changed(LLAMA, model_type="phi3", sliding_window=262_144)
    assert set(kinds(read_config(config))) == {"attention"}


def test_an_attention_chunk_that_repeats_the_window_is_not_chunked_attention() -> None:
    # XiaomiMiMo/MiMo-V2-Flash: attention_chunk_size 128 beside sliding_window 128
    assert set(kinds(read_config(CONFIGS["mimo-v2-flash"]))) == {"attention", "sliding_window"}


def test_kimi_lists_count_layers_from_one() -> None:
    found = kinds(read_config(CONFIGS["kimi-k3"]))
    assert [i for i, kind in enumerate(found) if kind == "mla"] == [*range(3, 92, 4), 92]


def test_the_config_of_a_falcon_with_multi_query_has_one_kv_head() -> None:
    # tiiuae/falcon-7b: num_kv_heads null, multi_query true
    (mixer,) = read_config(CONFIGS["falcon-7b"]).spec.mixers
    assert isinstance(mixer, Attention)
    assert (mixer.heads, mixer.kv_heads, mixer.k_dim) == (71, 1, 64)


def test_widths_may_differ_between_kinds_of_layers() -> None:
    # google/gemma-4-26B-A4B: 8 heads of 256 in windows, 2 of 512 in full layers
    mixers = read_config(CONFIGS["gemma-4-26b-a4b"]).spec.mixers
    widths = {m.kind: (m.kv_heads, m.k_dim, m.v_dim) for m in mixers if isinstance(m, Attention)}
    assert widths == {"sliding_window": (8, 256, 256), "attention": (2, 512, 512)}


def test_a_list_of_layer_types_may_go_on_for_the_mtp_layers() -> None:
    # stepfun-ai/Step-3.5-Flash: 48 entries for 45 layers and 3 MTP layers
    config = json.loads(CONFIGS["step-3.5-flash"]) | {"num_nextn_predict_layers": 3}
    spec = read_config(config).spec
    assert spec.layer_count == 45
    drafts = [mixer for layer in spec.mtp_layers for mixer in layer.mixers]
    assert len(drafts) == 3
    assert all(isinstance(mixer, SlidingWindowAttention) for mixer in drafts)


def test_the_number_of_layers_may_only_be_in_the_list_of_blocks() -> None:
    # nvidia's Nemotron 3 Ultra has layers_block_type and no num_hidden_layers
    config = json.loads(CONFIGS["nemotron-3-nano"])
    letters = {"M": "mamba", "*": "attention", "E": "moe"}
    blocks = [letters[letter] for letter in config["hybrid_override_pattern"]]
    ultra = changed(
        config, hybrid_override_pattern=..., num_hidden_layers=..., layers_block_type=blocks
    )
    assert read_config(ultra).spec.layers == read_config(config).spec.layers


def test_a_quantised_checkpoint_sets_the_weights_format_and_nothing_of_the_cache() -> None:
    plain = read_config(changed(DEEPSEEK, quantization_config=...)).spec
    fp8 = read_config(DEEPSEEK).spec
    assert fp8.layers == plain.layers
    assert (plain.checkpoint, set(fp8.checkpoint.values())) == ({}, {"fp8"})


def test_modules_that_stay_in_bf16_in_every_layer_are_left_out_of_the_checkpoint_format() -> None:
    # the form of nvidia/Gemma-4-31B-IT-NVFP4: one entry a layer
    weights = {"num_bits": 4, "type": "float", "group_size": 16}
    quantised = {
        "quant_method": "modelopt",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(32))],
    }
    assert read_config(changed(LLAMA, quantization_config=quantised)).spec.checkpoint == {
        "dense": "nvfp4"
    }
    quantised["ignore"] = ["model.layers.0.self_attn*"]
    assert set(read_config(changed(LLAMA, quantization_config=quantised)).spec.checkpoint) == {
        "attention",
        "dense",
    }


def test_an_unknown_weight_format_is_a_warning() -> None:
    found = read_config(changed(LLAMA, quantization_config={"quant_method": "gptq"}))
    assert "gptq" in warnings(found)
    assert found.spec.checkpoint == {}


def test_a_field_that_may_affect_the_cache_and_is_not_known_is_a_warning() -> None:
    found = read_config(changed(LLAMA, kv_sharing_depth=2, banana=3))
    assert "kv_sharing_depth" in warnings(found)
    assert "banana" not in warnings(found)


def test_a_config_never_seen_before_is_read_by_its_fields_and_says_so() -> None:
    found = read_config(changed(LLAMA, model_type="brandnew"))
    assert found.spec.layers == read_config(LLAMA).spec.layers
    assert "brandnew" in warnings(found)


def test_what_the_class_decides_is_reported() -> None:
    # google/gemma-3-27b-it leaves out vocabulary, context, pattern and tying
    found = warnings(read_config(CONFIGS["gemma-3-27b"]))
    for field in ("vocab_size", "max_position_embeddings", "sliding_window_pattern"):
        assert field in found


def test_findings_name_the_field_that_decided() -> None:
    mixers, ffns = read_config(CONFIGS["jamba-1.5-mini"]).findings
    assert (mixers.field, dict(mixers.counts)) == (
        "attn_layer_period",
        {"mamba1": 28, "attention": 4},
    )
    assert (ffns.field, dict(ffns.counts)) == ("expert_layer_period", {"dense": 16, "moe": 16})


def test_the_field_names_of_older_decoders_are_read() -> None:
    # THUDM/glm-4-9b: 40 layers, 32 heads of 128, 2 KV heads, no transformers names
    found = read_config(
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_layers": 40,
            "num_attention_heads": 32,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "kv_channels": 128,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 151552,
            "seq_length": 131072,
        }
    )
    (mixer,) = found.spec.mixers
    assert isinstance(mixer, Attention)
    assert (found.spec.layer_count, mixer.kv_heads, mixer.k_dim) == (40, 2, 128)
    assert parameters(found.spec).total.value == pytest.approx(9.4e9, rel=5e-3)


def test_short_convolutions_are_read() -> None:
    # LiquidAI/LFM2-1.2B: 16 layers, attention at 2, 5, 8, 10, 12 and 14
    attending = {2, 5, 8, 10, 12, 14}
    types = ["full_attention" if layer in attending else "conv" for layer in range(16)]
    found = read_config(
        {
            "model_type": "lfm2",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "layer_types": types,
            "conv_L_cache": 3,
            "conv_bias": False,
            "intermediate_size": 8192,
            "vocab_size": 65536,
        }
    )
    assert kinds(found).count("short_conv") == 10
    assert parameters(found.spec).total.value == pytest.approx(1.17e9, rel=5e-3)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"hidden_size": ...}, "config_missing", "hidden_size"),
        ({"vocab_size": None}, "config_missing", "vocab_size"),
        ({"num_hidden_layers": ...}, "config_missing", "num_hidden_layers"),
        ({"model_type": ...}, "config_missing", "model_type"),
        ({"hidden_size": "4096"}, "not_an_integer", "hidden_size"),
        ({"hidden_size": 4096.0}, "not_an_integer", "hidden_size"),
        ({"hidden_size": True}, "not_an_integer", "hidden_size"),
        ({"hidden_size": float("inf")}, "not_an_integer", "hidden_size"),
        ({"hidden_size": [4096]}, "not_an_integer", "hidden_size"),
        ({"num_hidden_layers": -3}, "out_of_range", "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "out_of_range", "num_hidden_layers"),
        ({"num_hidden_layers": 10**30}, "out_of_range", "num_hidden_layers"),
        ({"num_attention_heads": 0}, "out_of_range", "num_attention_heads"),
        ({"num_attention_heads": 33}, "config_missing", "head_dim"),
        ({"tie_word_embeddings": "no"}, "not_a_choice", "tie_word_embeddings"),
        ({"layer_types": ["full_attention"] * 31}, "config_length", "layer_types"),
        ({"layer_types": ["full_attention"] * 99}, "config_length", "layer_types"),
        ({"layer_types": ["odd_attention"] * 32}, "not_a_choice", "layer_types"),
        ({"layer_types": [["full_attention"]] * 32}, "not_a_choice", "layer_types"),
        ({"layer_types": 3}, "invalid_value", "layer_types"),
        ({"layer_types": ["sliding_attention"] * 32}, "config_missing", "sliding_window"),
        ({"linear_attn_config": {"kda_layers": [1]}}, "config_missing", "full_attn_layers"),
        ({"linear_attn_config": []}, "invalid_value", "linear_attn_config"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "out_of_range", "num_experts_per_tok"),
        ({"num_experts": 8}, "config_missing", "num_experts_per_tok"),
        ({"attn_layer_indices": [1, 99]}, "out_of_range", "attn_layer_indices"),
        ({"is_encoder_decoder": True}, "config_kind", "is_encoder_decoder"),
        ({"image_size": 224}, "config_kind", "image_size"),
        ({"type_vocab_size": 2}, "config_kind", "type_vocab_size"),
        ({"_class_name": "FluxTransformer2DModel"}, "config_kind", "_class_name"),
        ({"model_type": "bert"}, "config_kind", "model_type"),
        ({"model_type": "rwkv7"}, "config_not_read", "model_type"),
        ({"block_configs": [{"attention": {}}]}, "config_not_read", "block_configs"),
    ],
)
def test_a_config_that_cannot_be_names_its_field(
    fields: dict[str, Any], code: str, named: str
) -> None:
    with pytest.raises(CalcError) as caught:
        read_config(changed(LLAMA, **fields))
    assert caught.value.code == code
    assert named in caught.value.field


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "config_unreadable"),
        ("[]", "config_unreadable"),
        ('{"hidden_size": 40', "config_unreadable"),
        (b"\xff\xfe{}", "config_unreadable"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "config_unreadable"),
        ('{"a": 1, "a": 2}', "config_repeated_key"),
        ('{"x": ' + "[" * 50 + "]" * 50 + "}", "config_too_deep"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "config_too_deep"),
        (" " * (MAX_BYTES + 1), "config_too_long"),
        ("{" * 50_000_000, "config_too_long"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_text_that_is_no_config_is_refused(text: str | bytes, code: str) -> None:
    with pytest.raises(CalcError) as caught:
        read_config(text)
    assert caught.value.code == code


def test_infinity_is_read_where_a_published_file_has_it() -> None:
    # nvidia/Nemotron-H-56B-Base-8K: time_step_limit [0.0, Infinity]
    assert "Infinity" in CONFIGS["nemotron-h-56b"]
    assert read_config(CONFIGS["nemotron-h-56b"]).spec.layer_count == 118


def test_no_family_is_named_after_a_single_size_of_a_model() -> None:
    assert not [
        name for name in FAMILIES if any(part.endswith("b") for part in name.split("_")[1:])
    ]


def outcome(config: Any) -> ModelSpec | CalcError:
    """What reading gives; anything but a model or a CalcError passes through and fails the test."""
    try:
        found = read_config(config).spec
    except CalcError as error:
        return error
    assert parameters(found).total.value > 0
    return found


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.integers()
    | st.floats()
    | st.sampled_from(["auto", "float32", "full_attention", "M*-E", "fp8", ""])
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELD_NAMES = sorted({name for text in CONFIGS.values() for name in json.loads(text)})


@settings(max_examples=400)
@given(
    preset=st.sampled_from(sorted(CONFIGS)),
    edits=st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(max_size=8), VALUES, max_size=3),
    dropped=st.lists(st.sampled_from(FIELD_NAMES), max_size=2),
)
def test_any_change_to_a_config_gives_a_model_or_an_error_by_name(
    preset: str, edits: dict[str, Any], dropped: list[str]
) -> None:
    config = copy.deepcopy(json.loads(CONFIGS[preset]))
    for part in (config, config.get("text_config", {})):
        for name in dropped:
            part.pop(name, None)
        part.update(edits)
    outcome(config)


@settings(max_examples=200)
@given(st.text(max_size=40) | st.binary(max_size=40))
def test_any_text_gives_a_model_or_an_error(text: str | bytes) -> None:
    outcome(text)


@settings(max_examples=100)
@given(st.sampled_from(sorted(CONFIGS)), st.floats(0, 1))
def test_a_truncated_config_is_refused(preset: str, share: float) -> None:
    text = CONFIGS[preset].rstrip()
    assert isinstance(outcome(text[: int(len(text) * share * 0.999)]), CalcError)
