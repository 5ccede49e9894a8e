"""Several scenarios in one text: what is compared travels in a link.

Each is kept as the keys of its own link, defaults left out; together they are compressed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from calc.errors import CalcError
from calc.link import LinkError, decode, encode, inflated, packed
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
    return packed(json.dumps(kept, separators=(",", ":")))


def unpack_pins(text: str) -> tuple[Scenario, ...]:
    """Inverse of ``pack_pins``; bounded in memory, raises CalcError."""
    if not text:
        return ()
    found = json.loads(inflated(text, MAX_BYTES, "pins_unreadable"))
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_PINS:
        raise CalcError("pins_unreadable", reason=f"it is no list of 1 to {MOST_PINS}")
    pins = []
    for place, keys in enumerate(found, start=1):
        if not isinstance(keys, dict) or not all(isinstance(one, str) for one in keys.values()):
            raise CalcError("pins_unreadable", reason=f"number {place} is no scenario")
        try:
            pins.append(decode({key: [value] for key, value in keys.items()}).scenario)
        except LinkError as error:
            reason = f"number {place} cannot be: {error}"
            raise CalcError("pins_unreadable", reason=reason) from None
    return tuple(pins)
