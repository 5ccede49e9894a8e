"""What layouts are legal, why others are not, and that the values offered instead are true."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.engines import ENGINES
from calc.errors import CalcError
from calc.layers import AnyMixer, ChunkedAttention, Mamba2, SlidingWindowAttention
from calc.layout import Layout, check_layout, legal_dcp, legal_tp
from calc.model import ModelSpec
from calc.presets import load_preset, preset_ids
from tests.calc.models import gqa, layers, mla, model

VLLM = ENGINES["vllm"]
SGLANG = ENGINES["sglang"]
WINDOW = SlidingWindowAttention(heads=8, kv_heads=8, k_dim=64, v_dim=64, window=128)
CHUNKED = ChunkedAttention(heads=8, kv_heads=8, k_dim=64, v_dim=64, chunk=128)
MAMBA2 = Mamba2(heads=24, head_dim=64, state_size=64, groups=8, conv_kernel=4)


def refusal(of: ModelSpec, engine: Any = VLLM, **sizes: Any) -> CalcError:
    with pytest.raises(CalcError) as caught:
        check_layout(of, Layout(**sizes), engine)
    return caught.value


def is_legal(of: ModelSpec, engine: Any = VLLM, **sizes: Any) -> bool:
    try:
        check_layout(of, Layout(**sizes), engine)
    except CalcError:
        return False
    return True


def offered(error: CalcError) -> list[int]:
    """The sizes that the message lists, from its text."""
    listed = re.search(r"may be ([0-9, ]+)$", str(error))
    assert listed, str(error)
    return [int(size) for size in listed[1].split(", ")]


# --- tp -------------------------------------------------------------------------------------------


def test_tp_3_does_not_divide_128_heads() -> None:
    error = refusal(load_preset("deepseek-v3"), tp=3)
    assert (error.code, error.field) == ("tp_heads", "tp")
    assert str(error) == (
        "tp: 3 does not divide the 128 query heads of mla layers; "
        "tp may be 1, 2, 4, 8, 16, 32, 64, 128"
    )


def test_tp_4_fits_no_10_kv_heads() -> None:
    error = refusal(model(layers(1, gqa(40, 10))), tp=4)
    assert (error.code, error.field) == ("tp_replicas", "tp")
    assert "neither divides the 10 KV heads" in str(error)
    assert offered(error) == [1, 2, 5, 10, 20, 40]


def test_groups_of_mamba2_are_divided_by_tp_or_copied_whole() -> None:
    error = refusal(model(layers(1, MAMBA2)), tp=6)
    assert (error.code, error.field) == ("tp_replicas", "tp")
    assert "the 8 groups of mamba2 layers" in str(error)
    assert offered(error) == [1, 2, 4, 8, 24]


def test_every_layer_has_a_say_in_tp() -> None:
    error = refusal(model(layers(1, gqa(16, 4)), layers(1, gqa(12, 12))), tp=8)
    assert offered(error) == [1, 2, 4]


# --- dcp ------------------------------------------------------------------------------------------


def test_dcp_must_divide_tp() -> None:
    error = refusal(load_preset("kimi-k3"), tp=8, dcp=3)
    assert (error.code, error.field) == ("dcp_divides_tp", "dcp")
    assert offered(error) == [1, 2, 4, 8]


def test_the_sizes_offered_for_dcp_are_those_of_the_model_and_not_of_tp_alone() -> None:
    error = refusal(load_preset("llama-3.1-70b"), tp=16, dcp=3)
    assert error.code == "dcp_divides_tp"
    assert offered(error) == [1, 2]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "legal"),
    [
        (64, 8, 8, [1]),  # tp must exceed the KV heads
        (64, 8, 16, [1, 2]),
        (64, 4, 32, [1, 2, 4, 8]),
        (64, 1, 8, [1, 2, 4, 8]),
        (6, 1, 6, [1, 2, 3, 6]),
        (12, 4, 12, [1, 3]),
    ],
)
def test_vllm_stripes_only_the_copies_of_a_kv_head(
    heads: int, kv_heads: int, tp: int, legal: list[int]
) -> None:
    """vLLM 0.33 config/model.py verify_with_parallel_config: dcp <= tp / kv_heads."""
    of = model(layers(1, gqa(heads, kv_heads)))
    assert legal_dcp(of, tp, VLLM) == legal
    error = refusal(of, tp=tp, dcp=tp) if tp not in legal else refusal(of, tp=tp, dcp=tp + 1)
    assert error.field == "dcp"
    assert offered(error) == legal


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "legal"),
    [
        (64, 8, 8, [1, 2, 4, 8]),  # heads are split over tp / dcp ranks first
        (64, 8, 16, [1, 2, 4, 8, 16]),
        (48, 12, 24, [1, 2, 4, 6, 8, 12, 24]),  # tp / dcp = 8 would cut 12 heads
    ],
)
def test_sglang_lets_the_kv_heads_be_split_over_the_ranks_that_dcp_leaves(
    heads: int, kv_heads: int, tp: int, legal: list[int]
) -> None:
    """SGLang 0.5.23 configs/model_config.py get_num_kv_heads."""
    assert legal_dcp(model(layers(1, gqa(heads, kv_heads))), tp, SGLANG) == legal


@pytest.mark.parametrize("engine", [VLLM, SGLANG], ids=lambda engine: engine.id)
@pytest.mark.parametrize("mixer", [WINDOW, CHUNKED], ids=lambda mixer: mixer.kind)
def test_no_engine_stripes_windows_or_chunks(mixer: AnyMixer, engine: Any) -> None:
    error = refusal(model(layers(1, mla(8)), layers(1, mixer)), engine, tp=8, dcp=2)
    assert (error.code, error.field) == ("dcp_kind", "dcp")
    assert f"{engine.name} has no decode context parallelism for {mixer.kind} layers" in str(error)


def test_there_is_nothing_to_stripe_in_a_model_of_states() -> None:
    error = refusal(model(layers(1, MAMBA2), layers(1)), tp=8, dcp=2)
    assert (error.code, error.field) == ("dcp_nothing", "dcp")


# --- pp -------------------------------------------------------------------------------------------


def test_every_pipeline_stage_needs_a_layer() -> None:
    of = model(layers(5, mla()))
    assert is_legal(of, pp=5)
    error = refusal(of, pp=6)
    assert (error.code, error.field) == ("pp_layers", "pp")
    assert "the model has 5" in str(error)


# --- What is offered is legal, and nothing legal is left out --------------------------------------

some_layers = st.one_of(
    st.builds(
        lambda group, kv: gqa(group * kv, kv, 64), st.sampled_from([1, 2, 3, 8]), st.integers(1, 12)
    ),
    st.builds(mla, st.sampled_from([6, 16, 48, 64])),
    st.builds(
        lambda group, groups: Mamba2(
            heads=group * groups, head_dim=64, state_size=64, groups=groups, conv_kernel=4
        ),
        st.sampled_from([1, 3, 4]),
        st.sampled_from([1, 6, 8]),
    ),
    st.just(WINDOW),
)
some_models = st.lists(some_layers, min_size=1, max_size=3).map(
    lambda mixers: model(*(layers(1, mixer) for mixer in mixers))
)


@given(of=some_models, engine=st.sampled_from([VLLM, SGLANG]), tp=st.integers(1, 64))
def test_legal_sizes_are_exactly_those_that_pass(of: ModelSpec, engine: Any, tp: int) -> None:
    assert (tp in legal_tp(of)) == is_legal(of, engine, tp=tp)
    if tp in legal_tp(of):
        tried = [dcp for dcp in range(1, tp + 2) if is_legal(of, engine, tp=tp, dcp=dcp)]
        assert legal_dcp(of, tp, engine) == tried


@given(
    of=some_models,
    engine=st.sampled_from([VLLM, SGLANG]),
    tp=st.integers(1, 64),
    dcp=st.integers(1, 64),
)
def test_a_message_offers_every_legal_size_and_no_other(
    of: ModelSpec, engine: Any, tp: int, dcp: int
) -> None:
    if is_legal(of, engine, tp=tp, dcp=dcp):
        return
    error = refusal(of, engine, tp=tp, dcp=dcp)
    if error.field == "tp":
        assert offered(error) == [size for size in legal_tp(of) if is_legal(of, engine, tp=size)]
    elif str(error).endswith("dcp must be 1"):
        assert legal_dcp(of, tp, engine) == [1]
    else:
        assert offered(error) == legal_dcp(of, tp, engine)


@pytest.mark.parametrize("preset", preset_ids())
def test_one_rank_and_one_stage_a_layer_are_legal_for_every_preset(preset: str) -> None:
    of = load_preset(preset)
    assert 1 in legal_tp(of)
    assert is_legal(of, dp=7, pp=of.layer_count)


def test_a_world_is_tp_times_dp_times_pp_and_dcp_lies_inside_tp() -> None:
    layout = Layout(tp=8, dcp=4, dp=3, pp=2)
    assert (layout.replica_ranks, layout.world_size) == (16, 48)
