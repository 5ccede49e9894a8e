"""Which layout to run: all legal ones ranked, scenarios compared, sweeps, exports."""

from __future__ import annotations

import streamlit as st

from ui.state import Result
from ui.text import Translator
from ui.views.planning import compare, exports, layouts, sweeps

PARTS = {
    "layouts": layouts.draw,
    "compare": compare.draw,
    "sweep": sweeps.draw,
    "export": exports.draw,
}


def draw(t: Translator, result: Result) -> None:
    """The switch between the parts, and the open one."""
    assert result.report is not None
    st.segmented_control(
        t("plan.label"),
        tuple(PARTS),
        key="plan_part",
        format_func=lambda name: t(f"plan.part.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    PARTS[st.session_state["plan_part"]](t, result.report)
