"""Inputs of a view that travel in its link: one widget a field, keyed by the field's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from calc.fields import ChoiceField, NumberField, OptionalWhole, TextField, WholeField
from calc.view_inputs import EVERY
from ui import numbers
from ui.text import Translator


def values(view: str, names: Iterable[str]) -> dict[str, Any]:
    """What stands in some of a view's inputs, by their names without the view's."""
    return {name: st.session_state[f"{view}_{name}"] for name in names}


def draw(t: Translator, view: str, *names: str, left_open: dict[str, int] | None = None) -> None:
    """The widgets of some inputs side by side; ``left_open``: what an empty one stands for."""
    with st.grid("auto", min_column_width=170, gap="small", vertical_alignment="bottom"):
        for name in names:
            widget(t, view, name, (left_open or {}).get(name))


def widget(t: Translator, view: str, name: str, left_open: int | None = None) -> None:
    """One input; its kind follows from the field's."""
    key = f"{view}_{name}"
    field = EVERY[key]
    label, note = t(f"{view}.{name}"), t.get(f"{view}.{name}.help", "") or None
    kept: dict[str, Any] = {"key": key, "help": note, "persist_state": "session"}
    if isinstance(field, OptionalWhole | WholeField | NumberField):
        least, most = (_written(end) for end in (field.minimum, field.maximum))
        bounds = t("asked.bounds", least=least, most=most)
        kept["help"] = f"{note} {bounds}" if note else bounds
    if isinstance(field, OptionalWhole):
        shown = None if left_open is None else numbers.digits(left_open)
        st.number_input(
            label, field.minimum, field.maximum, value=None, step=1, placeholder=shown, **kept
        )
    elif isinstance(field, WholeField):
        st.number_input(label, field.minimum, field.maximum, step=1, **kept)
    elif isinstance(field, NumberField):
        limits = (float(field.minimum), float(field.maximum))
        st.number_input(label, *limits, step=1.0, format="%g", **kept)
    elif isinstance(field, ChoiceField) and len(field.choices) > 1:
        worded = {one: choice(t, view, name, one) for one in field.choices}
        st.selectbox(label, field.choices, format_func=worded.__getitem__, **kept)
    else:
        # a list has no most letters, only a most of numbers, of which it says so itself
        letters = field.most if isinstance(field, TextField) else None
        st.text_input(label, max_chars=letters, **kept)


def _written(end: float) -> str:
    return numbers.digits(int(end)) if end == int(end) else f"{end:g}"


def choice(t: Translator, view: str, name: str, one: str) -> str:
    """How a choice reads: by its own words, those of a field, or an option's."""
    options = t.get(f"option.{one}", one)
    return t.get(f"{view}.{name}.{one}", t.get(f"field.{one}", options))
