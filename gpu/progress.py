"""What the benchmark says while it runs: one JSON object a line, the last one the result."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


class Progress:
    """Counts steps; ``of`` is known before the first one."""

    def __init__(self, of: int) -> None:
        self.of = of
        self.done = 0
        self.started = time.monotonic()

    def step(self, name: str, value: Any = None) -> None:
        """Report a finished step."""
        self.done += 1
        seconds = round(time.monotonic() - self.started, 2)
        say({"step": self.done, "of": self.of, "name": name, "value": value, "seconds": seconds})


def say(line: dict[str, Any]) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(json.dumps(_plain(line)) + "\n")
    sys.stdout.flush()


def fail(code: str, message: str) -> None:
    """The last line of a run that has no result: one sentence a person can act on."""
    one_line = " ".join(message.split())
    say({"error": {"code": code, "message": one_line[:400]}})


def _plain(value: Any) -> Any:
    """JSON has no NaN: a number that is none is written as null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
