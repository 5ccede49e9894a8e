"""What a prefix hit needs, what stored chunks weigh, and what makes two of them the same."""

from __future__ import annotations

import streamlit as st

from ui.state import Result
from ui.text import Translator
from ui.views.reusing import hit, same, storage

PARTS = {"hit": hit.draw, "storage": storage.draw, "identity": same.draw}


def draw(t: Translator, result: Result) -> None:
    """The switch between the parts, and the open one."""
    assert result.report is not None
    st.segmented_control(
        t("reuse.label"),
        tuple(PARTS),
        key="reuse_part",
        format_func=lambda name: t(f"reuse.part.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    PARTS[st.session_state["reuse_part"]](t, result.report)
