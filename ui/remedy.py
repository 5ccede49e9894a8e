"""A legal value for the field an error is about, where the error says which would do."""

from __future__ import annotations

from typing import Any

from calc.errors import CalcError
from calc.scenario import FIELDS

NOT_ABOUT_A_COMBINATION = {"not_an_integer", "not_a_number", "out_of_range", "not_a_choice"}


def remedy(error: CalcError, values: dict[str, Any]) -> tuple[str, Any] | None:
    """(field, value): of the values an error lists the nearest below what was typed.

    Where it lists none, the field's frozen default, which does without the feature.
    None for an error that no value of its field would cure.
    """
    name = error.field
    if name not in FIELDS or error.code in NOT_ABOUT_A_COMBINATION:
        return None
    typed = values[name]
    if error.code == "pp_layers":
        return name, int(error.values["layers"])
    listed = [text for text in str(error.values.get("allowed", "")).split(", ") if text.isdigit()]
    if isinstance(typed, int) and listed:
        legal = [int(text) for text in listed]
        return name, max((size for size in legal if size <= typed), default=min(legal))
    start: Any = FIELDS[name].default
    return (name, start) if start != typed else None
