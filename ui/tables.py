"""Tables of words: rows of cells in, one table out; and the report as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
import streamlit as st

from calc.report import Report

LEAST_LETTERS, MOST_UNBROKEN = 20, 24
NO_BREAK_SPACE, NO_BREAK = "\u00a0", "\u2060"
WIDE = re.compile("[\u3000-\u9fff\uff00-\uffef]")
"""Chinese letters and signs, between which a line may break anywhere."""

Row = dict[str, str]
"""Cells by column title."""


def draw(rows: Sequence[Row], alt: str) -> None:
    """A table whose cells wrap; they may hold Markdown, so only our own words go in."""
    held = [
        {held_together(title): held_together(cell) for title, cell in row.items()} for row in rows
    ]
    st.table(pd.DataFrame(held), border="horizontal", hide_index=True, alt=alt)


def held_together(text: str) -> str:
    """A cell that breaks only after about twenty letters.

    On a phone a table then scrolls sideways by itself, instead of putting one word under another.
    """
    made, run = "", 0
    for before, letter in pairwise(f"{text[:1]}{text}"):
        run += 2 if WIDE.match(letter) else 1
        if letter == " " and run > LEAST_LETTERS and len(text) > MOST_UNBROKEN:
            made, run = made + letter, 0
        elif letter == " ":
            made += NO_BREAK_SPACE
        elif WIDE.match(letter) and WIDE.match(before) and made and run <= LEAST_LETTERS:
            made += NO_BREAK + letter
        else:
            made += letter
            run = 0 if WIDE.match(letter) and run > LEAST_LETTERS else run
    return made


def as_json(report: Report) -> bytes:
    """Every number of a report with all its digits, as the command line prints them."""
    return json.dumps(report.to_json(), indent=2, allow_nan=False).encode()
