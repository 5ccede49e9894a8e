"""Numbers for people: memory in binary units, traffic in decimal ones, three digits that count."""

from __future__ import annotations

import math

from calc.units import Number

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def memory(value: Number) -> str:
    """Bytes held somewhere.

    >>> memory(70_272), memory(509_156_352), memory(1023)
    ('68.6 KiB', '486 MiB', '1,023 B')
    """
    return _scaled(value, 1024, BINARY)


def traffic(value: Number) -> str:
    """Bytes moved somewhere.

    >>> traffic(677_347_328), traffic(1_605_632), traffic(20_971_520)
    ('677 MB', '1.61 MB', '21.0 MB')
    """
    return _scaled(value, 1000, DECIMAL)


def exact(value: Number, unit: str = "B") -> str:
    """Every digit.

    >>> exact(70_272), exact(0.5)
    ('70,272 B', '0.5 B')
    """
    return f"{digits(value)} {unit}"


def digits(value: Number) -> str:
    """A number in full, digits grouped.

    >>> digits(131072), digits(5491.125)
    ('131,072', '5,491.125')
    >>> digits(4e12), digits(0.00002)
    ('4,000,000,000,000', '0.00002')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 10**10:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.0001:
        return f"{value:.15f}".rstrip("0").rstrip(".")
    return f"{value:,.10g}"


def tokens(value: int) -> str:
    """Tokens as people name them; k and M are binary.

    >>> tokens(131072), tokens(1048576), tokens(1000)
    ('128k', '1M', '1,000')
    """
    if value and value % 2**20 == 0:
        return f"{value // 2**20}M"
    if value and value % 1024 == 0:
        return f"{value // 1024}k"
    return f"{value:,}"


def significant(value: Number) -> str:
    """Three digits that count, whole numbers in full.

    >>> significant(3.456), significant(80.0), significant(1023), significant(20.97)
    ('3.46', '80', '1,023', '21.0')
    >>> significant(0.0000482)
    '0.0000482'
    """
    if abs(value) >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:#.3g}" if decimals < 6 else f"{value:.{decimals}f}"


def duration(microseconds: Number) -> str:
    """A time in the unit that people would say it in.

    >>> duration(62_670.7), duration(473.48), duration(5.7), duration(2_100_000)
    ('62.7 ms', '473 µs', '5.70 µs', '2.10 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * size:
            return f"{significant(microseconds / size)} {unit}"
    return f"{significant(microseconds)} µs"


def percent(share: Number) -> str:
    """A share with two or three digits.

    >>> percent(0.0173), percent(0.31), percent(1.5)
    ('1.7 %', '31 %', '150 %')
    """
    return f"{share * 100:.1f} %" if abs(share) < 0.0995 else f"{share * 100:,.0f} %"


def _scaled(value: Number, base: int, units: tuple[str, ...]) -> str:
    size, unit = value, units[0]
    for bigger in units[1:]:
        if abs(size) < base - 0.5:
            break
        size, unit = size / base, bigger
    return f"{significant(size)} {unit}"
