"""Says why a scenario does not fit, by how much, and offers what would."""

from __future__ import annotations

import streamlit as st

from calc.fields import WholeField
from calc.fitting import Way, longest_alone, ways_to_hold_weights
from calc.report import Report
from calc.scenario import FIELDS
from ui import numbers, state
from ui.text import Translator

ICON = ":material/memory:"


def draw(t: Translator, report: Report) -> None:
    """At most one message: weights, one request, the batch, or the batch as allocated."""
    if report.engine.budget.short_bytes:
        _weights(t, report)
    elif report.engine.view is not None and not report.engine.view.fits:
        _one_request(t, report)
    elif not report.fit.fits:
        _batch(t, report)
    else:
        _engine_batch(t, report)


def _weights(t: Translator, report: Report) -> None:
    budget = report.engine.budget
    stage = min(range(len(budget.stages)), key=lambda index: budget.stages[index].value)
    short = numbers.memory(budget.short_bytes)
    weights = numbers.memory(report.engine.weights.stage_bytes[stage])
    words = {"short": short, "weights": weights, "stage": stage + 1, "stages": report.scenario.pp}
    one = report.scenario.pp == 1
    st.warning(t("short.weights" if one else "short.weights_stage", **words), icon=ICON)
    ways = ways_to_hold_weights(report.scenario)
    if not ways:
        st.markdown(t("short.no_way"))
        return
    st.markdown(t("short.ways"))
    with st.container(horizontal=True, gap="small"):
        for way in ways:
            _offer(t, way)


def _offer(t: Translator, way: Way) -> None:
    sizes = " · ".join(
        f"{t(f'field.{name}')} {t.get(f'option.{value}', str(value))}"
        for name, value in way.changes.items()
    )
    left = numbers.memory(way.budget_bytes)
    if way.max_context is None:
        label = t("short.way", sizes=sizes, left=left)
    else:
        label = t("short.way_context", sizes=sizes, left=left, context=f"{way.max_context:,}")
    key = f"way_{'_'.join(way.changes)}"
    st.button(label, key=key, on_click=_apply, args=(way.changes,), icon=":material/build:")


def _apply(changes: dict[str, object]) -> None:
    for name, value in changes.items():
        st.session_state[name] = value
    state.settle()


def _one_request(t: Translator, report: Report) -> None:
    view, scenario = report.engine.view, report.scenario
    assert view is not None
    longest = longest_alone(report)
    words = {
        "context": numbers.digits(scenario.context),
        "allocated": numbers.memory(view.allocated.value),
        "budget": numbers.memory(report.fit.budget_bytes),
        "short": numbers.memory(view.short_bytes),
        "engine": scenario.engine_rules.name,
    }
    st.warning(t("short.request", **words), icon=ICON)
    field = FIELDS["context"]
    assert isinstance(field, WholeField)
    if not longest:
        st.markdown(t("short.no_context"))
    elif longest <= field.maximum:
        st.button(
            t("short.context", context=numbers.digits(longest)),
            key="fit_context",
            on_click=_apply,
            args=({"context": longest},),
            icon=":material/build:",
        )


def _batch(t: Translator, report: Report) -> None:
    scenario, fit = report.scenario, report.fit
    words = {
        "batch": numbers.digits(scenario.batch),
        "needed": numbers.memory(report.cache.batch.value),
        "budget": numbers.memory(fit.budget_bytes),
        "short": numbers.memory(fit.short_bytes),
    }
    st.warning(t("capacity.short", **words), icon=ICON)


def _engine_batch(t: Translator, report: Report) -> None:
    """The formulas' bytes fit, but the engine does not admit so many."""
    view, scenario = report.engine.view, report.scenario
    most = None if view is None else int(view.max_requests.value)
    if most is not None and most < scenario.batch:
        words = {
            "batch": numbers.digits(scenario.batch),
            "engine": scenario.engine_rules.name,
            "most": numbers.digits(most),
        }
        st.info(t("short.engine_batch", **words), icon=ICON)
