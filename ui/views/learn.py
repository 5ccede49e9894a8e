"""Show the work: derivations, the claims of sources checked, proofs that run, and practice."""

from __future__ import annotations

import streamlit as st

from ui.state import Result
from ui.text import Translator
from ui.views.learning import claims, derive, practice, proofs

PARTS = {
    "derive": derive.draw,
    "claims": claims.draw,
    "proofs": proofs.draw,
    "practice": practice.draw,
}


def draw(t: Translator, result: Result) -> None:
    """The switch between the parts, and the open one."""
    st.segmented_control(
        t("learn.label"),
        tuple(PARTS),
        key="learn_part",
        format_func=lambda name: t(f"learn.part.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    PARTS[st.session_state["learn_part"]](t, result)
