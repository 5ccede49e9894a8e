"""Whole-number arithmetic and byte units.

Integers stay integers: a division is exact (checked), a ceiling, or a floor,
and its name says which. ``context`` and ``batch`` may be numpy arrays.
"""

from __future__ import annotations

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


def round_up(value: Number, multiple: int) -> Number:
    """``value`` rounded up to a multiple.

    >>> round_up(128, 256)
    256
    """
    return ceil_div(value, multiple) * multiple
