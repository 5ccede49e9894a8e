"""Reads an answer as people type it: a number with or without a unit.

``68.6 KiB``, ``70272``, ``70,272 B``, ``7e4``, ``19 %``, ``53.3x``, ``1.2 ms``. kB, MB, GB are
powers of 1,000 and KiB, MiB, GiB powers of 1,024; k, M stand for thousands and millions of what
is counted, Ki, Mi for 1,024 and 1,048,576. Commas group thousands. Anything else is refused with an
example of the form.
"""

from __future__ import annotations

import math
import re

from calc.errors import CalcError, shown

MOST_LETTERS = 60
GREEK_MU, MICRO = "\u03bc", "\u00b5"
"""Keyboards have either."""
THOUSANDS, POWERS = ("", "k", "M", "G", "T"), ("", "Ki", "Mi", "Gi", "Ti")
COUNTS = ("requests", "tokens", "chunks", "ranks")
"""Units of things that are counted; the word itself may be left out."""

BYTES = {
    **{f"{prefix}B": 1000.0**at for at, prefix in enumerate(THOUSANDS)},
    **{f"{prefix}B": 1024.0**at for at, prefix in enumerate(POWERS)},
    "KB": 1000.0,
}
TIMES = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
MULTIPLES = {
    **{prefix: 1000.0**at for at, prefix in enumerate(THOUSANDS)},
    **{prefix: 1024.0**at for at, prefix in enumerate(POWERS)},
    "K": 1000.0,
}
UNITS: dict[str, dict[str, float]] = {
    "B": BYTES,
    "µs": TIMES,
    "%": {"%": 1.0},
    "×": {"×": 1.0, "x": 1.0},
    **{
        unit: {f"{name}{sep}{unit}" if sep else name: size
               for name, size in MULTIPLES.items() if name for sep in ("", " ")} | {unit: 1.0}
        for unit in COUNTS
    },
}  # fmt: skip
"""By the unit of a question: what may stand behind the number, and how much it is."""

EXAMPLES = {
    "B": "1.5 MiB, 1572864",
    "µs": "1.2 ms, 1200",
    "%": "19 %, 19",
    "×": "53.3x, 53.3",
    "requests": "168",
    "tokens": "99840, 128Ki",
    "chunks": "64",
    "ranks": "8",
}
NUMBER = re.compile(
    r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<power>[eE][+-]?[0-9]{1,3})?\s*(?P<unit>[A-Za-z%×µ][A-Za-z%×µ ]*)?",
    re.ASCII,
)


def read_answer(text: str, unit: str) -> float:
    """The number in the question's unit; raises CalcError with an example.

    >>> read_answer("68.6 KiB", "B"), read_answer("7e4", "B"), read_answer("128Ki", "tokens")
    (70246.4, 70000.0, 131072.0)
    """
    kept = text.replace(GREEK_MU, MICRO).strip().lstrip("~≈").strip()
    example = EXAMPLES[unit]
    if not kept:
        raise CalcError("answer_empty", "answer", example=example)
    found = NUMBER.fullmatch(kept) if len(kept) <= MOST_LETTERS else None
    if found is None:
        raise CalcError("answer_unreadable", "answer", given=shown(kept[:40]), example=example)
    number = float(found["number"].replace(",", "") + (found["power"] or ""))
    said = " ".join((found["unit"] or "").split())
    sizes = UNITS[unit]
    if said and said not in sizes:
        units = ", ".join(name for name in sizes if name.strip())
        raise CalcError(
            "answer_unit", "answer", given=shown(said[:40]), allowed=units, example=example
        )
    value = number * (sizes[said] if said else 1.0)
    if not math.isfinite(value) or value > 1e30:
        raise CalcError("answer_unreadable", "answer", given=shown(kept[:40]), example=example)
    return value
