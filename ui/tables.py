"""Tables of words: rows of cells in, one table out; and the report as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from calc.report import Report

Row = dict[str, str]
"""Cells by column title."""


def draw(rows: Sequence[Row], alt: str) -> None:
    """A table whose cells wrap; they may hold Markdown, so only our own words go in."""
    st.table(pd.DataFrame(rows), border="horizontal", hide_index=True, alt=alt)


def as_json(report: Report) -> bytes:
    """Every number of a report with all its digits, as the command line prints them."""
    return json.dumps(report.to_json(), indent=2, allow_nan=False).encode()
