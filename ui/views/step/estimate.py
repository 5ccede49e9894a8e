"""The GPU that times are estimated for, and the rate of steps that figures a second assume."""

from __future__ import annotations

import functools

import streamlit as st

from calc.errors import CalcError
from calc.hardware import NO_GPU, Hardware, hardware_ids, load_hardware
from calc.report import Report
from calc.timing.errors import ErrorRow, error_rows
from calc.timing.report import Times, times
from ui import errors, numbers
from ui.text import Translator

RATES = ("estimate", "typed")
TYPED_RATE = 20.0
"""Steps a second where nothing is estimated: 50 ms a token."""


def chosen_gpu(t: Translator, report: Report) -> Hardware | None:
    """A selector bound to the scenario's GPU; says what to choose where none is."""
    given = report.scenario.gpu
    known = given in hardware_ids()
    st.session_state["step_gpu"] = given if known else None
    st.selectbox(
        t("field.gpu"),
        hardware_ids(),
        index=None,
        key="step_gpu",
        format_func=lambda gpu: load_hardware(gpu).name,
        placeholder=t("step.choose"),
        help=t("step.gpu_help"),
        on_change=_set_gpu,
        width=280,
    )
    if not known:
        st.info(t("step.no_gpu"), icon=":material/memory:")
        return None
    return load_hardware(given)


def _set_gpu() -> None:
    st.session_state["gpu"] = st.session_state["step_gpu"] or NO_GPU


def fault(t: Translator, error: CalcError) -> None:
    """Why there is no estimate here."""
    sentence, _ = errors.worded(t, error)
    st.warning(sentence, icon=":material/block:")


def estimated(t: Translator, report: Report, gpu: Hardware) -> Times | None:
    """The times of the report's steps, or a message why there are none."""
    try:
        return times(report, gpu)
    except CalcError as error:
        fault(t, error)
        return None


def steps_per_second(t: Translator, report: Report) -> float:
    """The estimated rate of steps, or a typed one."""
    guess = _guess(report)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium", width="content"):
        source = st.segmented_control(
            t("step.rate"),
            RATES if guess else RATES[1:],
            key="step_rate_from" if guess else "step_rate_only",
            default=RATES[0] if guess else RATES[1],
            format_func=lambda name: t(f"step.rate.{name}"),
            required=True,
            help=t("step.rate_help"),
            persist_state="session",
        )
        if guess and source == RATES[0]:
            st.markdown(t("step.rate_is", rate=numbers.significant(guess)))
            return guess
        return st.number_input(
            t("step.rate_typed"),
            0.01,
            100_000.0,
            value=TYPED_RATE,
            step=1.0,
            format="%g",
            key="step_rate",
            width=200,
            persist_state="session",
        )


def _guess(report: Report) -> float | None:
    gpu = report.scenario.gpu
    if gpu not in hardware_ids():
        return None
    try:
        return float(times(report, load_hardware(gpu)).decode.tokens_per_second_user.value)
    except CalcError:
        return None


@functools.cache
def measured_errors() -> dict[str, ErrorRow]:
    """How far off the estimates of each kind were."""
    return {row.table: row for row in error_rows()}
