"""What is on the page as files, and the command that starts an engine so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from calc.engines import ENGINES
from calc.errors import CalcError
from calc.export import WORDS, markdown, plan_csv, report_csv, report_json, sweep_csv, sweep_json
from calc.launch import KV_FLAGS, launch_command
from calc.plan_answers import FIELDS, plan_json, plan_of
from calc.report import Report
from ui import asked, errors
from ui.derivation import label
from ui.text import Translator
from ui.views.planning.sweeps import SWEPT_BY, asked_sweep

TYPES = {"md": "text/markdown", "csv": "text/csv", "json": "application/json"}


def draw(t: Translator, report: Report) -> None:
    """Files of the scenario, the plan and the sweep; launch commands."""
    st.markdown(t("plan.export.what"))
    # a file is made when it is asked for, in a thread that knows no inputs
    planned, swept = asked.values("plan", FIELDS), asked.values("plan", SWEPT_BY)
    files: dict[str, dict[str, Callable[[], str]]] = {
        "scenario": {
            "md": lambda: report_text(t, report),
            "csv": lambda: report_csv(report),
            "json": lambda: report_json(report),
        },
        "plan": {
            "csv": lambda: _plan(report, planned, "csv"),
            "json": lambda: _plan(report, planned, "json"),
        },
        "sweep": {
            "csv": lambda: _sweep(report, swept, "csv"),
            "json": lambda: _sweep(report, swept, "json"),
        },
    }
    for what, kinds in files.items():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{t(f'plan.export.{what}')}**", width=160)
            for kind, make in kinds.items():
                st.download_button(
                    t(f"plan.export.{kind}"),
                    make,
                    file_name=f"{what}.{kind}",
                    mime=TYPES[kind],
                    key=f"plan_export_{what}_{kind}",
                    icon=":material/download:",
                    on_click="ignore",
                )
    st.caption(t("plan.export.note"))
    preview = st.expander(t("plan.export.preview"), key="plan_preview", on_change="rerun")
    if preview.open:
        with preview:
            st.code(report_text(t, report), language=None, wrap_lines=True)
    st.subheader(t("plan.export.launch"), anchor=False)
    for engine in ENGINES:
        _launch(t, report, engine)


def report_text(t: Translator, report: Report) -> str:
    """The Markdown report in the language of the page."""
    words = {name: t.get(f"export.{name}", english) for name, english in WORDS.items()}
    address = (st.context.url or "").rstrip("/") + "/"
    return markdown(report, address, words, lambda item: label(t, item))


def _plan(report: Report, given: Mapping[str, Any], kind: str) -> str:
    found = plan_of(report.scenario, given)
    if kind == "csv":
        return plan_csv(found)
    return json.dumps(
        plan_json(found, len(found.rows), report.scenario, given), indent=2, allow_nan=False
    )


def _sweep(report: Report, given: Mapping[str, Any], kind: str) -> str:
    made = asked_sweep(report, given)
    return sweep_csv(made) if kind == "csv" else json.dumps(sweep_json(made), indent=2)


def _launch(t: Translator, report: Report, engine: str) -> None:
    """The command of one engine; choices that only the other has are left to this one."""
    scenario = report.scenario
    if engine != scenario.engine:
        scenario = replace(
            scenario,
            engine=engine,
            dcp_backend="auto",
            query_replication="auto",
            moe_backend="auto",
        )
    try:
        command = launch_command(scenario)
    except CalcError as error:
        st.markdown(f"**{ENGINES[engine].name} {ENGINES[engine].version}**")
        errors.fault(t, error)
        return
    st.caption(t("plan.launch", engine=command.engine, version=command.version))
    st.code(command.text, language=None, wrap_lines=True)
    if command.left_out:
        fields = ", ".join(t(f"field.{name}") for name in command.left_out)
        st.caption(t("plan.left_out", fields=fields))
    if scenario.kv_dtype not in KV_FLAGS[engine]:
        st.caption(t("plan.export.format", kv_dtype=scenario.kv_dtype, engine=command.engine))
