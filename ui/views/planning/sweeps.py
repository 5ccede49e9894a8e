"""One output over ranges of one or two inputs: a line, several, or a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.export import sweep_csv
from calc.plan_inputs import NONE
from calc.report import Report
from calc.scenario import FIELDS
from calc.sweep import MAX_LOOPED, MAX_POINTS, Axis, Sweep, read_axis, sweep_over
from ui import asked, errors, numbers, plan_charts, tables
from ui.text import Translator
from ui.views import parts

MOST_DRAWN = 20_000
MOST_ROWS = 100
HELP_VALUES = ("1,2,4,8", "1024:8192:1024", "1:64:x2")

SWEPT_BY = ("output", "input", "values", "input2", "values2")
"""The inputs of a sweep."""


def draw(t: Translator, report: Report) -> None:
    """Inputs, the chart, the table, the file."""
    st.markdown(t("plan.sweep.what"))
    two = st.session_state["plan_input2"] != NONE  # without one its values mean nothing
    asked.draw(t, "plan", *(name for name in SWEPT_BY if two or name != "values2"))
    st.caption(
        t(
            "plan.sweep.how",
            most=numbers.digits(MAX_POINTS),
            looped=numbers.digits(MAX_LOOPED),
            **dict(zip(("listed", "range", "factor"), HELP_VALUES, strict=True)),
        )
    )
    try:
        made = asked_sweep(report, asked.values("plan", SWEPT_BY))
    except CalcError as error:
        errors.fault(t, error)
        return
    worded = {"output": t(f"plan.output.{made.output.id}")}
    worded |= {axis.name: label(t, axis.name) for axis in made.axes}
    names = t("plan.sweep.and").join(worded[axis.name] for axis in made.axes)
    title = t("plan.sweep.chart", output=worded["output"], input=names)
    if made.values.size <= MOST_DRAWN:
        parts.chart(
            t, "sweep_chart", lambda: plan_charts.sweep(t, made, worded, _here(report, made)), title
        )
    else:
        st.info(t("plan.sweep.undrawn", most=numbers.digits(MOST_DRAWN)))
    _faults(t, made)
    _table(t, made, worded)
    st.download_button(
        t("plan.sweep.csv"),
        lambda: sweep_csv(made),
        file_name="sweep.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def asked_sweep(report: Report, said: Mapping[str, Any]) -> Sweep:
    """The sweep that the inputs ask for; raises CalcError."""
    axes = [_axis(said["input"], said["values"])]
    if said["input2"] != NONE:
        axes.append(_axis(said["input2"], said["values2"]))
    return sweep_over(report.scenario, said["output"], axes)


def _axis(name: str, values: str) -> Axis:
    return read_axis(f"{name}={''.join(values.split())}")


def label(t: Translator, name: str) -> str:
    """An input in words."""
    return t(f"field.{name}")


def _here(report: Report, made: Sweep) -> tuple[Any, Any] | None:
    """Where the scenario of the page stands, for a sweep of one input that is a number."""
    name = made.axes[0].name
    if len(made.axes) > 1 or name not in FIELDS:
        return None
    x = getattr(report.scenario, name)
    try:
        y = made.output.read(report)
    except CalcError:
        return None
    return None if y is None or isinstance(x, str) else (x, y)


def _faults(t: Translator, made: Sweep) -> None:
    """Points that cannot be, with the first reason."""
    if made.faults:
        sentence, _ = errors.worded(t, next(iter(made.faults.values())))
        missing = sum(value is None for value in made.values.ravel().tolist())
        st.caption(t("plan.sweep.faults", count=numbers.digits(missing), reason=sentence))


def _table(t: Translator, made: Sweep, worded: dict[str, str]) -> None:
    with st.expander(t("plan.sweep.points"), icon=":material/table:"):
        rows = []
        for at, point in enumerate(made.rows()):
            if at == MOST_ROWS:
                break
            cells = {
                worded[axis.name]: f"{value:,}" if isinstance(value, int) else str(value)
                for axis, value in zip(made.axes, point, strict=False)
            }
            rows.append(cells | {worded["output"]: plan_charts.shown(point[-1], made.output.unit)})
        tables.draw(rows, t("plan.sweep.points"))
        if made.values.size > MOST_ROWS:
            st.caption(t("plan.sweep.more", count=numbers.digits(made.values.size - MOST_ROWS)))
