"""Inputs of the Reuse view: one widget a field of ``calc.reuse_inputs``, keyed by its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.fields import ChoiceField, NumberField, OptionalWhole, WholeField
from calc.reuse_asked import FIELDS, Asked
from calc.scenario import Scenario
from ui import errors, numbers
from ui.text import Translator


def asked(scenario: Scenario, names: Iterable[str]) -> Asked:
    """What is asked now, of the fields that a part of the view is about; raises CalcError."""
    return Asked(scenario, {name: st.session_state[f"reuse_{name}"] for name in names})


def draw(t: Translator, *names: str, left_open: dict[str, int] | None = None) -> None:
    """The widgets of some fields side by side; ``left_open``: what an empty one stands for."""
    with st.grid("auto", min_column_width=170, gap="small", vertical_alignment="bottom"):
        for name in names:
            _widget(t, name, (left_open or {}).get(name))


def _widget(t: Translator, name: str, left_open: int | None) -> None:
    field, key = FIELDS[name], f"reuse_{name}"
    label, note = t(f"reuse.{name}"), t.get(f"reuse.{name}.help", "") or None
    kept: dict[str, Any] = {"key": key, "help": note, "persist_state": "session"}
    if isinstance(field, OptionalWhole):
        shown = None if left_open is None else numbers.digits(left_open)
        bounds = (field.minimum, field.maximum)
        st.number_input(label, *bounds, value=None, step=1, placeholder=shown, **kept)
    elif isinstance(field, WholeField):
        st.number_input(label, field.minimum, field.maximum, step=1, **kept)
    elif isinstance(field, NumberField):
        limits = (float(field.minimum), float(field.maximum))
        st.number_input(label, *limits, step=1.0, format="%g", **kept)
    elif isinstance(field, ChoiceField) and len(field.choices) > 1:
        st.selectbox(label, field.choices, format_func=lambda one: _choice(t, name, one), **kept)
    else:
        st.text_input(label, **kept)


def _choice(t: Translator, name: str, choice: str) -> str:
    return t.get(f"reuse.{name}.{choice}", t.get(f"option.{choice}", choice))


def fault(t: Translator, error: CalcError) -> None:
    """What cannot be, with its reason."""
    sentence, raw = errors.worded(t, error)
    st.error(sentence, icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)
