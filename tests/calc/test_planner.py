"""The planner's rows are real scenarios with evaluate's own figures, all legal ones, in order."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from calc.capacity import fit
from calc.errors import CalcError
from calc.layout import check_layout
from calc.link import decode_query
from calc.plan_answers import plan_json, plan_of, why
from calc.plan_inputs import OBJECTIVES
from calc.planner import Limits, Plan, merit, plan
from calc.report import evaluate
from calc.scenario import Scenario
from calc.sweep import Axis, sweep_over
from calc.timing.report import times

KIMI = Scenario("kimi-k3", gpu="h200", batch=16, context=131_072)
DEEPSEEK = Scenario("deepseek-v3", gpu="h200", batch=16, context=32_768)
LLAMA = Scenario("llama-3.1-8b", gpu="h100", batch=8, context=8_192)


SIZES = ("tp", "dcp", "dp", "pp", "ep")


def rows_of(base: Scenario, gpus: int, **options: Any) -> Plan:
    return plan(base, gpus, **options)


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (KIMI, {"backends": ["all"], "replications": ["all"], "kv_dtypes": ["bf16", "fp8"]}),
        (DEEPSEEK, {"engines": ["all"], "backends": ["all"], "replications": ["all"]}),
        (replace(LLAMA, cache_memory="typed"), {"engines": ["all"], "kv_dtypes": ["all"]}),
    ],
)
def test_every_figure_is_that_of_the_row_as_a_scenario(
    base: Scenario, options: dict[str, Any]
) -> None:
    rows = rows_of(base, 16, **options).rows
    for row in rows[:: max(1, len(rows) // 30)]:
        report, figures = evaluate(row.scenario), row.figures
        assert (row.gpus, row.scenario.pcp) == (16, 1)
        weights_short = report.engine.budget.short_bytes
        assert figures.weights_short == weights_short
        assert figures.fits == report.fit.fits
        assert figures.short_bytes == report.fit.short_bytes >= weights_short
        assert figures.max_requests == report.fit.max_requests.value
        assert figures.max_context == report.fit.max_context
        assert figures.request_bytes == report.cache.stage.per_request.value
        assert figures.weight_bytes == report.engine.weights.total.value
        assert figures.sent_bytes == report.step.sent_per_rank.value
        assert figures.budget_bytes in report.engine.budget.bytes
        timed = times(report).decode
        assert figures.step_us == pytest.approx(timed.total.value, rel=1e-12)
        assert figures.user_rate == pytest.approx(timed.tokens_per_second_user.value, rel=1e-12)
        assert figures.gpu_rate == pytest.approx(timed.tokens_per_second_gpu.value, rel=1e-12)


def test_exactly_the_legal_layouts_are_listed_each_once() -> None:
    found = plan(LLAMA, 8).rows
    given = {tuple(getattr(r.scenario, n) for n in ("tp", "dcp", "dp", "pp")) for r in found}
    legal = set()
    for tp in range(1, 9):
        for pp in range(1, 9):
            for dcp in range(1, tp + 1):
                if 8 % (tp * pp) == 0:
                    made = replace(LLAMA, tp=tp, dcp=dcp, pp=pp, dp=8 // (tp * pp))
                    try:
                        check_layout(made.model_spec, made.layout, made.engine_rules)
                    except CalcError:
                        continue
                    legal.add((tp, dcp, made.dp, pp))
    assert given == legal
    assert len(found) == len(legal)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_rows_are_ranked_by_the_objective_and_those_that_lack_something_come_last(
    objective: Any,
) -> None:
    found = plan(DEEPSEEK, 32, objective)
    fitting = [row for row in found.rows if not row.lacks]
    assert [bool(row.lacks) for row in found.rows] == sorted(bool(r.lacks) for r in found.rows)
    merits = [merit(row, objective) for row in fitting]
    assert all(a >= b for a, b in pairwise(merits))
    assert found.winner is found.rows[0]
    reason = why(found.rows[0], objective)
    assert reason.code in ("memory", "traffic", "silent", "time")


def test_no_row_of_the_front_is_beaten_in_everything_and_every_other_is() -> None:
    found = [row for row in plan(DEEPSEEK, 16, backends=["all"]).rows if not row.lacks]

    def point(row: Any) -> tuple[float, ...]:
        figures = row.figures
        return (-row.concurrency, figures.step_us, figures.sent_bytes)

    points = {id(row): point(row) for row in found}
    for row in found:
        own = points[id(row)]
        beaten = any(
            all(a <= b for a, b in zip(other, own, strict=True)) and other != own
            for other in points.values()
        )
        assert row.front is not beaten


def test_a_target_concurrency_is_shared_by_the_replicas() -> None:
    for row in plan(DEEPSEEK, 16, concurrency=100).rows:
        assert row.scenario.batch == -(-100 // row.scenario.dp)


def test_a_mix_of_lengths_decides_what_fits() -> None:
    base = replace(DEEPSEEK, lengths="1000x3-100000x1")
    row = plan(base, 16).rows[0]
    report = evaluate(row.scenario)
    assert report.engine.mix is not None
    assert row.figures.max_requests == report.engine.mix.max_requests.value


def test_the_fewest_gpus_are_found_among_the_divisors() -> None:
    found = plan(DEEPSEEK, 16, "gpus")
    assert {row.gpus for row in found.rows} <= {1, 2, 4, 8, 16}
    assert found.winner is not None
    assert found.winner.gpus == 8
    assert all(row.lacks for row in found.rows if row.gpus < 8)


def test_where_nothing_fits_the_nearest_says_what_it_lacks() -> None:
    found = plan(replace(DEEPSEEK, gpu="l4"), 8)
    assert found.winner is None
    assert found.nearest is not None
    lacks = dict(found.nearest.lacks)
    assert lacks["memory"] == min(dict(row.lacks)["memory"] for row in found.rows)
    assert plan_json(found, 5, DEEPSEEK, {})["nearest"]["lacks"] == lacks


def test_limits_turn_rows_away_and_say_by_how_much() -> None:
    free = plan(DEEPSEEK, 16, "concurrency")
    steps = sorted(row.figures.step_us or 0 for row in free.rows)
    sent = sorted(row.figures.sent_bytes for row in free.rows)
    bound = Limits(step_us=steps[len(steps) // 2], sent_bytes=sent[len(sent) // 2])
    for row in plan(DEEPSEEK, 16, limits=bound).rows:
        lacks = dict(row.lacks)
        assert ("step" in lacks) == ((row.figures.step_us or 0) > (bound.step_us or 0))
        assert ("traffic" in lacks) == (row.figures.sent_bytes > (bound.sent_bytes or 0))
        assert all(amount > 0 for amount in lacks.values())


def test_a_row_opens_by_its_link() -> None:
    document = plan_json(plan(KIMI, 8), 3, KIMI, {"gpus": 8, "max_step_ms": 50.0})
    assert len(document["rows"]) == 3
    opened = decode_query(document["rows"][0]["link"].lstrip("?")).scenario
    assert opened == plan(KIMI, 8).rows[0].scenario
    again = decode_query(document["link"].lstrip("?"))
    assert (again.scenario, dict(again.asked)) == (KIMI, {"plan_max_step_ms": 50.0})
    assert document["asked"] == {"gpus": 8, "max_step_ms": 50.0}


def test_progress_is_told_and_a_format_that_cannot_be_is_named() -> None:
    told: list[float] = []
    found = plan(LLAMA, 8, kv_dtypes=["all"], progress=told.append)
    assert told[-1] == 1.0
    assert {error.code for error in found.unavailable} == {"format_kind"}


@pytest.mark.parametrize(
    ("base", "gpus", "options", "code"),
    [
        (LLAMA, 0, {}, "out_of_range"),
        (LLAMA, 8, {"objective": "beauty"}, "not_a_choice"),
        (LLAMA, 8, {"concurrency": 0}, "out_of_range"),
        (replace(LLAMA, gpu="none"), 8, {"objective": "step"}, "timing_gpu"),
        (replace(LLAMA, gpu="none"), 8, {"limits": Limits(step_us=1.0)}, "timing_gpu"),
        (LLAMA, 8, {"backends": ["fi_a2a"]}, "plan_empty"),
        (LLAMA, 8, {"kv_dtypes": ["fp8_ds_mla"]}, "format_kind"),
        (LLAMA, 8, {"kv_dtypes": ["fp1"]}, "not_a_choice"),
        (LLAMA, 8, {"engines": ["other"]}, "not_a_choice"),
    ],
)
def test_what_cannot_be_planned_is_a_named_error(
    base: Scenario, gpus: int, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(CalcError) as caught:
        plan(base, gpus, **options)
    assert caught.value.code == code


def test_without_rates_there_are_no_times_but_the_rest_is_ranked() -> None:
    found = plan(Scenario("llama-3.1-8b", kv_cache_memory_gib=10, context=8192), 4)
    assert found.rows[0].figures.step_us is None
    assert found.winner is not None


def test_a_format_that_an_engine_has_no_flag_for_is_not_planned_but_named() -> None:
    found = plan(Scenario("llama-3.1-8b", gpu="h200"), 8, engines=["all"], kv_dtypes=["all"])
    planned = {(row.scenario.engine, row.scenario.kv_dtype) for row in found.rows}
    assert ("vllm", "int8_per_token_head") in planned
    assert ("sglang", "int8_per_token_head") not in planned
    assert any("sglang has no flag for int8_per_token_head" in str(e) for e in found.unavailable)
    with pytest.raises(CalcError, match="has no flag"):
        plan(Scenario("llama-3.1-8b", engine="sglang", kv_dtype="int4_per_token_head"), 8)


def test_an_asked_plan_is_that_of_the_library() -> None:
    base = Scenario("deepseek-v3", gpu="h200", batch=64, context=32768)
    asked = {"gpus": 16, "objective": "step", "engines": "all", "max_step_ms": 60.0}
    found = plan_of(base, asked)
    same = plan(base, 16, "step", engines=["all"], limits=Limits(step_us=60_000.0))
    assert [row.scenario for row in found.rows] == [row.scenario for row in same.rows]
    with pytest.raises(CalcError, match="gpus"):
        plan_of(base, {"gpus": 0})


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("llama-3.1-70b", {"gpu": "h100", "context": 128}),
        ("kimi-k3", {"gpu": "b200", "pp": 8, "batch": 16, "context": 131_072}),
        ("deepseek-v3", {"gpu": "h200", "pp": 2, "tp": 2, "batch": 64}),
    ],
)
def test_what_is_short_is_exactly_what_would_be_enough(preset: str, fields: dict[str, Any]) -> None:
    """Weights and cache of one rank together: the stage that misses most needs that much more."""
    scenario = Scenario(preset, **fields)
    report = evaluate(scenario)
    left, short = report.engine.budget.left, report.fit.short_bytes
    assert short > 0
    more = [each + short for each in left]
    assert fit(report.cache, more, scenario.batch).fits
    assert not fit(report.cache, [each - 1 for each in more], scenario.batch).fits
    (row,) = [
        row
        for row in rows_of(scenario, scenario.layout.world_size).rows
        if all(getattr(row.scenario, name) == getattr(scenario, name) for name in SIZES)
    ]
    assert row.figures.short_bytes == short
    swept = sweep_over(scenario, "short_bytes", [Axis("batch", (scenario.batch,))])
    assert swept.values.tolist() == [short]


def test_the_sentence_about_memory_speaks_of_one_stage() -> None:
    """DeepSeek-V3 on 12 GPUs: its best layout has stages that are not bound alike."""
    base = Scenario("deepseek-v3", gpu="h200", batch=16)
    staged = [row for row in rows_of(base, 12).rows if row.scenario.pp > 1 and row.figures.fits]
    assert staged
    for row in staged:
        given = why(row, "concurrency").values
        assert given["budget_bytes"] // given["request_bytes"] == given["requests"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"shared_prefix": 9_000}, "prefix_context"),
        ({"prefill_tokens": 9_000}, "prefill_tokens"),
        ({"kv_dtype": "fp8_ds_mla"}, "format_kind"),
    ],
)
def test_what_evaluate_refuses_no_plan_accepts(fields: dict[str, Any], code: str) -> None:
    base = replace(LLAMA, **fields)
    for compute in (evaluate, lambda scenario: plan(scenario, 4)):
        with pytest.raises(CalcError) as refused:
            compute(base)
        assert refused.value.code == code


def test_a_layout_whose_replicas_would_be_too_full_is_left_out_and_no_more() -> None:
    crowd = replace(LLAMA, context=1)
    assert {row.scenario.dp for row in plan(crowd, 8, concurrency=2_000_000).rows} == {2, 4, 8}
    with pytest.raises(CalcError, match="concurrency"):
        plan(crowd, 1, concurrency=2_000_000)


def test_a_dcp_that_spoils_the_cache_is_counted_and_not_recommended() -> None:
    """SGLang 0.5.23 arg_groups/attention_hook.py: only qwen3_5.py divides heads over tp / dcp."""
    spoiled = Scenario("llama-3.1-8b", engine="sglang", tp=8, dcp=2)
    assert evaluate(spoiled).cautions() == ["dcp_heads"]
    assert not evaluate(replace(spoiled, tp=16)).cautions()
    assert not evaluate(Scenario("qwen3.5-27b", engine="sglang", tp=4, dcp=2)).cautions()
    assert not evaluate(Scenario("deepseek-v3", engine="sglang", tp=8, dcp=8)).cautions()
    listed = {row.scenario.dcp for row in plan(replace(LLAMA, engine="sglang"), 8).rows}
    assert listed == {1}
    assert {row.scenario.dcp for row in plan(replace(LLAMA, engine="sglang"), 16).rows} == {1, 2}
