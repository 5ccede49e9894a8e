"""Every field of a Scenario: its bounds, its type, and what a faulty value is told."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from calc.errors import CalcError
from calc.fields import ChoiceField, NumberField, WholeField
from calc.layers import Attention, LightningAttention
from calc.presets import CUSTOM
from calc.report import evaluate
from calc.scenario import FIELDS, Scenario, scenario_fields
from tests.calc.models import gqa, layers, mla, model, report

WHOLE = [field for field in FIELDS.values() if isinstance(field, WholeField)]
NUMBERS = [field for field in FIELDS.values() if isinstance(field, NumberField)]
CHOICES = [field for field in FIELDS.values() if isinstance(field, ChoiceField)]


def named(fields_: list[Any]) -> Any:
    return pytest.mark.parametrize("field", fields_, ids=lambda field: field.name)


def refusal(model_id: Any = "kimi-k3", **changed: Any) -> CalcError:
    with pytest.raises(CalcError) as caught:
        evaluate(Scenario(model_id, **changed))
    return caught.value


@named(WHOLE + NUMBERS)
def test_a_field_allows_both_its_bounds_and_nothing_beyond(field: Any) -> None:
    step = 1 if isinstance(field, WholeField) else 1e-6
    for good in (field.minimum, field.maximum):
        assert field.check(good) == field.parse(field.format(good)) == good
    for bad in (field.minimum - step, field.maximum + step, -field.maximum, 10**30, -(10**5_000)):
        error = refusal(**{field.name: bad})
        assert (error.code, error.field) == ("out_of_range", field.name)
        assert f"allowed: {field.minimum} to {field.maximum}" in str(error)
        assert len(str(error)) < 150


@named(WHOLE)
@pytest.mark.parametrize("bad", [True, False, None, "8", 8.0, math.nan, [8], b"8", 8j])
def test_a_whole_number_is_an_int_and_nothing_that_looks_like_one(
    field: WholeField, bad: Any
) -> None:
    error = refusal(**{field.name: bad})
    assert (error.code, error.field) == ("not_an_integer", field.name)


@named(NUMBERS)
@pytest.mark.parametrize("bad", [True, None, "80", math.nan, [80.0]])
def test_a_number_is_an_int_or_a_float_that_is_one(field: NumberField, bad: Any) -> None:
    error = refusal(**{field.name: bad})
    assert (error.code, error.field) == ("not_a_number", field.name)


@named(NUMBERS)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, 10**400])
def test_infinity_is_out_of_range(field: NumberField, bad: Any) -> None:
    assert refusal(**{field.name: bad}).code == "out_of_range"


@named(CHOICES)
@pytest.mark.parametrize("bad", ["", "BF16", "nonesuch", None, 1, True, ["bf16"], "x" * 10_000])
def test_a_choice_is_one_of_its_words_and_the_message_lists_them(
    field: ChoiceField, bad: Any
) -> None:
    error = refusal(**{field.name: bad})
    assert (error.code, error.field) == ("not_a_choice", field.name)
    assert ", ".join(field.choices) in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_the_table_of_fields_and_the_scenario_have_the_same_defaults(field: Any) -> None:
    assert field.default == getattr(Scenario("kimi-k3"), field.name)
    assert field.check(field.default) == field.default


def test_the_table_lists_every_field_but_the_model_and_its_description() -> None:
    assert scenario_fields() == tuple(field.name for field in fields(Scenario))
    assert set(scenario_fields()) == {"model", "spec", *FIELDS}


@pytest.mark.parametrize("bad", ["", "kimi", "KIMI-K3", "../models/kimi-k3", "x" * 10**6])
def test_an_unknown_preset_is_named_with_the_known_ones(bad: str) -> None:
    error = refusal(bad)
    assert (error.code, error.field) == ("unknown_preset", "model")
    assert "deepseek-v3" in str(error)
    assert len(str(error)) < 3_000


@pytest.mark.parametrize("bad", [None, 5, True, ["kimi-k3"], b"kimi-k3"])
def test_a_model_is_named_by_text(bad: Any) -> None:
    assert refusal(bad).field == "model"


def test_a_description_belongs_to_a_custom_model_and_only_to_one() -> None:
    spec = model(layers(1, mla()))
    assert refusal(CUSTOM).code == "custom_missing"
    assert refusal("kimi-k3", spec=spec).code == "custom_unused"
    assert refusal(CUSTOM, spec={"id": CUSTOM}).field == "spec"
    renamed = spec.model_copy(update={"id": "mine"})
    assert "its id is not custom" in str(refusal(CUSTOM, spec=renamed))


def test_a_model_that_keeps_nothing_is_refused() -> None:
    reader = Attention(heads=8, kv_heads=8, k_dim=64, v_dim=64, reads_other_layer=True)
    for empty in (model(layers(4)), model(layers(4, reader))):
        error = refusal(CUSTOM, spec=empty)
        assert (error.code, error.field) == ("nothing_kept", "model")


# --- Options that an engine does not have ---------------------------------------------------------


def test_a_backend_that_the_engine_lacks_is_named_with_those_it_has() -> None:
    error = refusal(dcp_backend="fi_a2a")
    assert (error.code, error.field) == ("backend_unknown", "dcp_backend")
    assert "it has ag_rs, a2a" in str(error)


def test_query_replication_is_refused_where_an_engine_has_no_path_for_it() -> None:
    assert refusal(query_replication="on").field == "query_replication"
    assert refusal("llama-3.1-8b", engine="sglang", query_replication="on").field == (
        "query_replication"
    )
    assert report("kimi-k3", engine="sglang", query_replication="on").query_replicated


@pytest.mark.parametrize(
    ("engine", "backend", "replicated"),
    [("vllm", "ag_rs", False), ("sglang", "a2a", True)],
)
def test_an_engines_defaults_for_kimi_k3_are_its_own(
    engine: str, backend: str, replicated: bool
) -> None:
    found = report("kimi-k3", engine=engine, tp=8, dcp=8)
    assert (found.backend, found.query_replicated) == (backend, replicated)


@pytest.mark.parametrize("kv_dtype", ["fp8_ds_mla", "nvfp4_ds_mla"])
def test_a_latent_format_is_refused_for_dense_rows(kv_dtype: str) -> None:
    error = refusal("llama-3.1-8b", kv_dtype=kv_dtype)
    assert (error.code, error.field) == ("format_kind", "kv_dtype")


@pytest.mark.parametrize(
    ("mixer", "kv_dtype", "divisor"),
    [
        (gqa(8, 8, 4), "nvfp4", 16),
        (mla(kv_lora_rank=511), "int4_per_token_head", 2),
        (mla(kv_lora_rank=64), "fp8_ds_mla", 128),
        (mla(kv_lora_rank=24), "nvfp4_ds_mla", 16),
    ],
)
def test_a_width_that_a_format_cannot_pack_is_refused_under_kv_dtype(
    mixer: Any, kv_dtype: str, divisor: int
) -> None:
    error = refusal(CUSTOM, spec=model(layers(1, mixer)), kv_dtype=kv_dtype)
    assert (error.code, error.field) == ("format_width", "kv_dtype")
    assert f"divisible by {divisor}" in str(error)


def test_vllm_keeps_no_lightning_state_in_float32_and_sglang_does() -> None:
    spec = model(layers(1, LightningAttention(heads=8, head_dim=64)))
    error = refusal(CUSTOM, spec=spec, state_dtype="float32")
    assert (error.code, error.field) == ("state_dtype_kind", "state_dtype")
    found = report(spec, engine="sglang", state_dtype="float32")
    assert found.cache.stage.state_per_request.value == 8 * 64 * 64 * 4


def test_an_error_is_its_message_with_the_values_filled_in() -> None:
    error = refusal(tp=7)
    assert error.values["tp"] == 7
    assert str(error).startswith("tp: 7 does not divide the 96 ")
