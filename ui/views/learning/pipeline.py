"""A decode step of one attention layer as a diagram, and what does each stage in an engine."""

from __future__ import annotations

import streamlit as st

from calc.engines import ENGINES
from calc.learn.pipeline import Box, pipeline
from calc.report import Report
from ui import learn_charts, numbers, tables
from ui.text import Translator
from ui.views import parts
from ui.views.step.stages import shape


def draw(t: Translator, report: Report) -> None:
    """The diagram, the components, the price of a step."""
    boxes = pipeline(report)
    if not boxes:
        st.markdown(t("pipeline.none"))
        return
    scenario = report.scenario
    kind = t(f"kind.{boxes[0].stage.kind}.name")
    st.markdown(t("pipeline.what", kind=kind, tp=scenario.tp, dcp=scenario.dcp))
    if scenario.dcp == 1:
        st.caption(t("pipeline.no_dcp"))
    rows = [(_does(t, box), _makes(t, box), box.stage.collective is not None) for box in boxes]
    parts.chart(t, "pipeline_chart", lambda: learn_charts.pipeline(rows), t("pipeline.chart"))
    tables.draw([_row(t, box) for box in boxes], t("pipeline.components"))
    st.caption(t("pipeline.note"))


def _does(t: Translator, box: Box) -> str:
    return f"{box.number} · {t(f'stage.{box.stage.name}')}"


def _makes(t: Translator, box: Box) -> str:
    stage = box.stage
    made = shape(stage).replace("`", "")
    if stage.collective is None or stage.sent is None:
        return made
    sent = numbers.traffic(stage.sent.value)
    return t(
        "pipeline.sends", shape=made, collective=t(f"collective.{stage.collective}"), sent=sent
    )


def _row(t: Translator, box: Box) -> tables.Row:
    words = {
        f"{engine.name} {engine.version}": box.components[name] for name, engine in ENGINES.items()
    }
    return {t("column.stage"): f"**{_does(t, box)}**"} | words
