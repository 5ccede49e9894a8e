"""Whole-number arithmetic and byte units.

Integers stay integers: a division is exact (checked), a ceiling, or a floor,
and its name says which. ``context`` and ``batch`` may be numpy arrays.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from calc.errors import CalcError

KIB, MIB, GIB = 2**10, 2**20, 2**30
KB, MB, GB = 10**3, 10**6, 10**9

Number = Any
"""An int, a float, or a numpy array of them; formulas take and return these."""


def ceil_div(dividend: Number, divisor: int) -> Number:
    """Smallest whole number not below ``dividend / divisor``.

    >>> ceil_div(1000, 384), ceil_div(768, 384)
    (3, 2)
    """
    return -(-dividend // divisor)


def exact_div(dividend: int, divisor: int) -> int:
    """``dividend / divisor`` where it must come out whole; raises otherwise.

    >>> exact_div(96, 8)
    12
    """
    quotient, remainder = divmod(dividend, divisor)
    if remainder:
        raise CalcError("not_divisible", dividend=dividend, divisor=divisor)
    return quotient


def ratio(dividend: Number, divisor: int) -> Number:
    """``dividend / divisor``: an int where it comes out whole, else a float.

    >>> ratio(9, 3), ratio(9, 2)
    (3, 4.5)
    """
    if isinstance(dividend, int) and dividend % divisor == 0:
        return dividend // divisor
    return dividend / divisor


def lesser(a: Number, b: Number) -> Number:
    """The smaller of two numbers, point by point for arrays."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return min(a, b)


def greater(a: Number, b: Number) -> Number:
    """The larger of two numbers, point by point for arrays."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return max(a, b)


def floor_of(value: Number) -> Number:
    """The whole number at or below a value.

    >>> floor_of(2.7), floor_of(5)
    (2, 5)
    """
    return np.floor(value).astype(int) if isinstance(value, np.ndarray) else math.floor(value)


def ceil_of(value: Number) -> Number:
    """The whole number at or above a value.

    >>> ceil_of(2.1), ceil_of(5)
    (3, 5)
    """
    return np.ceil(value).astype(int) if isinstance(value, np.ndarray) else math.ceil(value)


def square_root(value: Number) -> Number:
    """The square root, point by point for arrays.

    >>> square_root(9.0)
    3.0
    """
    return np.sqrt(value) if isinstance(value, np.ndarray) else math.sqrt(value)


def round_up(value: Number, multiple: int) -> Number:
    """``value`` rounded up to a multiple.

    >>> round_up(128, 256)
    256
    """
    return ceil_div(value, multiple) * multiple


def binomial(items: int, chosen: int) -> int:
    """Ways to choose some of a number of items (0 when there are too few).

    >>> binomial(8, 2), binomial(3, 4)
    (28, 0)
    """
    return math.comb(items, chosen)


@functools.lru_cache(maxsize=256)
def chance_untouched(parts: int, items: int, chosen: int, groups: int, groups_chosen: int) -> float:
    """Chance that none of the chosen items lies in one of ``parts`` equal parts of them.

    Groups are chosen first, then items within the chosen groups; all choices are
    equally likely. Averaged over the parts, of which one may cut through groups.

    >>> chance_untouched(2, 8, 1, 1, 1), chance_untouched(4, 8, 2, 4, 2)
    (0.5, 0.583...)
    """
    size, group = exact_div(items, parts), exact_div(items, groups)
    pool = group * groups_chosen
    missed = 0
    for first in range(0, items, size):
        # ways[chosen groups, items of this part in them]
        ways = {(0, 0): 1}
        touched = range(first // group, (first + size - 1) // group + 1)
        for index in touched:
            inside = min(first + size, (index + 1) * group) - max(first, index * group)
            for (taken, held), count in list(ways.items()):
                key = (taken + 1, held + inside)
                ways[key] = ways.get(key, 0) + count
        missed += sum(
            count
            * math.comb(groups - len(touched), groups_chosen - taken)
            * math.comb(pool - held, chosen)
            for (taken, held), count in ways.items()
            if taken <= groups_chosen
        )
    return missed / (parts * math.comb(groups, groups_chosen) * math.comb(pool, chosen))
