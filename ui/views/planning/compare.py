"""Up to four scenarios side by side, what differs first; one link carries them all."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from calc.errors import CalcError
from calc.hardware import hardware_ids
from calc.link import LinkError, decode_query, encode, query_string
from calc.pins import MOST_PINS, pack_pins, unpack_pins
from calc.report import Report, evaluate
from calc.scenario import FIELDS, Scenario
from calc.timing.report import times
from calc.units import Number
from ui import errors, names, plan_charts, tables
from ui.inputs import option
from ui.text import Translator
from ui.views import parts

LETTERS = "ABCD"
FIGURES = {
    "request_bytes": "B",
    "max_requests": "requests",
    "max_context": "tokens",
    "weight_bytes": "B",
    "budget_bytes": "B",
    "sent_bytes": "sent B",
    "step_us": "µs",
    "gpu_rate": "tokens/s",
    "ranks": "ranks",
}
"""What is compared, with its unit."""


def draw(t: Translator, report: Report) -> None:
    """Pins, the table of differences, the table of figures, the chart."""
    st.markdown(t("plan.compare.what", most=MOST_PINS))
    try:
        pins = unpack_pins(st.session_state["plan_pins"])
    except CalcError as error:
        errors.fault(t, error)
        st.button(t("plan.compare.clear"), key="plan_clear", on_click=_set, args=((),))
        return
    _adding(t, report.scenario, pins)
    _pins(t, pins)
    if not pins:
        st.info(t("plan.compare.none"), icon=":material/push_pin:")
        return
    reports, broken = _evaluated(pins)
    for letter, reason in broken:
        st.caption(t("plan.compare.cannot", letter=letter))
        errors.fault(t, reason)
    letters = [letter for letter, _ in reports]
    shown = [made for _, made in reports]
    if not shown:
        return
    differing = _differences(t, letters, shown)
    if differing:
        tables.draw(differing, t("plan.compare.differences"))
    elif len(shown) > 1:
        st.markdown(t("plan.compare.equal"))
    values = {name: [_value(made, name) for made in shown] for name in FIGURES}
    rows = [
        {t("column.figure"): f"**{t(f'plan.output.{name}')}**"}
        | {
            letter: plan_charts.shown(value, FIGURES[name])
            for letter, value in zip(letters, row, strict=True)
        }
        for name, row in values.items()
    ]
    tables.draw(rows, t("plan.compare.figures"))
    if len(shown) > 1:
        worded = {t(f"plan.output.{name}"): row for name, row in values.items()}
        parts.chart(
            t,
            "compare_chart",
            lambda: plan_charts.ratios(t, letters, worded),
            t("plan.compare.chart", first=letters[0]),
        )


def _set(pins: Sequence[Scenario]) -> None:
    """Keep these pins (a callback)."""
    st.session_state["plan_pins"] = pack_pins(pins)


def _adding(t: Translator, scenario: Scenario, pins: tuple[Scenario, ...]) -> None:
    """A button for the scenario of the inputs, a field for a link."""
    full = len(pins) >= MOST_PINS
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            t("plan.compare.pin"),
            key="plan_pin",
            icon=":material/push_pin:",
            disabled=full or scenario in pins,
            on_click=_set,
            args=((*pins, scenario),),
        )
        st.text_input(
            t("plan.compare.link"),
            key="plan_link",
            placeholder="?v=1&model=…",
            max_chars=16_500,
            disabled=full,
            on_change=_add_link,
            args=(pins,),
        )
    kept = st.session_state.get("_plan_link_fault")
    if kept:
        st.warning(t("plan.compare.bad_link"), icon=":material/link_off:")
        errors.problem_list(t, kept)


def _add_link(pins: tuple[Scenario, ...]) -> None:
    """Pin the scenario of a pasted link; what is wrong with it stays in its field (a callback)."""
    text = st.session_state["plan_link"].strip()
    st.session_state["_plan_link_fault"] = ()
    if not text:
        return
    try:
        opened = decode_query(text.rpartition("?")[2])
    except LinkError as error:
        st.session_state["_plan_link_fault"] = error.problems
        return
    if opened.scenario not in pins:
        _set((*pins, opened.scenario))
    st.session_state["plan_link"] = ""


def _pins(t: Translator, pins: tuple[Scenario, ...]) -> None:
    """One line a pin: its letter, what it is, a way to open and to remove it."""
    for at, pin in enumerate(pins):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            link = query_string(encode(pin))
            st.markdown(f"**[{LETTERS[at]}](?{link})** · {_summary(t, pin)}", width="content")
            st.button(
                t("plan.compare.remove", letter=LETTERS[at]),
                key=f"plan_remove_{at}",
                type="tertiary",
                icon=":material/close:",
                on_click=_set,
                args=((*pins[:at], *pins[at + 1 :]),),
            )


def _summary(t: Translator, pin: Scenario) -> str:
    name = names.model(t, pin.model_spec, custom=pin.spec is not None)
    return f"{name} · TP {pin.tp} · DCP {pin.dcp} · DP {pin.dp} · PP {pin.pp} · {pin.kv_dtype}"


def _evaluated(
    pins: Sequence[Scenario],
) -> tuple[list[tuple[str, Report]], list[tuple[str, CalcError]]]:
    """The pins that can be, by letter, and those that cannot."""
    reports, broken = [], []
    for letter, pin in zip(LETTERS, pins, strict=False):
        try:
            reports.append((letter, evaluate(pin)))
        except CalcError as error:
            broken.append((letter, error))
    return reports, broken


def _differences(
    t: Translator, letters: Sequence[str], reports: Sequence[Report]
) -> list[tables.Row]:
    """The inputs in which the scenarios differ."""
    rows = []
    models = [names.model(t, made.model, custom=made.scenario.spec is not None) for made in reports]
    if len(set(models)) > 1:
        rows.append(
            {t("column.field"): f"**{t('field.model')}**"} | dict(zip(letters, models, strict=True))
        )
    for name in FIELDS:
        given = [getattr(made.scenario, name) for made in reports]
        if len(set(given)) > 1:
            cells = [_cell(t, name, value) for value in given]
            rows.append(
                {t("column.field"): f"**{t(f'field.{name}')}**"}
                | dict(zip(letters, cells, strict=True))
            )
    return rows


def _cell(t: Translator, name: str, value: object) -> str:
    return option(t, name, value) if isinstance(value, str) else f"{value:,}"


def _value(report: Report, name: str) -> Number | None:
    cache, fit = report.cache, report.fit
    match name:
        case "request_bytes":
            return cache.stage.per_request.value
        case "max_requests":
            return fit.max_requests.value
        case "max_context":
            return fit.max_context
        case "weight_bytes":
            return report.engine.weights.total.value
        case "budget_bytes":
            return fit.budget_bytes
        case "sent_bytes":
            return report.step.sent_per_rank.value
        case "ranks":
            return report.scenario.layout.world_size
    if report.scenario.gpu not in hardware_ids():
        return None
    step = times(report).decode
    return (step.total if name == "step_us" else step.tokens_per_second_gpu).value
