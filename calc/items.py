"""Formula and Item: every number keeps the arithmetic that made it.

A *formula* is a pure function of named numbers with a single ``return``
expression. It is written once, as Python; its LaTeX and the line with the
numbers filled in are read from that same expression (``calc.expressions``),
so that they cannot disagree with the result.

An *Item* is a formula with bound arguments and its value. Arguments may be
Items themselves, so a total knows its parts and a derivation is a walk.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar

from calc.units import Number

P = ParamSpec("P")
R = TypeVar("R")


class Status(StrEnum):
    """How far a number can be trusted."""

    EXACT = "exact"  # follows from the model's structure
    ENGINE = "engine rule"  # a named version of an engine does it this way
    MEASURED = "measured"
    ESTIMATE = "estimate"


class Formula(Generic[P, R]):
    """A pure function with a unit and a source; call it, or bind it with ``item``."""

    def __init__(self, function: Callable[P, R], unit: str, source: str, status: Status) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.unit = unit
        self.source = source
        self.status = status
        self.parameters = tuple(inspect.signature(function).parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def value(self, **arguments: Number | Item) -> Number:
        """Evaluate with arguments that are numbers or Items."""
        function: Callable[..., Number] = self.function
        return function(
            **{
                name: bound.value if isinstance(bound, Item) else bound
                for name, bound in arguments.items()
            }
        )

    def item(self, key: str, **arguments: Number | Item) -> Item:
        """Bind the arguments (numbers or Items) and evaluate."""
        return Item(key, self, arguments, self.value(**arguments))


FORMULAS: dict[str, Formula[Any, Any]] = {}
"""Every formula of the package by name, filled as modules are imported."""


def formula(
    *, unit: str, source: str, status: Status = Status.EXACT
) -> Callable[[Callable[P, R]], Formula[P, R]]:
    """Register a function as a formula. Its parameters must have a symbol."""

    def register(function: Callable[P, R]) -> Formula[P, R]:
        made = Formula(function, unit, source, status)
        if made.name in FORMULAS:
            raise ValueError(f"two formulas are called {made.name}")
        FORMULAS[made.name] = made
        return made

    return register


def _sum(**terms: Number) -> Number:
    return sum(terms.values())


SUMS = {
    unit: Formula(_sum, unit, "sum of the items named", Status.EXACT)
    for unit in ("B", "B/token", "parameters", "µs", "FLOP", "blocks")
}


@dataclass(frozen=True, slots=True)
class Item:
    """One number: ``key`` says what it is, ``formula`` and ``arguments`` why."""

    key: str
    formula: Formula[Any, Any]
    arguments: dict[str, Number | Item]
    value: Number

    @property
    def unit(self) -> str:
        return self.formula.unit

    @property
    def status(self) -> Status:
        return self.formula.status

    def parts(self) -> Iterator[Item]:
        """The Items this one was computed from."""
        return (bound for bound in self.arguments.values() if isinstance(bound, Item))


def total(key: str, unit: str, items: Iterable[Item]) -> Item:
    """The sum of items as an Item that keeps them (an empty sum is 0)."""
    kept: dict[str, Number | Item] = {}
    value: Number = 0
    for item in items:
        again = sum(item.key in name for name in kept)
        kept[f"{item.key}#{again + 1}" if again else item.key] = item
        value = value + item.value
    return Item(key, SUMS[unit], kept, value)


def walk(item: Item) -> list[Item]:
    """All Items behind one, each once, parts before what is made of them."""
    seen: dict[int, Item] = {}

    def visit(node: Item) -> None:
        if id(node) not in seen:
            for part in node.parts():
                visit(part)
            seen[id(node)] = node

    visit(item)
    return list(seen.values())
