"""Inputs that the parts of the Reuse view share."""

from __future__ import annotations

import streamlit as st

from calc.errors import CalcError
from calc.report import Report
from ui import errors
from ui.text import Translator

MOST_TOKENS = 2**24


def whole(
    t: Translator, name: str, default: int, least: int = 1, most: int = MOST_TOKENS, mark: str = ""
) -> int:
    """A whole number with a constant range; it keeps its value while it is not drawn."""
    return int(
        st.number_input(
            t(f"reuse.{name}"),
            least,
            most,
            value=min(max(default, least), most),
            key=f"reuse_{name}{mark}",
            help=t(f"reuse.{name}.help"),
            persist_state="session",
        )
    )


def prefix(t: Translator, report: Report) -> int:
    """Tokens shared with an earlier request: those of the scenario unless others are typed."""
    scenario = report.scenario
    default = scenario.shared_prefix or scenario.context
    return whole(t, "prefix", default, mark=f"_{default}")


def fault(t: Translator, error: CalcError) -> None:
    """What cannot be, with its reason."""
    sentence, raw = errors.worded(t, error)
    st.error(sentence, icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)
