"""Reads typed fields out of a config and remembers which were read, and which were assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from calc.errors import CalcError

LARGEST = 2**20
T = TypeVar("T")


class Fields:
    """A config's fields under their many names.

    A value is looked for under each name in turn; ``null`` counts as absent.
    What the file does not give may come from ``defaults``, the class defaults of
    its model type. Names that are present are remembered as read.
    """

    def __init__(
        self, data: Mapping[str, Any], defaults: Mapping[str, Any], path: str = ""
    ) -> None:
        self.data = data
        self.defaults = defaults
        self.path = path
        self.read: set[str] = set()
        self.assumed: set[str] = set()

    def find(self, *names: str) -> tuple[str, Any]:
        """(name, value) of the first name with a value; (first name, None) if none has one."""
        self.read.update(names)
        for name in names:
            if self.data.get(name) is not None:
                return name, self.data[name]
        for name in names:
            if self.defaults.get(name) is not None:
                self.assumed.add(name)
                return name, self.defaults[name]
        return names[0], None

    def has(self, *names: str) -> bool:
        """Whether one of the names has a value."""
        return self.find(*names)[1] is not None

    def maybe(self, *names: str, low: int = 1, high: int = LARGEST) -> int | None:
        """A whole number, or None where it is absent or -1."""
        name, value = self.find(*names)
        if value is None or value == -1:
            return None
        return self._whole(name, value, low, high)

    def whole(self, *names: str, low: int = 1, high: int = LARGEST) -> int:
        """A whole number that the model cannot be described without."""
        name, value = self.find(*names)
        if value is None:
            raise CalcError(
                "config_missing", field=self.path + name, names=" or ".join(dict.fromkeys(names))
            )
        return self._whole(name, value, low, high)

    def _whole(self, name: str, value: Any, low: int, high: int) -> int:
        field = self.path + name
        if isinstance(value, bool) or not isinstance(value, int):
            raise CalcError(
                "not_an_integer", field=field, given=_shown(value), minimum=low, maximum=high
            )
        if not low <= value <= high:
            raise CalcError(
                "out_of_range", field=field, given=_shown(value), minimum=low, maximum=high
            )
        return value

    def flag(self, *names: str, default: bool = False) -> bool:
        """A yes or no."""
        name, value = self.find(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CalcError(
                "not_a_choice", field=self.path + name, given=_shown(value), allowed="true, false"
            )
        return value

    def text(self, *names: str) -> str | None:
        """A string, or None."""
        name, value = self.find(*names)
        if value is not None and not isinstance(value, str):
            raise CalcError(
                "invalid_value", field=self.path + name, reason=f"{_shown(value)} is not a text"
            )
        return value

    def sequence(self, *names: str) -> list[Any] | None:
        """A list, or None where it is absent or empty."""
        name, value = self.find(*names)
        if value is not None and not isinstance(value, list | tuple):
            raise CalcError(
                "invalid_value", field=self.path + name, reason=f"{_shown(value)} is not a list"
            )
        return list(value) if value else None

    def per_layer(
        self, name: str, layers: int, meaning: Mapping[Any, T], extra: int = 0
    ) -> list[T] | None:
        """A list (or a text of letters) with one entry for each layer, by what it means.

        Up to ``extra`` further entries are those of MTP layers.
        """
        value = self.find(name)[1]
        found = list(value) if isinstance(value, str) else self.sequence(name)
        if not found:
            return None
        if not layers <= len(found) <= layers + extra:
            raise CalcError(
                "config_length", field=self.path + name, given=len(found), layers=layers
            )
        return [self._meaning(name, entry, meaning) for entry in found]

    def _meaning(self, name: str, entry: Any, meaning: Mapping[Any, T]) -> T:
        if not isinstance(entry, str | int) or entry not in meaning:
            raise CalcError(
                "not_a_choice",
                field=self.path + name,
                given=_shown(entry),
                allowed=", ".join(str(known) for known in meaning),
            )
        return meaning[entry]

    def indices(self, layers: int, *names: str, first: int = 0) -> set[int] | None:
        """A list of layer numbers counted from ``first``, as a set counted from 0."""
        found = self.sequence(*names)
        if found is None:
            return None
        last = layers + first - 1
        return {self._whole(names[0], value, first, last) - first for value in found}

    def section(self, name: str) -> Fields | None:
        """A nested mapping as fields of its own."""
        self.read.add(name)
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CalcError(
                "invalid_value", field=self.path + name, reason="it is not a JSON object"
            )
        return Fields(value, {}, f"{self.path}{name}.")

    def ignore(self, *names: str) -> None:
        """Mark fields that are understood to say nothing here."""
        self.read.update(names)


def _shown(value: Any) -> str:
    return repr(value)[:64]
