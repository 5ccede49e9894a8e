"""Inputs made from good ones: pieces cut, doubled, swapped, and signs that are often forgotten."""

from __future__ import annotations

import re
from random import Random

NASTY = (
    "", " ", "\x00", "\n", "=", "&", ";", ",", "-", ":", "%00", "%ff", "+", "1_000", "-1", "0",
    "1e999", "NaN", "Infinity", "-Infinity", "9" * 30, "9" * 400, "0x10", "７", "\u0660", "\ud800",
    "\u202e", "null", "true", "[]", "{}", "[" * 500, "{\"a\":" * 200, "\"", "'", "<b>", "![x](y)",
    "../../etc/passwd", "$(id)", "\U0001f600", "1.", ".1", "١٢", "½", "1,000", "é" * 50,
)  # fmt: skip
LONGEST = 20_000


def mutated(random: Random, seeds: tuple[str, ...]) -> str:
    """One input."""
    if random.random() < 0.05:
        return "".join(chr(random.choice((random.randrange(128), random.randrange(0x10FFFF))))
                       for _ in range(random.randrange(200)))  # fmt: skip
    text = random.choice(seeds)
    if random.random() < 0.4:
        for _ in range(random.choice((1, 1, 2, 3))):
            text = _other_number(random, text)
        return text
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        text = _once(random, text, seeds)
    return text[:LONGEST]


def _other_number(random: Random, text: str) -> str:
    """One number in the text becomes another, so that well-formed inputs stay well-formed."""
    found = list(re.finditer(r"[0-9]+", text))
    if not found:
        return text
    chosen = random.choice(found)
    number = random.choice((0, 1, 2, 3, 7, 16, 63, 64, 96, 1000, 4096, 131_072, 2**20, 2**30))
    return text[: chosen.start()] + str(number) + text[chosen.end() :]


def _once(random: Random, text: str, seeds: tuple[str, ...]) -> str:
    at = random.randrange(len(text) + 1)
    end = min(len(text), at + random.choice((1, 1, 2, 5, 30)))
    match random.randrange(7):
        case 0:
            return text[:at] + text[end:]
        case 1:
            return text[:at] + random.choice(NASTY) + text[at:]
        case 2:
            return text[:at] + random.choice(NASTY) + text[end:]
        case 3:
            return text[:at] + text[at:end] * random.choice((2, 10)) + text[end:]
        case 4:
            other = random.choice(seeds)
            return text[:at] + other[random.randrange(len(other) + 1) :]
        case 5:
            return text[:at] + chr(random.randrange(32, 127)) + text[end:]
        case _:
            return text[:at] + str(random.choice((0, 1, 2**31, 2**63, 10**18, 7))) + text[end:]
