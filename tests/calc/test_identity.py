"""Which blocks may serve which instance: the fields of the key, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calc.errors import CalcError
from calc.identity import FIELDS, Serving, block_key, compared, identity
from calc.scenario import Scenario

K3 = Scenario("kimi-k3", tp=8)


def first_difference(one: Any, other: Any) -> str | None:
    found = compared(identity(*one), identity(*other)).first
    return found.field.id if found else None


def test_a_bf16_cache_never_serves_an_fp8_instance() -> None:
    for model in ("deepseek-v3", "llama-3.1-8b", "gemma-3-27b", "kimi-k3"):
        bf16, fp8 = Scenario(model), Scenario(model, kv_dtype="fp8")
        assert first_difference((bf16,), (fp8,)) == "kv_dtype"
        assert identity(bf16).digest != identity(fp8).digest


def test_states_saved_at_another_interval_are_other_blocks() -> None:
    """SGLang names a state by where it was saved; the interval that is asked is part of the key."""
    sglang = Scenario("kimi-k3", tp=8, engine="sglang")
    assert identity(sglang).values["block_size"] == "mla 1, kda 256"
    assert identity(sglang, interval=1024).values["block_size"] == "mla 1, kda 1024"


def test_equal_scenarios_share_their_blocks() -> None:
    found = compared(identity(K3), identity(Scenario("kimi-k3", tp=8, batch=64, context=999)))
    assert found.compatible
    assert identity(K3).digest == identity(K3).digest
    assert len(identity(K3).digest) == 64


@pytest.mark.parametrize(
    ("model", "changed", "field"),
    [
        ("kimi-k3", {"tp": 4}, "rows"),
        ("kimi-k3", {"dcp": 8}, "block_size"),
        ("kimi-k3", {"state_dtype": "bf16"}, "states"),
        ("kimi-k3", {"engine": "sglang"}, "padding"),
        ("kimi-k3", {"pp": 2}, "pp"),
        ("kimi-k3", {"weight_format": "bf16"}, "weights"),
        ("llama-3.1-8b", {"block_size": 32}, "block_size"),
        ("llama-3.1-8b", {"tp": 4}, "rows"),
        ("llama-3.1-8b", {"kv_dtype": "int8_per_token_head"}, "kv_dtype"),
    ],
)
def test_each_option_that_changes_bytes_is_named(
    model: str, changed: dict[str, Any], field: str
) -> None:
    base = Scenario(model, tp=8)
    assert first_difference((base,), (replace(base, **changed),)) == field


def test_latent_rows_are_the_same_at_any_tp() -> None:
    """DeepSeek-V3 without dcp: every rank of either replica holds the whole row."""
    assert (
        first_difference((Scenario("deepseek-v3", tp=8),), (Scenario("deepseek-v3", tp=4),)) is None
    )


@pytest.mark.parametrize(
    ("model", "layout", "parts"),
    [
        ("deepseek-v3", {"tp": 8}, 1),  # seven ranks copy the latent rows of the first
        ("deepseek-v3", {"tp": 8, "dcp": 8}, 8),  # each has its stripe
        ("llama-3.1-8b", {"tp": 16}, 8),  # 8 KV heads, each on two ranks
        ("kimi-k3", {"tp": 8}, 8),  # latent rows alike, states cut in eight
    ],
)
def test_there_are_as_many_parts_as_ranks_hold_different_bytes(
    model: str, layout: dict[str, Any], parts: int
) -> None:
    scenario = Scenario(model, **layout)
    assert identity(scenario, Serving(part=parts - 1)).values["part"] == str(parts - 1)
    with pytest.raises(CalcError) as caught:
        identity(scenario, Serving(part=parts))
    assert (caught.value.code, caught.value.values["maximum"]) == ("identity_part", parts - 1)


def test_fp8_of_a_sparse_model_is_stored_as_the_packed_format() -> None:
    one = identity(Scenario("deepseek-v3.2", kv_dtype="fp8"))
    assert one.values["kv_dtype"] == "fp8_ds_mla"
    assert one.values["scales"] == "block"
    packed = Scenario("deepseek-v3.2", kv_dtype="fp8_ds_mla")
    assert first_difference((Scenario("deepseek-v3.2", kv_dtype="fp8"),), (packed,)) is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"rope": "yarn 4"}, "rope"),
        ({"lora": "sql"}, "lora"),
        ({"lora": "sql", "lora_version": "2"}, "lora"),
        ({"media": "9f"}, "media"),
        ({"draft": "eagle"}, "draft"),
        ({"salt": "team"}, "salt"),
        ({"part": 3}, "part"),
    ],
)
def test_what_a_deployment_adds_is_part_of_the_key(said: dict[str, Any], field: str) -> None:
    assert first_difference((K3,), (K3, Serving(**said))) == field


def test_two_versions_of_an_adapter_are_told_apart() -> None:
    one, other = (Serving(lora="sql", lora_version=version) for version in ("1", "2"))
    assert first_difference((K3, one), (K3, other)) == "lora_version"


def test_a_key_cannot_be_forged_by_moving_text_between_fields() -> None:
    one = identity(K3, Serving(rope='a","b', lora="c"))
    other = identity(K3, Serving(rope="a", lora='b","c'))
    assert one.digest != other.digest


def test_a_blocks_key_chains_all_that_stands_before_it() -> None:
    digest = identity(K3).digest
    first = block_key(digest, "", [1, 2])
    assert block_key(digest, first, [3, 4]) != block_key(
        digest, block_key(digest, "", [9, 2]), [3, 4]
    )
    fp8 = identity(replace(K3, kv_dtype="fp8")).digest
    assert block_key(fp8, "", [1, 2]) != first


def test_what_existing_keys_leave_out_is_what_their_source_leaves_out() -> None:
    """vLLM hashes tokens, adapter, media and salt; dtype and layout are left to its one pool."""
    kept = {field.id for field in FIELDS if field.vllm == "yes"}
    assert kept == {"lora", "media", "salt", "block_size"}
    checked = {field.id for field in FIELDS if field.nixl == "handshake"}
    assert {"tp_parts", "block_size", "padding"} <= checked
    assert {field.id: field.lmcache for field in FIELDS}["kv_dtype"] == "partly"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"rope": "x" * 121}, "identity_text"),
        ({"salt": "a\nb"}, "identity_text"),
        ({"lora_version": "1"}, "identity_lora"),
        ({"interleave": 0}, "out_of_range"),
        ({"part": 8}, "identity_part"),
        ({"interleave": 100}, "identity_interleave"),
    ],
)
def test_what_cannot_be_is_refused_by_name(said: dict[str, Any], code: str) -> None:
    with pytest.raises(CalcError) as caught:
        identity(Scenario("kimi-k3", tp=8, dcp=8), Serving(**said))
    assert caught.value.code == code
