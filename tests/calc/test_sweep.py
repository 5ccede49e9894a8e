"""Sweeps: arrays equal the scalar path point by point, and what cannot be swept is named."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.report import evaluate
from calc.scenario import Scenario
from calc.sweep import (
    MAX_LOOPED,
    MAX_POINTS,
    Axis,
    listed,
    read_axis,
    steps,
    sweep_over,
    times_apart,
)
from calc.sweep_outputs import OUTPUTS

BASES = {
    "latent and state, striped": Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131_072),
    "latent, staged, on a GPU": Scenario("deepseek-v3", tp=8, pp=4, dp=2, ep="on", gpu="h200"),
    "windows": Scenario("gpt-oss-120b", tp=4, batch=7, gpu="h100"),
    "short of the prefill": Scenario("llama-3.1-8b", prefill_tokens=5_000),
}


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("output", [made.id for made in OUTPUTS.values() if made.over_grid])
@given(
    contexts=st.lists(st.integers(1, 2**30), min_size=1, max_size=3),
    batches=st.lists(st.integers(1, 2**20), min_size=1, max_size=2),
)
@settings(max_examples=4, deadline=None)
def test_an_array_equals_the_scalar_path_at_every_point(
    name: str, output: str, contexts: list[int], batches: list[int]
) -> None:
    base = BASES[name]
    axes = [listed("batch", batches), listed("context", contexts)]
    turned = sweep_over(base, output, axes[::-1])
    made = sweep_over(base, output, axes)
    assert made.values.tolist() == turned.values.T.tolist()
    for batch, context, value in made.rows():
        try:
            expected = OUTPUTS[output].read(evaluate(replace(base, batch=batch, context=context)))
        except CalcError:
            expected = None
        assert value == expected, (batch, context)


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_equals_the_report_beside_a_looped_input(output: str) -> None:
    base = Scenario("kimi-k3", batch=4, gpu="h200", dp=8, ep="on")
    made = sweep_over(base, output, [listed("tp", [1, 8]), listed("context", [7_000, 100_000])])
    for tp, context, value in made.rows():
        report = evaluate(replace(base, tp=tp, context=context))
        assert value == OUTPUTS[output].read(report)


def test_a_point_that_cannot_be_is_empty_and_says_why() -> None:
    made = sweep_over(Scenario("deepseek-v3"), "request_bytes", [listed("tp", [1, 7, 8])])
    assert [value is None for *_, value in made.rows()] == [False, True, False]
    assert made.faults[(1,)].code == "tp_heads"


def test_widths_of_the_model_can_be_swept() -> None:
    made = sweep_over(
        Scenario("deepseek-v3", context=1), "request_bytes", [listed("kv_lora_rank", [512, 1024])]
    )
    assert [value for *_, value in made.rows()] == [61 * 2 * (512 + 64), 61 * 2 * (1024 + 64)]


def test_figures_beyond_64_bits_stay_exact() -> None:
    base = Scenario("deepseek-v3")
    made = sweep_over(base, "batch_bytes", [listed("context", [2**30]), listed("batch", [2**20])])
    assert made.values.tolist() == [[70_272 * 2**50]]


def test_ranges_are_read_as_they_are_typed() -> None:
    assert read_axis("kv_dtype=bf16,fp8") == Axis("kv_dtype", ("bf16", "fp8"))
    assert list(read_axis("context=8:20:4").values) == [8, 12, 16, 20]
    assert read_axis("tp=3:48:x2").values == (3, 6, 12, 24, 48)
    assert read_axis("tp=3:47:x2").values == (3, 6, 12, 24)
    assert list(read_axis("dp=2:4").values) == [2, 3, 4]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("context=9:8", "sweep_reversed"),
        ("context=64:8:x2", "sweep_reversed"),
        ("context=1:9:0", "sweep_step"),
        ("context=1:9:x1", "sweep_step"),
        ("context=", "sweep_empty"),
        ("context", "sweep_empty"),
        ("kv_dtype=1:9", "sweep_words"),
        ("context=1:1073741824", "sweep_too_large"),
        ("batch=1:69223372036854775808", "sweep_too_large"),  # more than a C integer counts
        ("context=1:99999999999:1000000", "out_of_range"),
        ("context=1,x", "not_an_integer"),
        ("nonsense=1", "not_a_choice"),
        ("lengths=1", "not_a_choice"),
    ],
)
def test_a_range_that_cannot_be_is_a_named_error(text: str, code: str) -> None:
    with pytest.raises(CalcError) as caught:
        read_axis(text)
    assert caught.value.code == code


def refused(*axes: Any, output: str = "request_bytes") -> CalcError:
    with pytest.raises(CalcError) as caught:
        sweep_over(Scenario("deepseek-v3"), output, axes)
    return caught.value


def test_too_many_points_are_refused_with_the_cap() -> None:
    error = refused(steps("context", 1, 2_000_000), steps("batch", 1, 1_000))
    assert (error.code, error.values["maximum"]) == ("sweep_too_large", MAX_POINTS)
    assert error.values["points"] == 2_000_000_000
    error = refused(steps("batch", 1, MAX_LOOPED + 1), output="sent_bytes")
    assert (error.code, error.values["maximum"]) == ("sweep_looped", MAX_LOOPED)


def test_one_or_two_different_inputs_are_swept() -> None:
    one = steps("tp", 1, 2)
    for axes in ([], [one, one], [one, steps("dp", 1, 2), steps("pp", 1, 2)]):
        assert refused(*axes).code == "sweep_axes"
    assert refused(one, output="beauty").code == "not_a_choice"


def test_words_have_no_range_and_progress_is_told() -> None:
    with pytest.raises(CalcError) as caught:
        steps("kv_dtype", 1, 2)
    assert caught.value.code == "sweep_words"
    told: list[float] = []
    sweep_over(Scenario("deepseek-v3"), "sent_bytes", [times_apart("tp", 1, 8)], told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_the_interval_between_states_is_swept_by_the_formulas_of_checkpoints() -> None:
    """Kimi K3 at tp = 8: states of 56,171,520 B a rank, saved at multiples of 768 tokens."""
    base = Scenario("kimi-k3", tp=8, context=100_000)
    axis = listed("state_interval", [768, 1000, 7680])
    stored = sweep_over(base, "snapshot_bytes", [axis])
    assert stored.values.tolist() == [130 * 56_171_520, None, 13 * 56_171_520]
    assert "no multiple of 768" in str(stored.faults[(1,)])
    again = sweep_over(base, "recomputed_tokens", [axis, listed("tp", [8])])
    means = [sum(n % step for n in range(100_000)) / 100_000 for step in (768, 7680)]
    assert again.values[[0, 2], 0].tolist() == pytest.approx(means)
    assert again.values[1, 0] is None


def test_an_interval_between_states_says_where_it_means_nothing() -> None:
    axis = listed("state_interval", [768])
    with pytest.raises(CalcError, match="request_bytes does not depend on it"):
        sweep_over(Scenario("kimi-k3", tp=8), "request_bytes", [axis])
    stateless = sweep_over(Scenario("deepseek-v3"), "snapshot_bytes", [axis])
    assert stateless.values.tolist() == [None]
    assert "keeps no states" in str(stateless.faults[(0,)])


@pytest.mark.parametrize("output", ["request_bytes", "batch_bytes", "max_requests", "sent_bytes"])
def test_an_axis_of_one_value_is_an_axis_too(output: str) -> None:
    base = Scenario("deepseek-v3")
    for axes in (
        [listed("context", [1000, 2000]), listed("tp", [8])],
        [listed("tp", [8]), listed("context", [1000, 2000])],
        [listed("context", [1000]), listed("tp", [8])],
        [listed("batch", [7]), listed("context", [1000, 2000])],
    ):
        made = sweep_over(base, output, axes)
        assert made.values.shape == tuple(len(axis.values) for axis in axes)
        for first, second, value in made.rows():
            point = replace(base, **{axes[0].name: first, axes[1].name: second})
            assert value == OUTPUTS[output].read(evaluate(point))


def test_multiples_of_nothing_are_refused() -> None:
    with pytest.raises(CalcError, match="batch: 0 is out of range"):
        read_axis("batch=0:64:x2")
