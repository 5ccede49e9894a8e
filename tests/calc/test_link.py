"""A link opens to what was sent, for ever; and names what is wrong with it."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.fields import ChoiceField, NumberField, WholeField
from calc.layers import DenseFfn, MoeFfn, SlidingWindowAttention
from calc.link import (
    MAX_SPEC_BYTES,
    LinkError,
    decode,
    decode_query,
    encode,
    pack_spec,
    query_string,
    unpack_spec,
)
from calc.presets import CUSTOM, load_preset, preset_ids
from calc.report import evaluate
from calc.scenario import FIELDS, Scenario
from calc.version import FORMULAS
from tests.calc.models import gqa, layers, mla, model

STORED = Path(__file__).resolve().parents[1] / "data" / "links_v1.txt"

KIMI = {key: [text] for key, text in encode(Scenario("kimi-k3", tp=8, dcp=8)).items()}


def field_values(field: Any) -> st.SearchStrategy[Any]:
    """Every value that a field allows."""
    match field:
        case WholeField():
            return st.integers(field.minimum, field.maximum)
        case NumberField():
            return st.floats(field.minimum, field.maximum)
        case ChoiceField():
            return st.sampled_from(field.choices)
    raise AssertionError(field)


settings = st.fixed_dictionaries({name: field_values(field) for name, field in FIELDS.items()})
widths = st.integers(1, 2**20)
attentions = st.builds(
    lambda group, kv_heads, width, window: SlidingWindowAttention(
        heads=group * kv_heads, kv_heads=kv_heads, k_dim=width, v_dim=width, window=window
    ),
    st.integers(1, 16),
    st.integers(1, 256),
    widths,
    st.integers(1, 2**30),
)
latents = st.builds(mla, st.integers(1, 256), q_lora_rank=st.none() | widths, sparse=st.booleans())
ffns = st.builds(DenseFfn, intermediate_size=widths, gated=st.booleans()) | st.builds(
    MoeFfn, experts=st.just(64), top_k=st.integers(1, 64), intermediate_size=widths
)
runs = st.builds(
    lambda count, mixer, ffn: layers(count, mixer, ffns=(ffn,)),
    st.integers(1, 100),
    attentions | latents,
    ffns,
)
specs = st.lists(runs, min_size=1, max_size=6).map(lambda made: model(*made))


def changed(**keys: str | list[str] | None) -> dict[str, list[str]]:
    """The keys of a good link with some replaced, added or (None) left out."""
    made = KIMI | {
        key: [text] if isinstance(text, str) else text
        for key, text in keys.items()
        if text is not None
    }
    return {key: texts for key, texts in made.items() if keys.get(key, "") is not None}


def problems_of(params: dict[str, list[str]]) -> list[str]:
    with pytest.raises(LinkError) as caught:
        decode(params)
    return [str(problem) for problem in caught.value.problems]


# --- What was sent is what arrives ----------------------------------------------------------------


@pytest.mark.parametrize("preset", preset_ids())
def test_every_preset_survives_the_trip(preset: str) -> None:
    sent = Scenario(preset, batch=3)
    opened = decode_query(query_string(encode(sent, seen=evaluate(sent).headline())))
    assert opened.scenario == sent
    assert opened.revision == load_preset(preset).revision
    assert opened.seen == evaluate(sent).headline()


@given(fields=settings)
def test_any_scenario_survives_the_trip_to_the_last_digit(fields: dict[str, Any]) -> None:
    sent = Scenario("kimi-k3", **fields)
    assert decode_query(query_string(encode(sent))).scenario == sent


@given(spec=specs)
def test_any_custom_model_survives_the_trip(spec: Any) -> None:
    sent = Scenario(CUSTOM, spec=spec)
    assert decode_query(query_string(encode(sent))).scenario == sent


@pytest.mark.parametrize("preset", preset_ids())
def test_any_preset_turned_custom_can_be_packed_and_read(preset: str) -> None:
    spec = load_preset(preset).model_copy(update={"id": CUSTOM})
    assert unpack_spec(pack_spec(spec)) == spec


def test_a_link_writes_every_field_even_at_its_default() -> None:
    assert set(encode(Scenario("kimi-k3"))) == {"v", "model", "r", "f", *FIELDS}


# --- Old links ------------------------------------------------------------------------------------


def stored_links() -> list[tuple[str, list[int]]]:
    """The stored links with the headline numbers that they must open to."""
    lines = STORED.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [(link, [int(number) for number in numbers]) for link, *numbers in rows]


@pytest.mark.parametrize(("link", "numbers"), stored_links())
def test_a_link_of_version_1_opens_to_the_same_numbers_for_ever(
    link: str, numbers: list[int]
) -> None:
    assert list(evaluate(decode_query(link).scenario).headline()) == numbers


FROZEN = {
    "engine": "vllm",
    "tp": 1,
    "dcp": 1,
    "dp": 1,
    "pp": 1,
    "context": 8192,
    "batch": 1,
    "kv_dtype": "bf16",
    "conv_dtype": "auto",
    "state_dtype": "auto",
    "dcp_backend": "auto",
    "query_replication": "auto",
    "kv_cache_memory_gib": 80.0,
    "ep": "off",
    "pcp": 1,
    "speculative_tokens": 0,
    "moe_backend": "auto",
    "dispatch_dtype": "auto",
    "query_dtype": "bf16",
    "sequence_parallel": "off",
    "collective_algorithm": "ring",
    "gpus_per_node": 8,
    "prefill_tokens": 0,
    "gpu": "none",
    "gpu_memory_gib": 80.0,
    "cache_memory": "auto",
    "gpu_memory_utilization": 0.92,
    "mem_fraction_static": 0.0,
    "activation_gib": 2.0,
    "cuda_graph_gib": 1.0,
    "communication_gib": 0.5,
    "max_num_batched_tokens": 8192,
    "async_scheduling": "on",
    "block_size": 0,
    "prefix_caching": "on",
    "hybrid_kv_manager": "on",
    "swa_full_tokens_ratio": 0.8,
    "mamba_full_memory_ratio": 0.9,
    "shared_prefix": 0,
    "lengths": "off",
    "pp_layers": "even",
    "weight_format": "checkpoint",
    "hbm_efficiency": 0.0,
    "attention_efficiency": 0.0,
    "gemm_efficiency": 0.0,
}
"""The default of each key when it was introduced; never change one, add below."""


@pytest.mark.parametrize(("key", "default"), FROZEN.items())
def test_a_key_that_an_old_link_lacks_takes_the_default_of_its_time(key: str, default: Any) -> None:
    opened = decode({"v": ["1"], "model": ["kimi-k3"]}).scenario
    assert getattr(opened, key) == default
    assert FIELDS[key].default == default


def test_no_field_comes_without_a_frozen_default() -> None:
    assert set(FIELDS) == set(FROZEN)


# --- Links that are wrong -------------------------------------------------------------------------

NUMBERS = [" 8 ", "8 ", "1_6", "8.0", "true", "٨", "８", "+8", "08", "0x8", "", "NaN", "1e3", "8\n"]


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize("key", ["tp", "r"])
def test_a_whole_number_is_plain_digits_or_the_key_is_named(key: str, text: str) -> None:
    (problem,) = problems_of(changed(**{key: text}))
    assert problem.startswith(f"{key}: ")
    assert "is not a whole number; allowed: 1 to " in problem


@pytest.mark.parametrize("text", ["NaN", "inf", "-inf", "1e3", " 1", "1_0", ".5", "5.", "٨", ""])
def test_a_decimal_number_is_plain_or_the_key_is_named(text: str) -> None:
    (problem,) = problems_of(changed(kv_cache_memory_gib=text))
    assert problem.startswith("kv_cache_memory_gib: ")
    assert "is not a number; allowed: 0.001 to 100000" in problem


@pytest.mark.parametrize("text", ["0", "-1", "1025", "9" * 21, str(10**30), "-" + "9" * 30])
def test_a_number_out_of_range_names_its_key_and_the_range(text: str) -> None:
    (problem,) = problems_of(changed(tp=text))
    assert problem.startswith("tp: ")
    assert "out of range; allowed: 1 to 1024" in problem


@pytest.mark.parametrize("text", ["0", "100001", "9" * 400])
def test_a_budget_out_of_range_names_its_key_and_the_range(text: str) -> None:
    (problem,) = problems_of(changed(kv_cache_memory_gib=text))
    assert problem.startswith("kv_cache_memory_gib: ")
    assert "allowed: 0.001 to 100000.0" in problem


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (changed(tpp="8"), "tpp: this key is not part of a link"),
        (changed(language="en"), "language: this key is not part of a link"),
        (changed(tp=["8", "8"]), "tp: the key appears 2 times"),
        (changed(tp=[]), "tp: the key appears 0 times"),
        (changed(v=None), "v: this page reads links of version 1, not None"),
        (changed(v="2"), "v: this page reads links of version 1, not '2'"),
        (changed(v=["1", "1"]), "v: "),
        ({}, "v: "),
        (changed(model=None), "model: this field is missing"),
        (changed(model="kimi-k4"), "model: there is no preset 'kimi-k4'; known: "),
        (changed(model="../kimi-k3"), "model: there is no preset"),
        (changed(model="custom"), "spec: model is `custom`, so a description"),
        (changed(engine="VLLM"), "engine: 'VLLM' is not one of vllm, sglang"),
        (changed(kv_dtype="fp4"), "kv_dtype: 'fp4' is not one of bf16, fp8"),
        (changed(seen="1,2"), "seen: "),
        (changed(seen="1" * 31), "seen: "),
        (changed(seen=""), "seen: "),
        (changed(r="0"), "r: 0 is out of range"),
        (changed(spec="abc"), "spec: "),
        (changed(spec=pack_spec(model(layers(1, mla())))), "spec: only a custom model"),
    ],
)
def test_what_is_wrong_with_a_link_is_said_by_key(params: dict[str, list[str]], named: str) -> None:
    (problem,) = problems_of(params)
    assert problem.startswith(named)


def test_all_wrong_keys_are_named_at_once() -> None:
    wrong = changed(tp="x", dcp="0", color="red", batch=["1", "2"])
    named = {problem.partition(":")[0] for problem in problems_of(wrong)}
    assert named == {"tp", "dcp", "color", "batch"}


def test_an_error_carries_the_key_for_the_page() -> None:
    with pytest.raises(LinkError) as caught:
        decode(changed(tp="x", color="red"))
    assert [problem.field for problem in caught.value.problems] == ["tp", "color"]


@pytest.mark.parametrize("key", ["x", "tp", "spec", "model"])
def test_a_megabyte_is_refused_before_it_is_read(key: str) -> None:
    assert problems_of(changed(**{key: "9" * 10**6}))[0].startswith("link: 1000")
    with pytest.raises(LinkError, match="link: 1000"):
        decode_query(f"v=1&{key}={'9' * 10**6}")


@pytest.mark.parametrize("query", ["tp", "v=1&tp", "v=1;tp=8", "%ff=1", "v=1&model=%ff%fe", "&"])
def test_text_that_is_no_query_is_refused(query: str) -> None:
    with pytest.raises(LinkError, match=r"link: it cannot be read|v: "):
        decode_query(query)


@given(query=st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_no_text_at_all_raises_anything_but_a_link_error(query: str) -> None:
    with pytest.raises(LinkError):
        decode_query(query)


# --- Custom models that are wrong -----------------------------------------------------------------

GOOD_SPEC = pack_spec(model(layers(3, gqa(8, 2))))
GOOD_JSON = model(layers(3, gqa(8, 2))).model_dump_json(exclude_defaults=True)


def packed(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(zlib.compress(data, 9)).decode().rstrip("=")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_the_good_description_is_good() -> None:
    assert unpack_spec(GOOD_SPEC) == unpack_spec(packed(GOOD_JSON)) == model(layers(3, gqa(8, 2)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "damaged or cut off"),
        ("!!!", "damaged or cut off"),
        ("äöü", "damaged or cut off"),
        (GOOD_SPEC[::-1], "damaged or cut off"),
        (GOOD_SPEC + "=", "damaged or cut off"),
        (GOOD_SPEC[: len(GOOD_SPEC) // 2], "cut off"),
        (base64.urlsafe_b64encode(b"no zlib").decode(), "damaged or cut off"),
        (packed(b" " * (MAX_SPEC_BYTES + 1)), "larger than 65,536 bytes"),
        (packed(b"\0" * 10**6), "larger than 65,536 bytes"),
        (packed(nested(30_000)), "not plain JSON"),
        (packed('{"id": "custom", "id": "custom"}'), "not plain JSON"),
        (packed(GOOD_JSON.replace('"count":3', '"count":3,"count":4')), "not plain JSON"),
        (packed(GOOD_JSON.replace('"count":3', '"count":' + "9" * 5_000)), "not plain JSON"),
        (packed(b"\xff\xfe\x00"), "not plain JSON"),
        (packed(GOOD_JSON.replace('"id":"custom"', '"id":"kimi-k3"')), "its id is not custom"),
        (packed("1"), "whole"),
        (packed("{}"), "missing_id|id"),
        (packed(nested(300)), "whole"),
        (packed(GOOD_JSON.replace('"count":3', '"count":3.5')), "layers.0.count"),
        (packed(GOOD_JSON.replace('"count":3', '"count":NaN')), "layers.0.count|whole"),
        (packed(GOOD_JSON.replace('"count":3', '"count":true')), "layers.0.count"),
        (packed(GOOD_JSON.replace('"count":3', '"count":' + "9" * 30)), "layers.0.count"),
        (packed(GOOD_JSON.replace('"count":3', '"count":3,"cuont":4')), "layers.0.cuont"),
        (packed(GOOD_JSON.replace('"heads":8', '"heads":7')), "multiple of kv_heads"),
        (packed(GOOD_JSON.replace('"kind":"attention"', '"kind":"eval"')), "layers.0.mixers.0"),
        (packed(GOOD_JSON.replace('"count":3', f'"{"k" * 60_000}":3')), "layers.0.kkk"),
    ],
)
def test_a_description_that_cannot_be_read_says_so_under_spec(text: str, reason: str) -> None:
    (problem,) = problems_of(changed(model="custom", spec=text))
    assert problem.startswith("spec: ")
    assert any(part in problem for part in reason.split("|"))
    assert len(problem) < 400


def test_bytes_behind_a_description_are_not_overlooked() -> None:
    data = zlib.compress(GOOD_JSON.encode()) + b"more"
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert problems_of(changed(model="custom", spec=text))[0].startswith("spec: ")


def test_view_inputs_travel_and_defaults_stay_home() -> None:
    made = Scenario("deepseek-v3")
    keys = encode(made, asked={"reuse_part": "storage", "traffic_part": "bytes"})
    assert keys.keys() - encode(made).keys() == {"reuse_part"}
    assert decode_query(query_string(keys)).asked == {"reuse_part": "storage"}


@pytest.mark.parametrize("key", ["reuse_part", "lang", "view"])
def test_what_stands_beside_a_scenario_is_read_as_strictly(key: str) -> None:
    with pytest.raises(LinkError, match=key):
        decode_query(f"v=1&model=deepseek-v3&{key}=nowhere")


def test_the_pages_own_link_is_read_elsewhere_too() -> None:
    keys = encode(Scenario("deepseek-v3", tp=8)) | {"lang": "zh", "view": "reuse"}
    assert decode_query(query_string(keys)).scenario.tp == 8


def test_a_link_says_which_formulas_it_was_made_with() -> None:
    made = encode(Scenario("deepseek-v3"))
    assert decode_query(query_string(made)).formulas == FORMULAS
    assert decode_query("v=1&model=deepseek-v3").formulas == 1  # before links said so
