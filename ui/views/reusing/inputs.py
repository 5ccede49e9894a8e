"""Inputs that the parts of the Reuse view share."""

from __future__ import annotations

from collections.abc import Iterable

from calc.errors import CalcError
from calc.reuse_asked import FIELDS, Asked
from calc.scenario import Scenario
from ui import asked as widgets
from ui import errors
from ui.text import Translator


def asked(scenario: Scenario, names: Iterable[str]) -> Asked:
    """What is asked now, of the fields that a part of the view is about; raises CalcError."""
    return Asked(scenario, widgets.values("reuse", names))


def fault(t: Translator, error: CalcError) -> None:
    """What cannot be, behind the label of the input that has to change."""
    errors.fault(t, error, label(t, error.field.removeprefix("reuse_")))


def label(t: Translator, name: str) -> str:
    """An input's label, of the other instance's with its side; empty where there is none."""
    side, _, what = name.partition("_")
    if side in ("there", "other") and name in FIELDS:
        words = t.get(f"reuse.{name}", t.get(f"identity.{what}", what))
        return f"{t('reuse.side.there')} · {words}"
    if name in FIELDS and name != "missing":  # its sentences name the group
        return t.get(f"reuse.{name}", "")
    return t.get(f"field.{name}", t.get(f"identity.{name}", ""))


def draw(t: Translator, *names: str, left_open: dict[str, int] | None = None) -> None:
    """The widgets of some fields."""
    widgets.draw(t, "reuse", *names, left_open=left_open)
