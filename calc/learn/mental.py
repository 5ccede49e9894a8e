"""The rounded way to an answer that fits in a head, beside the exact one.

A value is a sum of products and quotients. Every factor is rounded to as few digits as keep the
result within what a question tolerates, and each line is computed from the rounded ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Term:
    """A product of ``factors`` over ``divisors``."""

    factors: tuple[float, ...]
    divisors: tuple[float, ...] = ()

    def value(self) -> float:
        return math.prod(self.factors) / math.prod(self.divisors)


@dataclass(frozen=True, slots=True)
class Path:
    """Lines to read, and where they end."""

    lines: tuple[str, ...]
    value: float


def mental(terms: Sequence[Term], exact: float, tolerance: float) -> Path:
    """The path with the fewest digits that ends near enough.

    >>> mental([Term((61, 1152))], 70_272, 0.2).lines
    ('60 × 1,000 = 60,000',)
    >>> mental([Term((61, 1152))], 70_272, 0.06).lines
    ('61 × 1,200 = 73,200',)
    """
    made = _path(terms, 1)
    for digits in range(2, MOST_DIGITS):
        if abs(made.value - exact) <= tolerance * abs(exact):
            break
        made = _path(terms, digits)
    return made


def _path(terms: Sequence[Term], digits: int) -> Path:
    lines, values = [], []
    for term in terms:
        factors = [rounded(factor, digits) for factor in term.factors]
        divisors = [rounded(divisor, digits) for divisor in term.divisors]
        product = math.prod(factors) / math.prod(divisors)
        value = rounded(product, digits + 1)
        words = " × ".join(map(written, factors))
        words += "".join(f" / {written(divisor)}" for divisor in divisors)
        sign = "=" if math.isclose(product, value, rel_tol=1e-9) else "≈"
        lines.append(f"{words} {sign} {written(value)}")
        values.append(value)
    if len(values) > 1:
        lines.append(f"{' + '.join(map(written, values))} = {written(sum(values))}")
    return Path(tuple(lines), sum(values))


def rounded(value: float, digits: int) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{digits}g}")


def written(value: float) -> str:
    """A number as one would write it down.

    >>> written(1200), written(0.25), written(3.5e12)
    ('1,200', '0.25', '3.5·10¹²')
    """
    if abs(value) >= 1e9:
        power = math.floor(math.log10(abs(value)))
        sign = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{value / 10**power:g}·10{sign}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"
