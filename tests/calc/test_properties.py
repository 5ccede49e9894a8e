"""Laws that hold for every model and layout, whatever the numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calc.capacity import request_bytes
from calc.collectives import Collective, all_reduce_sent, one_pass_sent, sent
from calc.engines import ENGINES, Engine
from calc.formats import latent_row_bytes
from calc.layers import KimiDeltaAttention, SlidingWindowAttention, StateMixer
from calc.layout import legal_dcp, legal_tp
from calc.model import ModelSpec
from calc.presets import load_preset, preset_ids
from calc.report import Report
from tests.calc.models import gqa, layers, mla, model, report

WINDOW = SlidingWindowAttention(heads=64, kv_heads=8, k_dim=64, v_dim=64, window=1_000)
KDA = KimiDeltaAttention(heads=64, head_dim=64, conv_kernel=4)
MIXED = model(layers(3, gqa(64, 8, 64)), layers(5, WINDOW), layers(7, KDA))
LATENT = model(layers(3, mla(64)), layers(7, KDA))
MODELS = {"mixed": MIXED, "latent": LATENT}

tokens = st.integers(1, 2**24)
engines = st.sampled_from(tuple(ENGINES))
by_name = pytest.mark.parametrize("of", MODELS.values(), ids=MODELS)


def held(of: ModelSpec, **fields: Any) -> Any:
    """Bytes of one request on the fullest rank."""
    return report(of, **fields).cache.stage.per_request.value


@st.composite
def laid_out(draw: st.DrawFn, of: ModelSpec = LATENT) -> dict[str, Any]:
    """Scenario fields with a legal tp and dcp for a model."""
    engine = draw(engines)
    tp = draw(st.sampled_from([size for size in legal_tp(of) if size <= 64]))
    dcp = draw(st.sampled_from(legal_dcp(of, tp, ENGINES[engine])))
    backend = draw(st.sampled_from(tuple(ENGINES[engine].backends)))
    return {"engine": engine, "tp": tp, "dcp": dcp, "dcp_backend": backend}


# --- Cache ----------------------------------------------------------------------------------------


@by_name
def test_half_the_bytes_an_element_are_half_the_growing_and_window_bytes(of: ModelSpec) -> None:
    wide, narrow = (report(of, kv_dtype=kv_dtype).cache.stage for kv_dtype in ("bf16", "fp8"))
    assert wide.growing_per_token.value == 2 * narrow.growing_per_token.value
    assert wide.window_per_request.value == 2 * narrow.window_per_request.value
    assert wide.state_per_request.value == narrow.state_per_request.value


@given(context=tokens, times=st.integers(1, 50))
def test_growing_bytes_are_proportional_to_tokens(context: int, times: int) -> None:
    of = model(layers(3, gqa(64, 8, 64)))
    assert held(of, context=context * times) == times * held(of, context=context)


@given(context=tokens, batch=st.integers(1, 2**20))
def test_a_batch_weighs_as_many_requests(context: int, batch: int) -> None:
    found = report(MIXED, context=context, batch=batch).cache
    assert found.batch.value == batch * found.stage.per_request.value


@by_name
@given(data=st.data(), context=tokens)
def test_all_ranks_together_hold_the_whole_and_exactly_it_where_everything_divides(
    of: ModelSpec, data: st.DataObject, context: int
) -> None:
    fields = data.draw(laid_out(of))
    whole, cut = held(of, context=context), report(of, context=context, **fields).cache
    ranks = fields["tp"]
    assert ranks * cut.stage.per_request.value >= cut.per_replica.value >= whole
    divides = context % fields["dcp"] == 0
    copied = any(part.store.copies > 1 for part in cut.stage.components)
    assert (cut.per_replica.value > whole) == copied
    if divides:
        assert ranks * cut.stage.per_request.value == cut.per_replica.value


@given(context=st.integers(1_000, 2**24))
def test_a_full_window_grows_no_more(context: int) -> None:
    of = model(layers(5, WINDOW))
    assert held(of, context=context) == held(of, context=1_000) > held(of, context=999)


@given(context=tokens, fields=laid_out())
def test_a_state_knows_nothing_of_the_context_nor_of_dcp(
    context: int, fields: dict[str, Any]
) -> None:
    state = report(LATENT, context=context, **fields).cache.stage.state_per_request.value
    alone = report(LATENT, **(fields | {"dcp": 1})).cache.stage.state_per_request.value
    assert state == alone


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kv_heads", [1, 2, 8])
def test_more_tp_never_adds_bytes_and_beyond_the_kv_heads_saves_none(
    engine: str, kv_heads: int
) -> None:
    of = model(layers(1, gqa(64, kv_heads)))
    by_tp = [held(of, engine=engine, tp=tp) for tp in (1, 2, 4, 8, 16, 32, 64)]
    assert by_tp == sorted(by_tp, reverse=True)
    assert by_tp[-1] == held(of, engine=engine, tp=kv_heads) == by_tp[0] // kv_heads


@pytest.mark.parametrize("preset", preset_ids())
def test_a_longer_context_never_weighs_less(preset: str) -> None:
    contexts = [1, 2, 127, 128, 129, 1_000, 8_192, 100_000, 2**20]
    by_context = [
        held(load_preset(preset).model_copy(update={"id": "custom"}), context=context)
        for context in contexts
    ]
    assert by_context == sorted(by_context)


@given(context=tokens, fields=laid_out(), size=st.sampled_from([1, 2, 5, 10]))
def test_the_search_for_contexts_computes_what_the_report_shows(
    context: int, fields: dict[str, Any], size: int
) -> None:
    found = report(LATENT, context=context, pp=size, **fields).cache
    assert request_bytes(found, context) == found.stage.per_request.value


# --- What fits ------------------------------------------------------------------------------------

budgets = st.floats(0.001, 200)


@by_name
@given(data=st.data(), context=tokens, budget=budgets, pp=st.sampled_from([1, 2, 7]))
def test_the_largest_batch_fits_and_one_request_more_does_not(
    of: ModelSpec, data: st.DataObject, context: int, budget: float, pp: int
) -> None:
    fields = {
        "context": context,
        "kv_cache_memory_gib": budget,
        "pp": pp,
        **data.draw(laid_out(of)),
    }
    most = report(of, **fields).fit.max_requests.value
    assume(most < 2**20)
    more = report(of, batch=most + 1, **fields).fit
    assert not more.fits
    assert more.short_bytes > 0
    if most:
        within = report(of, batch=most, **fields).fit
        assert within.fits
        assert within.short_bytes == 0


@by_name
@given(data=st.data(), batch=st.integers(1, 300), budget=budgets, pp=st.sampled_from([1, 2, 7]))
def test_the_longest_context_fits_and_one_token_more_does_not(
    of: ModelSpec, data: st.DataObject, batch: int, budget: float, pp: int
) -> None:
    fields = {"batch": batch, "kv_cache_memory_gib": budget, "pp": pp, **data.draw(laid_out(of))}
    longest = report(of, **fields).fit.max_context
    assert longest is not None
    assume(longest < 2**30)
    assert not report(of, context=longest + 1, **fields).fit.fits
    if longest:
        assert report(of, context=longest, **fields).fit.fits


def test_a_cache_that_does_not_grow_has_no_longest_context_unless_it_never_fits() -> None:
    for of in (model(layers(7, KDA)), model(layers(5, WINDOW))):
        assert report(of).fit.max_context is None
        cramped = report(of, batch=2**20, kv_cache_memory_gib=0.001).fit
        assert cramped.max_context is not None
        assert not cramped.fits


def test_a_deployment_that_does_not_fit_says_by_how_much() -> None:
    found = report(LATENT, context=2**20, kv_cache_memory_gib=0.5)
    assert found.fit.short_bytes == found.cache.batch.value - 2**29 > 0


# --- Traffic --------------------------------------------------------------------------------------


@given(payload=st.integers(1, 2**50), ranks=st.integers(1, 64))
def test_an_all_reduce_sends_what_a_reduce_scatter_and_an_all_gather_send(
    payload: int, ranks: int
) -> None:
    whole = payload * ranks  # so that every share is whole
    assert all_reduce_sent(whole, ranks) == 2 * one_pass_sent(whole, ranks)
    assert one_pass_sent(whole, ranks) == (ranks - 1) * payload


@pytest.mark.parametrize("collective", [kind for kind in Collective if kind is not Collective.SEND])
def test_a_group_of_one_rank_sends_nothing(collective: Collective) -> None:
    payload = latent_row_bytes.item("payload", kv_lora_rank=512, rope_dim=64, element_bytes=2)
    assert sent("sent", collective, payload, 1).value == 0


@pytest.mark.parametrize("preset", preset_ids())
def test_one_rank_sends_nothing_at_all(preset: str) -> None:
    step = report(preset, batch=7).step
    assert step.sent_per_rank.value == step.all_ranks.value == 0
    assert all(row.collective is None and row.sent is None for row in step.stages)


@given(fields=laid_out(), batch=st.integers(1, 200), pp=st.sampled_from([2, 3, 10]))
def test_the_stages_of_a_pipeline_send_together_what_the_table_of_the_model_says(
    fields: dict[str, Any], batch: int, pp: int
) -> None:
    step = report(LATENT, batch=batch, pp=pp, dp=3, **fields).step
    by_row = [  # a broadcast runs on every stage, all else on the stage that has the layer
        row.per_step.value * (pp if row.name == "token_broadcast" else 1)
        for row in step.stages
        if row.per_step is not None
    ]
    assert sum(by_row) == pytest.approx(sum(item.value for item in step.per_rank), rel=1e-12)
    assert step.all_ranks.value == pytest.approx(sum(by_row) * fields["tp"] * 3, rel=1e-12)
    assert step.sent_per_rank.value == max(item.value for item in step.per_rank)


@given(fields=laid_out(), batch=st.integers(1, 1_000))
def test_traffic_is_proportional_to_the_batch_and_blind_to_the_context(
    fields: dict[str, Any], batch: int
) -> None:
    def per_rank(**more: Any) -> Any:
        return report(LATENT, **fields, **more).step.sent_per_rank.value

    assert per_rank(batch=batch) == pytest.approx(batch * per_rank(batch=1), rel=1e-12)
    assert per_rank(batch=batch, context=2**20) == per_rank(batch=batch, context=1)


def rows(found: Report) -> list[tuple[str, int, int]]:
    """The stages of the latent layers: name, size of the group, calls."""
    return [(row.name, row.group_size, row.calls) for row in found.step.stages if row.kind == "mla"]


def test_latent_attention_under_dcp_is_the_eight_stages_in_order() -> None:
    # "MLA DCP in SGLang" article: project, write, up, gather, attend, exchange, up, reduce
    found = report("kimi-k3", engine="sglang", tp=8, dcp=8, query_replication="off")
    numbers = [row.number for row in found.step.stages if row.kind == "mla"]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, 9))
    moving = [row for row in rows(found) if row[2]]
    assert moving == [("gather_query", 8, 24), ("exchange_partials", 8, 24), ("o_proj", 8, 24)]


def test_ag_rs_gathers_the_statistics_and_reduces_the_outputs() -> None:
    # T = 64, 96 heads: 7/8 x T x 96 x 576 x 2; 7 x T x 96 x 4; 7/8 x T x 96 x 512 x (2 or 4)
    expected = {"vllm": 323, "sglang": 456}  # MB a step over 24 layers, o_proj included
    for engine, megabytes in expected.items():
        found = report("kimi-k3", engine=engine, tp=8, dcp=8, batch=64, dcp_backend="ag_rs")
        moving = [row for row in rows(found) if row[2]]
        names = [name for name, _, _ in moving]
        assert names == ["gather_query", "gather_lse", "reduce_partials", "o_proj"]
        bytes_sent = sum(
            row.per_step.value
            for row in found.step.stages
            if row.kind == "mla" and row.per_step is not None
        )
        assert round(bytes_sent / 1e6) == megabytes


def test_a_boundary_between_stages_is_cut_over_tp_only_where_it_divides() -> None:
    """vLLM 0.33 distributed/parallel_state.py isend_tensor_dict."""
    odd = model(layers(2, mla(12)), hidden_size=63)

    def boundary(batch: int) -> dict[str, Any]:
        step = report(odd, tp=4, pp=2, batch=batch).step
        found = [row for row in step.stages if "pipeline" in row.name]
        return {row.name: row.sent.value for row in found if row.sent is not None}

    assert boundary(1) == {"pipeline_send": 2 * 63 * 2}
    assert boundary(4) == {"pipeline_send": 2 * 63 * 2, "pipeline_gather": 2 * 4 * 63 * 2 * 3 // 4}


def test_a_kind_or_an_engine_that_leaves_a_rule_open_cannot_be_made() -> None:
    class Unfinished(StateMixer):
        kind: str = "unfinished"

    class Nameless(Engine):
        pass

    unfinished: tuple[Any, ...] = (Unfinished, Nameless)
    for kind in unfinished:
        with pytest.raises(TypeError, match="abstract"):
            kind()
