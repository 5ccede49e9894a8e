"""What one decode step sends between ranks: by source, stage by stage, in total."""

from __future__ import annotations

import streamlit as st

from calc.items import Item
from calc.layers import LatentAttention
from calc.report import Report
from calc.traffic import Stage, Step
from ui import charts, numbers, page, tables
from ui.derivation import draw as draw_steps
from ui.state import Result
from ui.text import Translator
from ui.views import parts


def draw(t: Translator, result: Result) -> None:
    """The whole view."""
    report = result.report
    assert report is not None
    stages = busiest(report.step)
    moving = [stage for stage in stages if stage.collective is not None]
    _totals(t, report, moving)
    _resolved(t, report)
    if moving:
        _charts(t, stages)
    else:
        st.info(t("traffic.silent"), icon=":material/info:")
    if report.model.latent_mixers:
        _latent_table(t, report)
    if moving:
        st.subheader(t("traffic.step"), anchor=False)
        tables.draw(_step_rows(t, report.step, moving), t("traffic.step"))
        _stage_note(t, report)
    _prefill(t, report)
    if moving:
        parts.derivations(t, "traffic", _derived(report, moving), draw_steps)
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
    """Which backend and which way of getting the queries are in use, and who decided."""
    scenario, engine = report.scenario, report.scenario.engine_rules
    if scenario.dcp == 1:
        return
    defaults = report.model.defaults_in(engine.id)
    backend = t(f"backend.{report.backend}", backend=report.backend)
    reason = _reason(t, scenario.dcp_backend, defaults.dcp_backend, engine.name)
    lines = [t("traffic.backend", what=backend, reason=reason)]
    if report.model.latent_mixers:
        how = t("traffic.replicated" if report.query_replicated else "traffic.gathered")
        given = None if defaults.query_replication is None else "model"
        reason = _reason(t, scenario.query_replication, given, engine.name)
        lines.append(t("traffic.queries", what=how, reason=reason))
    st.markdown("  \n".join(lines))


def _reason(t: Translator, typed: str, model_default: str | None, engine: str) -> str:
    if typed != "auto":
        return t("reason.chosen")
    return t("reason.model" if model_default else "reason.engine", engine=engine)


def _charts(t: Translator, stages: tuple[Stage, ...]) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        figure = charts.sent_by_source(stages, t)
        parts.chart(t, "sent_chart", figure, t("traffic.chart_sent"))
    with right:
        figure = charts.calls_by_source(stages, t)
        parts.chart(t, "calls_chart", figure, t("traffic.chart_calls"))


def _latent_table(t: Translator, report: Report) -> None:
    """The eight stages of absorbed latent attention, whether they communicate or not."""
    st.subheader(t("traffic.latent"), anchor=False)
    if report.scenario.dcp == 1:
        st.caption(t("traffic.latent_no_dcp"))
    rows = [
        {
            t("column.number"): str(stage.number),
            t("column.computation"): _computation(t, stage, report),
            t("column.shape"): shape(stage),
            t("column.collective"): _collective(t, stage),
            t("column.payload"): _traffic(stage.payload),
            t("column.sent"): _traffic(stage.sent),
            t("column.times"): f"× {stage.layers}",
            t("column.sent_step"): _traffic(stage.per_step),
        }
        for stage in report.step.stages
        if stage.kind == LatentAttention.model_fields["kind"].default and stage.number
    ]
    tables.draw(rows, t("traffic.latent"))


def _computation(t: Translator, stage: Stage, report: Report) -> str:
    if stage.name == "gather_query" and report.query_replicated:
        return t("stage.gather_query.replicated")
    return t(f"stage.{stage.name}.does")


def _prefill(t: Translator, report: Report) -> None:
    """The step of a prefill chunk, where one was asked for."""
    step = report.prefill
    if step is None:
        return
    stages = [stage for stage in busiest(step) if stage.collective is not None]
    title = t("traffic.prefill", tokens=numbers.digits(report.scenario.prefill_tokens))
    st.subheader(title, anchor=False)
    if stages:
        tables.draw(_step_rows(t, step, stages), title)
    else:
        st.caption(t("traffic.silent"))


def _step_rows(t: Translator, step: Step, moving: list[Stage]) -> list[tables.Row]:
    rows = [
        {
            t("column.source"): _source(t, stage),
            t("column.collective"): _collective(t, stage),
            t("column.calls"): numbers.digits(stage.calls),
            t("column.shape"): shape(stage),
            t("column.payload"): _traffic(stage.payload),
            t("column.sent"): _traffic(stage.sent),
            t("column.sent_step"): _traffic(stage.per_step),
        }
        for stage in moving
    ]
    titles = list(rows[0])
    sums = {
        titles[0]: f"**{t('traffic.total')}**",
        titles[2]: f"**{numbers.digits(sum(stage.calls for stage in moving))}**",
        titles[-1]: f"**{numbers.traffic(step.sent_per_rank.value)}**",
    }
    return [*rows, {title: sums.get(title, "") for title in titles}]


def _source(t: Translator, stage: Stage) -> str:
    name = t(f"stage.{stage.name}")
    name = t("traffic.draft", stage=name) if stage.drafts else name
    return t("traffic.source", kind=t(f"kind.{stage.kind}.short"), stage=name)


def _collective(t: Translator, stage: Stage) -> str:
    if stage.collective is None or stage.group is None:
        return "–"
    name = t(f"collective.{stage.collective}")
    return t("traffic.over", name=name, group=stage.group.upper(), size=stage.group_size)


def shape(stage: Stage) -> str:
    """A tensor's shape and dtype, as code."""
    return f"`[{','.join(map(str, stage.shape))}]` {stage.dtype}"


def _traffic(item: Item | None) -> str:
    return "–" if item is None else numbers.traffic(item.value)


def _stage_note(t: Translator, report: Report) -> None:
    sums = [item.value for item in report.step.per_rank]
    pp = report.scenario.pp
    if pp > 1:
        st.caption(t("traffic.stage", stage=sums.index(max(sums)) + 1, stages=pp))
    st.caption(t("traffic.proportional"))


def _derived(report: Report, moving: list[Stage]) -> dict[str, Item]:
    latent = LatentAttention.model_fields["kind"].default
    single = {
        stage.name: stage.per_step
        for stage in moving
        if stage.kind == latent and stage.per_step is not None
    }
    return {"sent": report.step.sent_per_rank, "all_ranks": report.step.all_ranks, **single}
