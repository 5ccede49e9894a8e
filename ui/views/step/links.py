"""What a step and the arrival of new caches take of each link, and how traffic grows with batch."""

from __future__ import annotations

import streamlit as st

from calc.errors import CalcError
from calc.exchange import BatchPoint, LinkBudget, against_batch, link_budgets
from calc.hardware import Hardware
from calc.items import Item
from calc.report import Report
from ui import numbers, page, step_charts, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.step import estimate

BATCHES = (1, 4, 16, 64, 256)


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("step.links_what"))
    gpu = estimate.chosen_gpu(t, report)
    if gpu is None:
        return
    rate, arriving = _rates(t, report)
    request = report.cache.stage.per_request.value
    budgets: tuple[LinkBudget, ...] = ()
    try:
        budgets = link_budgets(report.step, gpu, rate, request, arriving)
    except CalcError as error:
        estimate.fault(t, error)
    points = _points(t, report, gpu)
    if budgets:
        _cards(t, budgets, rate, arriving)
    left, right = st.columns(2, gap="medium")
    if budgets:
        with left:
            parts.chart(
                t,
                "links_chart",
                lambda: step_charts.links_in_use(budgets, t),
                t("step.chart_links"),
            )
            tables.draw(_budget_rows(t, budgets), t("step.chart_links"))
    if points and points[-1].calls:
        with right:
            parts.chart(
                t,
                "traffic_chart",
                lambda: step_charts.traffic_by_batch(points, t),
                t("step.chart_batch"),
            )
            tables.draw([_batch_row(t, point) for point in points], t("step.chart_batch"))
    if budgets:
        st.caption(t("step.links_note"))
        items = _derived(budgets)
        parts.derivations(t, "links", items, draw_steps, lambda name: _derived_name(t, name))


def _rates(t: Translator, report: Report) -> tuple[float, float]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        rate = estimate.steps_per_second(t, report)
        arriving = st.number_input(
            t("step.arriving"),
            0.0,
            1e6,
            value=1.0,
            step=1.0,
            format="%g",
            key="step_arriving",
            help=t("step.arriving_help"),
            width=280,
            persist_state="session",
        )
    return rate, arriving


def _points(t: Translator, report: Report, gpu: Hardware) -> list[BatchPoint]:
    batches = sorted({*BATCHES, report.scenario.batch})
    try:
        return list(against_batch(report.scenario, gpu, batches))
    except CalcError:
        return []


def _cards(t: Translator, budgets: tuple[LinkBudget, ...], rate: float, arriving: float) -> None:
    with st.grid(3, min_column_width=150, gap="small"):
        for budget in budgets:
            page.card(
                t(f"step.card.link.{budget.link}"),
                numbers.percent(budget.used),
                t("step.card.link.per", rate=f"{numbers.traffic(budget.rate)}/s"),
                t("step.card.link.help"),
            )
        page.card(
            t("step.card.rates"),
            numbers.significant(rate),
            t("step.card.rates.per", arriving=numbers.significant(arriving)),
            t("step.rate_help"),
        )
    if any(budget.used > 1 for budget in budgets):
        st.warning(t("step.overloaded"), icon=":material/speed:")


def _budget_rows(t: Translator, budgets: tuple[LinkBudget, ...]) -> list[tables.Row]:
    return [
        {
            t("column.link"): t(f"step.link.{budget.link}"),
            t("column.load"): t(f"step.load.{load}"),
            t("column.rate"): f"{numbers.traffic(item.value)}/s",
            t("column.share_of_link"): numbers.percent(float(item.value / budget.rate)),
        }
        for budget in budgets
        for load, item in budget.loads.items()
    ]


def _batch_row(t: Translator, point: BatchPoint) -> tables.Row:
    return {
        t("column.batch"): numbers.digits(point.batch),
        t("column.calls"): numbers.digits(point.calls),
        t("column.sent_step"): numbers.traffic(point.sent_bytes),
        t("column.communication"): numbers.duration(point.communication_us),
        t("column.per_request_time"): numbers.duration(point.communication_us / point.batch),
    }


def _derived(budgets: tuple[LinkBudget, ...]) -> dict[str, Item]:
    return {
        f"{budget.link}.{load}": item for budget in budgets for load, item in budget.loads.items()
    }


def _derived_name(t: Translator, name: str) -> str:
    link, _, load = name.partition(".")
    return t("traffic.source", kind=t(f"step.link.{link}"), stage=t(f"step.load.{load}"))
