"""What a start-up log says, shown by ``st.dataframe`` alone, which interprets nothing."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from calc.logs import Conflict, EngineLog
from ui import numbers
from ui.text import Translator

MOST_ROWS = 200
SHOWN = 80
"""Letters of a text from a log that are shown."""


def head(t: Translator, log: EngineLog) -> None:
    engine = {"vllm": "vLLM", "sglang": "SGLang"}[log.engine]
    words = {"engine": engine, "lines": numbers.digits(log.lines), "facts": len(log.facts)}
    st.markdown(t("log.head", **words))
    if log.whole("cache_tokens") is not None:
        st.markdown(t(f"log.line.{log.size_line}"))


def conflicts(t: Translator, log: EngineLog) -> None:
    if not log.conflicts:
        return
    st.warning(t("log.conflicts", count=len(log.conflicts)), icon=":material/difference:")
    _plain(
        t,
        "log.conflicts_alt",
        [
            {
                t("column.figure"): fact_name(t, conflict.name),
                t("log.first"): _told(t, conflict, first=True),
                t("log.second"): _told(t, conflict, first=False),
            }
            for conflict in log.conflicts[:MOST_ROWS]
        ],
    )


def _told(t: Translator, conflict: Conflict, first: bool) -> str:
    fact = conflict.first if first else conflict.second
    return t("log.told", value=_value(fact.value), line=fact.line)


def facts(t: Translator, log: EngineLog) -> None:
    with st.expander(t("log.facts", count=len(log.facts)), icon=":material/list:"):
        rows = [
            {
                t("log.column_line"): str(fact.line),
                t("column.figure"): fact_name(t, fact.name),
                t("column.value"): _value(fact.value),
            }
            for fact in sorted(log.facts, key=lambda fact: fact.line)[:MOST_ROWS]
        ]
        _plain(t, "log.facts_alt", rows)


def _plain(t: Translator, alt: str, rows: list[dict[str, str]]) -> None:
    """A table that shows text as it is: no Markdown, no links."""
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", alt=t(alt))


def fact_name(t: Translator, name: str) -> str:
    return t.get(f"log.fact.{name}", name)


def _value(value: float | str) -> str:
    return value[:SHOWN] if isinstance(value, str) else numbers.digits(value)
