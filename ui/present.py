"""A page for an audience or for paper: no inputs, larger type; printing drops the controls.

Streamlit has no setting for either, so these rules stand here. They name only its own parts.
"""

from __future__ import annotations

import streamlit as st

from ui.text import Translator

KEY = "presenting"
PRINT = """<style>
@media print {
  [data-testid=stSidebar], [data-testid=stHeader], [data-testid=stToolbar], .stButton,
  .stDownloadButton, .stFormSubmitButton, .stButtonGroup, .stPopover, .stFileUploader
  { display: none !important; }
  [data-testid=stMain], [data-testid=stAppViewContainer], .stApp
  { position: static !important; overflow: visible !important; height: auto !important; }
  .stMainBlockContainer { padding: 0 !important; max-width: none !important; }
  .stPlotlyChart, .stTable tr, [data-testid=stVerticalBlockBorderWrapper] { break-inside: avoid; }
}
</style>"""
PRESENT = """<style>
[data-testid=stSidebar], [data-testid=stSidebarCollapsedControl],
[data-testid=stExpandSidebarButton], [data-testid=stHeader]
{ display: none !important; }
.stMainBlockContainer { max-width: 70rem; margin: 0 auto; zoom: 1.2; }
</style>"""


def style() -> None:
    """The rules that hold now."""
    st.html(PRINT + (PRESENT if st.session_state[KEY] == "on" else ""))


def toggle(t: Translator) -> None:
    """A button into the presentation, or out of it."""
    on = st.session_state[KEY] == "on"
    st.button(
        t("present.off" if on else "present.on"),
        key="present",
        type="tertiary",
        icon=":material/close_fullscreen:" if on else ":material/slideshow:",
        on_click=_turn,
    )


def _turn() -> None:
    st.session_state[KEY] = "off" if st.session_state[KEY] == "on" else "on"
