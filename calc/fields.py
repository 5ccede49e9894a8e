"""The kinds of input fields: how a value is written in a link, read strictly, and bounded.

Every field has ``parse`` (text to value), ``check`` (a value as it is, or CalcError
with the field's name) and ``format`` (inverse of ``parse``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from calc.errors import CalcError, shown


@dataclass(frozen=True, slots=True)
class WholeField:
    """A whole number between two bounds, written in plain ASCII digits."""

    name: str
    default: int
    minimum: int
    maximum: int

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"0|-?[1-9][0-9]*", text, re.ASCII):
            raise _fault("not_an_integer", self, text)
        if len(text) > 20:
            raise _fault("out_of_range", self, text)
        return self.check(int(text))

    def check(self, value: Any) -> int:
        if type(value) is not int:
            raise _fault("not_an_integer", self, value)
        if not self.minimum <= value <= self.maximum:
            raise _fault("out_of_range", self, value)
        return value

    def format(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class NumberField:
    """A decimal number between two bounds, written without exponent."""

    name: str
    default: float
    minimum: float
    maximum: float

    def parse(self, text: str) -> float:
        if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text, re.ASCII):
            raise _fault("not_a_number", self, text)
        return self.check(float(text))

    def check(self, value: Any) -> float:
        if type(value) not in (int, float) or value != value:
            raise _fault("not_a_number", self, value)
        if not self.minimum <= value <= self.maximum:
            raise _fault("out_of_range", self, value)
        return float(value)

    def format(self, value: float) -> str:
        """The shortest text without exponent that reads back as the same number."""
        return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _fault(code: str, field: WholeField | NumberField, given: Any) -> CalcError:
    allowed = {"minimum": field.minimum, "maximum": field.maximum}
    return CalcError(code, field.name, given=shown(given), **allowed)


@dataclass(frozen=True, slots=True)
class ChoiceField:
    """One of a few words."""

    name: str
    default: str
    choices: tuple[str, ...]

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise CalcError(
                "not_a_choice",
                self.name,
                given=shown(value),
                allowed=", ".join(self.choices),
            )
        return value

    def format(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class SizeField(ChoiceField):
    """One of a few words, or the size of a group in plain digits."""

    maximum: int = 2**22

    def check(self, value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,6}", value, re.ASCII):
            if int(value) <= self.maximum:
                return value
        elif isinstance(value, str) and value in self.choices:
            return value
        allowed = f"{', '.join(self.choices)}, a whole number up to {self.maximum}"
        raise CalcError("not_a_choice", self.name, given=shown(value), allowed=allowed)


@dataclass(frozen=True, slots=True)
class ListField(ChoiceField):
    """One of a few words, or a list: whole numbers with a dash between, 3x24 for 24-24-24.

    Read by ``pairs`` as (number, how often); with ``counted`` the number after
    the x is how often the one before it comes (4096x30: thirty of 4,096).
    """

    most: int = 64
    largest: int = 2**30
    counted: bool = False

    def check(self, value: Any) -> str:
        if isinstance(value, str) and (value in self.choices or self.pairs(value)):
            return value
        allowed = f"{', '.join(self.choices)}, a list such as 12-12 or 4096x30-131072x2"
        raise CalcError("not_a_choice", self.name, given=shown(value), allowed=allowed)

    def pairs(self, value: str) -> tuple[tuple[int, int], ...]:
        """The list read; empty for a word or for what is no list."""
        made = []
        for part in value.split("-")[: self.most + 1]:
            found = re.fullmatch(r"([1-9][0-9]{0,9})(?:x([1-9][0-9]{0,6}))?", part, re.ASCII)
            if found is None:
                return ()
            first, second = int(found[1]), int(found[2] or 1)
            number, often = (first, second) if self.counted or not found[2] else (second, first)
            if number > self.largest:
                return ()
            made.append((number, often))
        return tuple(made) if len(made) <= self.most else ()


@dataclass(frozen=True, slots=True)
class OptionalWhole:
    """A whole number between two bounds, or None: left open, as the scenario says."""

    name: str
    minimum: int
    maximum: int
    default: None = None

    def parse(self, text: str) -> int | None:
        return WholeField(self.name, self.minimum, self.minimum, self.maximum).parse(text)

    def check(self, value: Any) -> int | None:
        if value is None:
            return None
        return WholeField(self.name, self.minimum, self.minimum, self.maximum).check(value)

    def format(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class TextField:
    """A short text of letters that ``pattern`` allows; where it is read, it is read strictly."""

    name: str
    default: str = ""
    most: int = 200
    pattern: str = r"[^\x00-\x1f\x7f\ud800-\udfff]*"

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise CalcError("invalid_value", self.name, reason="it is not a text")
        if len(value) > self.most:
            raise CalcError("text_too_long", self.name, length=len(value), maximum=self.most)
        if not re.fullmatch(self.pattern, value):
            raise CalcError("invalid_value", self.name, reason=f"{shown(value)} is not of its form")
        return value

    def format(self, value: str) -> str:
        return value


Field = WholeField | NumberField | ChoiceField
"""A field of a Scenario."""
InputField = Field | OptionalWhole | TextField
"""A field of a Scenario or of a view."""
