"""Several scenarios in one text: what is compared travels in a link.

Each is kept as the keys of its own link, defaults left out; together they are compressed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence

from calc.errors import CalcError
from calc.link import LinkError, decode, encode, no_repeats
from calc.scenario import FIELDS, Scenario

MOST_PINS = 4
MAX_BYTES = 64 * 1024
"""All pinned scenarios, inflated."""


def pack_pins(pins: Sequence[Scenario]) -> str:
    """Up to four scenarios as URL-safe text; empty for none."""
    if len(pins) > MOST_PINS:
        raise CalcError("pins_many", "pins", given=len(pins), maximum=MOST_PINS)
    if not pins:
        return ""
    kept = [
        {
            key: text
            for key, text in encode(pin).items()
            if key not in FIELDS or text != FIELDS[key].format(FIELDS[key].default)  # type: ignore[arg-type]
        }
        for pin in pins
    ]
    text = json.dumps(kept, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack_pins(text: str) -> tuple[Scenario, ...]:
    """Inverse of ``pack_pins``; bounded in memory, raises CalcError."""
    if not text:
        return ()
    found = _inflated(text)
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_PINS:
        raise CalcError("pins_unreadable", "pins", reason=f"it is no list of 1 to {MOST_PINS}")
    pins = []
    for place, keys in enumerate(found, start=1):
        if not isinstance(keys, dict) or not all(isinstance(one, str) for one in keys.values()):
            raise CalcError("pins_unreadable", "pins", reason=f"number {place} is no scenario")
        try:
            pins.append(decode({key: [value] for key, value in keys.items()}).scenario)
        except LinkError as error:
            reason = f"number {place} cannot be: {error}"
            raise CalcError("pins_unreadable", "pins", reason=reason) from None
    return tuple(pins)


def _inflated(text: str) -> object:
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", text, re.ASCII):
            raise ValueError("not URL-safe base64 without padding")
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        inflater = zlib.decompressobj()
        data = inflater.decompress(packed, MAX_BYTES)
        if inflater.unconsumed_tail or inflater.unused_data or not inflater.eof:
            raise ValueError("cut off, or too large")
        found: object = json.loads(data, object_pairs_hook=no_repeats)
    except (binascii.Error, ValueError, zlib.error, RecursionError):
        reason = "it is damaged or cut off"
        raise CalcError("pins_unreadable", "pins", reason=reason) from None
    return found
