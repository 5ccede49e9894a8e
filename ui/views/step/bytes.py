"""Bytes and calls of a step: totals, bars by kind of layer, and which engine allows which CP."""

from __future__ import annotations

import streamlit as st

from calc.engines import ENGINES
from calc.errors import CalcError
from calc.items import Item
from calc.layout import Layout, check_layout, legal_dcp
from calc.report import Report
from calc.traffic import Stage, Step
from ui import errors, numbers, page, step_charts, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.step import estimate, stages

SCOPES = ("step", "layer", "second")


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    rows = busiest(report.step)
    moving = [stage for stage in rows if stage.collective is not None]
    _totals(t, report, moving)
    _resolved(t, report)
    if moving:
        _charts(t, report, rows)
    else:
        st.info(t("traffic.silent"), icon=":material/info:")
    stages.draw(t, report, rows)
    _contexts(t, report)
    if moving:
        shown = _derived(report, moving)
        parts.derivations(
            t, "traffic", shown, draw_steps, lambda name: _derived_name(t, moving, name)
        )
    parts.not_counted(t, report)


def busiest(step: Step) -> tuple[Stage, ...]:
    """The stages of the pipeline stage whose ranks send most."""
    sums = [item.value for item in step.per_rank]
    return step.pipeline[sums.index(max(sums))]


def _totals(t: Translator, report: Report, moving: list[Stage]) -> None:
    step, scenario = report.step, report.scenario
    everywhere = step.all_ranks.value
    over_dcp = [item.value for stage in moving if stage.group == "dcp" and (item := stage.per_step)]
    largest = max((stage.payload for stage in moving if stage.payload), key=_size, default=None)
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("traffic.all"),
            numbers.traffic(everywhere),
            t("traffic.all.per", ranks=numbers.digits(scenario.layout.world_size)),
            numbers.exact(everywhere),
        )
        page.card(
            t("traffic.dcp"),
            numbers.traffic(sum(over_dcp)),
            t("traffic.dcp.per", dcp=scenario.dcp),
            numbers.exact(sum(over_dcp)),
        )
        page.card(
            t("traffic.calls"),
            numbers.digits(sum(stage.calls for stage in moving)),
            t("traffic.calls.per"),
            t("traffic.calls.help"),
        )
        page.card(
            t("traffic.largest"),
            numbers.traffic(largest.value) if largest else "–",
            t("traffic.largest.per"),
            numbers.exact(largest.value) if largest else t("traffic.silent"),
        )


def _size(item: Item) -> float:
    return float(item.value)


def _resolved(t: Translator, report: Report) -> None:
    """Which backends and which way of getting the queries are in use, and who decided."""
    scenario, engine = report.scenario, report.scenario.engine_rules
    defaults = report.model.defaults_in(engine.id)
    lines = []
    if scenario.dcp > 1:
        backend = t(f"backend.{report.backend}", backend=report.backend)
        reason = _reason(t, scenario.dcp_backend, defaults.dcp_backend, engine.name)
        lines.append(t("traffic.backend", what=backend, reason=reason))
    if scenario.dcp > 1 and report.model.latent_mixers:
        how = t("traffic.replicated" if report.query_replicated else "traffic.gathered")
        given = None if defaults.query_replication is None else "model"
        reason = _reason(t, scenario.query_replication, given, engine.name)
        lines.append(t("traffic.queries", what=how, reason=reason))
    if report.step.moe_backend:
        reason = _reason(t, scenario.moe_backend, None, engine.name)
        lines.append(t("step.experts", what=report.step.moe_backend, reason=reason))
    if lines:
        st.markdown("  \n".join(lines))


def _reason(t: Translator, typed: str, model_default: str | None, engine: str) -> str:
    if typed != "auto":
        return t("reason.chosen")
    return t("reason.model" if model_default else "reason.engine", engine=engine)


def _charts(t: Translator, report: Report, rows: tuple[Stage, ...]) -> None:
    scope = st.segmented_control(
        t("step.scope"),
        SCOPES,
        key="step_scope",
        default=SCOPES[0],
        format_func=lambda name: t(f"step.scope.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    times = estimate.steps_per_second(t, report) if scope == "second" else 1.0
    left, right = st.columns(2, gap="medium")
    with left:
        parts.chart(
            t,
            "sent_chart",
            lambda: step_charts.sent_by_source(rows, t, scope, times),
            t(f"step.chart_sent.{scope}"),
        )
    with right:
        parts.chart(
            t,
            "calls_chart",
            lambda: step_charts.calls_by_source(rows, t, scope, times),
            t(f"step.chart_calls.{scope}"),
        )
    if scope == "layer":
        st.caption(t("step.layer_note"))


def _contexts(t: Translator, report: Report) -> None:
    """Both kinds of context parallelism: which engine allows which, for this model and TP."""
    st.subheader(t("step.cp"), anchor=False)
    st.caption(t("step.cp_about"))
    rows = []
    for engine in ENGINES.values():
        sizes = legal_dcp(report.model, report.scenario.tp, engine)
        pcp = _refusal(t, report, Layout(tp=report.scenario.tp, pcp=2), engine.id)
        dcp = None
        if sizes == [1]:
            dcp = _refusal(t, report, Layout(tp=report.scenario.tp, dcp=2), engine.id)
        rule = t(f"dcp_rule.{errors.slug(engine.pcp_dcp_rule)}")
        rows.append(
            {
                t("column.engine"): f"**{engine.name} {engine.version}**",
                t("column.dcp_sizes"): dcp or ", ".join(map(str, sizes)),
                t("column.pcp"): pcp or t("step.pcp_allowed"),
                t("column.both"): rule,
            }
        )
    tables.draw(rows, t("step.cp"))


def _refusal(t: Translator, report: Report, layout: Layout, engine: str) -> str | None:
    try:
        check_layout(report.model, layout, ENGINES[engine])
    except CalcError as error:
        return errors.worded(t, error)[0]
    return None


def _derived(report: Report, moving: list[Stage]) -> dict[str, Item]:
    single = {
        f"{stage.kind}.{stage.name}.{place}": stage.per_step
        for place, stage in enumerate(moving)
        if stage.per_step is not None
    }
    return {"sent": report.step.sent_per_rank, "all_ranks": report.step.all_ranks, **single}


def _derived_name(t: Translator, moving: list[Stage], name: str) -> str:
    if name in ("sent", "all_ranks"):
        return t(f"derived.{name}")
    return t("step.derived", stage=stages.source(t, moving[int(name.rpartition(".")[2])]))
