"""Text to a mapping: bounded in size and depth, without repeated keys."""

from __future__ import annotations

import json
from typing import Any

from calc.errors import CalcError

MAX_BYTES = 2_000_000
MAX_DEPTH = 32


def parse(text: str | bytes) -> dict[str, Any]:
    """The mapping in a config.json.

    ``Infinity`` and ``NaN`` are read, as some published files hold them; a field
    that has to be a number refuses them later.
    """
    if len(text) > MAX_BYTES:
        raise CalcError("config_too_long", length=len(text), maximum=MAX_BYTES)
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        data = json.loads(text, object_pairs_hook=_unrepeated)
    except CalcError:
        raise
    except RecursionError:
        raise CalcError("config_too_deep", maximum=MAX_DEPTH) from None
    except ValueError as error:  # also bad UTF-8, and whole numbers of thousands of digits
        raise CalcError("config_unreadable", reason=str(error)[:200]) from None
    return checked(data)


def checked(data: Any) -> dict[str, Any]:
    """``data`` if it is a mapping that is not nested too deeply."""
    if not isinstance(data, dict):
        raise CalcError("config_unreadable", reason="it is not a JSON object")
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return data
    raise CalcError("config_too_deep", maximum=MAX_DEPTH)


def _children(node: Any) -> list[Any]:
    inside = node.values() if isinstance(node, dict) else node
    return [child for child in inside if isinstance(child, dict | list)]


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CalcError("config_repeated_key", field=twice[:64])
    return found
