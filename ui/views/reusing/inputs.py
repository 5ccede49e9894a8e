"""Inputs that the parts of the Reuse view share."""

from __future__ import annotations

from collections.abc import Iterable

from calc.reuse_asked import Asked
from calc.scenario import Scenario
from ui import asked as widgets
from ui.text import Translator


def asked(scenario: Scenario, names: Iterable[str]) -> Asked:
    """What is asked now, of the fields that a part of the view is about; raises CalcError."""
    return Asked(scenario, widgets.values("reuse", names))


def draw(t: Translator, *names: str, left_open: dict[str, int] | None = None) -> None:
    """The widgets of some fields."""
    widgets.draw(t, "reuse", *names, left_open=left_open)
