"""What the page is, its words, and where the numbers of the chosen model come from."""

from __future__ import annotations

import streamlit as st

from calc.engines import ENGINES
from ui.state import Result
from ui.text import Translator
from ui.views import parts

WORDS = ("rank", "replica", "payload", "sent", "growing", "state", "units", "million")


def draw(t: Translator, result: Result) -> None:
    """The whole view; needs no report, so that it opens for a scenario that cannot be, too."""
    st.markdown(t("about.what"))
    engines = " · ".join(f"{engine.name} {engine.version}" for engine in ENGINES.values())
    st.markdown(t("about.engines", engines=engines))
    st.subheader(t("about.words"), anchor=False)
    st.markdown(
        "\n".join(f"- **{t(f'word.{word}')}** · {t(f'word.{word}.means')}" for word in WORDS)
    )
    parts.not_counted(t, result.report)
