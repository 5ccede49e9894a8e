"""What each layer keeps, what that weighs on a rank, what fits; one part open at a time."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from calc.capacity import Component, deployment_bytes
from calc.items import Item
from calc.report import Report, evaluate
from calc.units import Number
from ui import charts, numbers, page, plot, tables
from ui.derivation import draw as draw_steps
from ui.state import Result
from ui.text import Translator
from ui.views import parts
from ui.views.engine import account, answers, budget, log, short

PARTS = ("formula", "budget", "engine", "answers", "log")
"""Parts of the view; only the open one is drawn."""
PART = "capacity_part"


def draw(t: Translator, result: Result) -> None:
    """The switch and the open part; what does not fit is said above every one."""
    report = result.report
    assert report is not None
    st.segmented_control(
        t("capacity.part"),
        PARTS,
        key=PART,
        format_func=lambda part: t(f"capacity.part_{part}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    short.draw(t, report)
    drawn = {
        "formula": _formula,
        "budget": budget.draw,
        "engine": account.draw,
        "answers": answers.draw,
        "log": log.draw,
    }
    drawn[st.session_state[PART]](t, report)


def _formula(t: Translator, report: Report) -> None:
    """What the layers keep by the formulas alone, in exact bytes without blocks."""
    _totals(t, report)
    _charts(t, report)
    st.subheader(t("capacity.components"), anchor=False)
    tables.draw([_component(t, part) for part in _components(report)], t("capacity.components"))
    _stage_note(t, report)
    st.subheader(t("capacity.kinds"), anchor=False)
    tables.draw(_kinds(t, report), t("capacity.kinds"))
    parts.derivations(t, "capacity", _derived(report), draw_steps)
    parts.not_counted(t, report)


def _totals(t: Translator, report: Report) -> None:
    """The same cache per rank, per replica and in the whole deployment, each named."""
    scenario, cache, fit = report.scenario, report.cache, report.fit
    everywhere = deployment(report)
    longest = t("capacity.no_limit") if fit.max_context is None else numbers.digits(fit.max_context)
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("capacity.batch"),
            numbers.memory(cache.batch.value),
            t("capacity.batch.per", batch=numbers.digits(scenario.batch)),
            numbers.exact(cache.batch.value),
        )
        page.card(
            t("capacity.longest"),
            longest,
            t("capacity.longest.per", batch=numbers.digits(scenario.batch)),
            t("capacity.longest.help"),
        )
        page.card(
            t("capacity.replica"),
            numbers.memory(cache.per_replica.value),
            t("capacity.replica.per", ranks=scenario.layout.replica_ranks),
            numbers.exact(cache.per_replica.value),
        )
        page.card(
            t("capacity.deployment"),
            numbers.memory(everywhere.value),
            t("capacity.deployment.per", requests=numbers.digits(scenario.batch * scenario.dp)),
            numbers.exact(everywhere.value),
        )


def deployment(report: Report) -> Item:
    """Cache of all requests of all replicas on all ranks."""
    return deployment_bytes.item(
        "cache.deployment",
        request_bytes=report.cache.per_replica,
        batch=report.scenario.batch,
        dp=report.scenario.dp,
    )


def _charts(t: Translator, report: Report) -> None:
    scenario = report.scenario

    def batches() -> plot.Spec:
        without = evaluate(replace(scenario, dcp=1)) if scenario.dcp > 1 else None
        return charts.batch_against_context(report, without, t)

    left, right = st.columns(2, gap="medium")
    with left:
        parts.chart(
            t,
            "cache_chart",
            lambda: charts.cache_against_context(report, t),
            t("capacity.chart_cache"),
        )
    with right:
        parts.chart(t, "batch_chart", batches, t("capacity.chart_batch"))


def _components(report: Report) -> list[Component]:
    return list(report.cache.stage.components)


def _component(t: Translator, part: Component) -> tables.Row:
    store = part.store
    each = part.per_token.value if part.per_token else None
    growth = "compressed" if store.tokens_per_row > 1 else store.growth
    return {
        t("column.kind"): parts.store_name(t, part),
        t("column.layers"): numbers.digits(part.layers),
        t("column.growth"): t(f"growth.{growth}", limit=numbers.digits(store.limit)),
        t("column.per_token"): "–" if each is None else _both(each),
        t("column.per_request"): numbers.memory(part.per_request.value),
        t("column.dcp"): numbers.digits(store.dcp),
        t("column.copies"): numbers.digits(store.copies),
    }


def _both(size: Number) -> str:
    """Bytes as people say them, then every digit."""
    said, whole = numbers.memory(size), numbers.exact(size)
    return said if said == whole else f"{said} ({whole})"


def _kinds(t: Translator, report: Report) -> list[tables.Row]:
    kinds = dict.fromkeys(mixer.kind for mixer in report.model.mixers) or {"none": None}
    return [
        {
            t("column.kind"): f"**{t(f'kind.{kind}.name')}**",
            t("column.keeps"): t(f"kind.{kind}.keeps"),
            t("column.tp"): t(f"kind.{kind}.tp"),
            t("column.prefix"): t(f"kind.{kind}.prefix"),
        }
        for kind in kinds
    ]


def _stage_note(t: Translator, report: Report) -> None:
    """With pipeline stages: which one the per-rank figures belong to."""
    cache, pp = report.cache, report.scenario.pp
    cut = report.scenario.layout.stage_layers
    if pp == 1:
        st.caption(t("capacity.fullest"))
        return
    least = min(stage.per_request.value for stage in cache.stages)
    layers = sum(layer.count for layer in report.model.stages(pp, cut)[cache.binding])
    st.caption(
        t(
            "capacity.stage",
            stage=cache.binding + 1,
            stages=pp,
            layers=layers,
            least=numbers.memory(least),
        )
    )


def _derived(report: Report) -> dict[str, Item]:
    cache = report.cache
    return {
        "request": cache.stage.per_request,
        "growing": cache.stage.growing_per_token,
        "batch": report.fit.max_requests,
        "batch_bytes": cache.batch,
        "replica": cache.per_replica,
        "deployment": deployment(report),
    }
