"""A claim, what is right, and the verdict that follows.

A claim with a number is judged by arithmetic: the number, as exactly as it was printed, against
Items that are computed. One Item stands for each condition under which the question has an
answer, so that a claim that holds under some of them only is found to be conditional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from calc.items import Item, formula
from calc.units import Number, greater


class Verdict(StrEnum):
    """What is to be thought of a claim."""

    RIGHT = "right"
    CONDITIONAL = "conditional"  # holds under some conditions only
    WRONG = "wrong"
    UNVERIFIABLE = "unverifiable"  # a measurement without its setup
    OUT_OF_SCOPE = "out_of_scope"  # training advice


class Source(StrEnum):
    """Where a claim is from."""

    STORAGE = "storage"  # an article on KV storage of complex models (Chinese, undated)
    MOVEMENT = "movement"  # an article on MLA as data movement (Chinese, undated)
    STRIPING = "striping"  # an article on DCP of MLA in SGLang, with Kimi K3 (Chinese, undated)
    POPULAR = "popular"  # what is often said, or stands in engine blogs and pull requests


@dataclass(frozen=True, slots=True)
class Right:
    """The value under one condition; ``case`` names it (the page words it by that name)."""

    case: str
    item: Item


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. ``claimed`` is its number in the unit of the Items, ``within`` the relative
    rounding of what was printed; ``judged`` is the verdict where there is nothing to compute.
    """

    id: str
    source: Source
    claimed: float | None = None
    within: float = 0.005
    compute: Callable[[], tuple[Right, ...]] | None = None
    judged: Verdict | None = None

    def rights(self) -> tuple[Right, ...]:
        """The right values, each with its condition."""
        return self.compute() if self.compute else ()

    def holds(self, right: Right) -> bool:
        """Whether the claimed number is this one, as exactly as it was printed."""
        assert self.claimed is not None
        value = float(right.item.value)
        return abs(self.claimed - value) <= self.within * abs(value)

    @property
    def verdict(self) -> Verdict:
        if self.judged is not None:
            return self.judged
        found = [self.holds(right) for right in self.rights()]
        if all(found):
            return Verdict.RIGHT
        return Verdict.CONDITIONAL if any(found) else Verdict.WRONG


def arithmetic(
    id: str, source: Source, claimed: float, compute: Callable[[], dict[str, Item]], within: float
) -> Claim:
    """A claim that is judged by its number."""

    def rights() -> tuple[Right, ...]:
        return tuple(Right(case, item) for case, item in compute().items())

    return Claim(id, source, claimed, within, rights)


@formula(unit="units", source="arithmetic")
def product_of(first: Number, second: Number) -> Number:
    """One number times another."""
    return first * second


@formula(unit="×", source="arithmetic")
def ratio_of(first: Number, second: Number) -> Number:
    """One number against another."""
    return first / second


@formula(unit="%", source="arithmetic")
def percent_of(first: Number, second: Number) -> Number:
    """One number as a share of another."""
    return 100 * first / second


@formula(unit="%", source="time for each token is the inverse of tokens for each time")
def latency_saved(before: Number, after: Number) -> Number:
    """By how much a token's time falls when its rate rises."""
    return 100 * (1 - before / after)


@formula(unit="units", source="arithmetic")
def difference_of(first: Number, second: Number) -> Number:
    """One number less another."""
    return first - second


@formula(unit="units", source="arithmetic")
def larger_of(first: Number, second: Number) -> Number:
    """The larger of two numbers."""
    return greater(first, second)
