"""What a step sends between ranks, what that costs in time, and what DCP trades for it."""

from __future__ import annotations

import streamlit as st

from ui.state import Result
from ui.text import Translator
from ui.views.step import bytes, exchange, links, roofline, time

PARTS = {
    "bytes": bytes.draw,
    "time": time.draw,
    "exchange": exchange.draw,
    "links": links.draw,
    "roofline": roofline.draw,
}


def draw(t: Translator, result: Result) -> None:
    """The switch between the parts, and the open one."""
    assert result.report is not None
    st.segmented_control(
        t("step.label"),
        tuple(PARTS),
        key="traffic_part",
        format_func=lambda name: t(f"step.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    PARTS[st.session_state["traffic_part"]](t, result.report)
