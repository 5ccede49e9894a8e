"""A prefix cache that does what ``calc.reuse`` states: hash-chained chunks, insertion, eviction.

Every chunk's key is a hash of its tokens and of the key before it, so that equal keys mean equal
prefixes. Each group has its own table. The searches walk as the engines do (a scan from the
right for windows and states, a walk from the root of a tree, bitmaps folded together), and know
nothing of boundaries that are "needed".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Keeps:
    """How a group is cached: ``reach`` is its window or attention chunk in tokens."""

    kind: Literal["full", "window", "chunk", "state"]
    chunk: int
    reach: int = 0
    drafted: bool = False


def chain(tokens: Sequence[int], size: int, ahead: int = 0) -> list[str]:
    """The keys of all whole chunks; each covers ``ahead`` tokens behind its chunk too."""
    keys, parent = [], ""
    for start in range(0, len(tokens) - size - ahead + 1, size):
        text = f"{parent}|{','.join(map(str, tokens[start : start + size + ahead]))}"
        parent = hashlib.sha256(text.encode()).hexdigest()
        keys.append(parent)
    return keys


@dataclass
class PrefixCache:
    """``held[group]`` are keys, oldest first; ``room`` is how many chunks fit in all."""

    groups: list[Keeps]
    room: int = 10**9
    ahead: int = 0
    held: list[dict[str, None]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = [{} for _ in self.groups]

    def insert(self, tokens: Sequence[int]) -> None:
        """All whole chunks of a request; the oldest chunks make room."""
        for number, group in enumerate(self.groups):
            for key in chain(tokens, group.chunk, self.ahead):
                self.held[number].pop(key, None)
                self.held[number][key] = None
        while sum(map(len, self.held)) > self.room:
            fullest = max(range(len(self.groups)), key=lambda number: len(self.held[number]))
            self.evict(fullest, next(iter(self.held[fullest])))

    def evict(self, group: int, key: str) -> None:
        """One chunk of one group goes, whatever else hangs on it."""
        self.held[group].pop(key, None)

    def there(self, tokens: Sequence[int]) -> list[list[bool]]:
        """For each group, which whole chunks of a request are held."""
        return [
            [key in self.held[number] for key in chain(tokens, group.chunk, self.ahead)]
            for number, group in enumerate(self.groups)
        ]

    # --- vLLM -------------------------------------------------------------------------------------

    def vllm(self, tokens: Sequence[int]) -> int:
        """Each group may shorten what the one before found, until nothing changes."""
        bits = self.there(tokens)
        unit = math.lcm(*(group.chunk for group in self.groups))
        found = len(tokens) - 1
        most = len(tokens) if len(self.groups) > 1 else found
        while True:
            before = found
            for group, row in zip(self.groups, bits, strict=True):
                found = min(found, _manager(group, row, found, most, unit))
            if found == before or not found:
                return found

    # --- SGLang -----------------------------------------------------------------------------------

    def sglang(self, tokens: Sequence[int]) -> int:
        """A walk from the root; each page may end a match if every component says so."""
        bits = self.there(tokens)
        step = min(group.chunk for group in self.groups)
        best = at = 0
        run = [math.inf] * len(self.groups)  # tokens since the last page without a window's rows
        while at + step <= len(tokens) - 1:
            at += step
            valid = True
            for number, (group, row) in enumerate(zip(self.groups, bits, strict=True)):
                if group.kind == "state":
                    valid &= at % group.chunk == 0 and row[at // group.chunk - 1]
                    continue
                present = row[at // step - 1]
                if group.kind == "full" and not present:
                    return best
                if group.kind == "window":
                    run[number] = run[number] + step if present else 0
                    valid &= run[number] >= group.reach
            if valid:
                best = at
        return best

    # --- LMCache ----------------------------------------------------------------------------------

    def lmcache(self, tokens: Sequence[int]) -> int:
        """One bitmap a group; the longest prefix of whole chunks that satisfies all rows."""
        bits = self.there(tokens)
        size = self.groups[0].chunk
        # a state cannot step back: beside states the last token is not looked up at all
        reserved = any(group.kind == "state" for group in self.groups)
        for end in range((len(tokens) - reserved) // size, 0, -1):
            if all(_row(group, row[:end]) for group, row in zip(self.groups, bits, strict=True)):
                return min(end * size, len(tokens) - 1)
        return 0


def _row(group: Keeps, row: list[bool]) -> bool:
    """One bitmap, with the group's window in chunks (-1: all of it)."""
    if group.kind == "full":
        return all(row)
    trailing = 1 if group.kind == "state" else -(-group.reach // group.chunk)
    return all(row[-trailing:])


def _manager(group: Keeps, row: list[bool], found: int, most: int, unit: int) -> int:
    """The longest hit of one vLLM manager that is at most ``found`` tokens."""
    size = group.chunk
    drop = int(group.drafted and group.kind != "state")
    # a drafting group looks one chunk further than what was found, and then gives one up
    blocks = min(found // size + drop, most // size, len(row))
    if group.kind == "full":
        count = 0
        while count < blocks and row[count]:
            count += 1
        count = max(0, count - drop)
        while count * size % unit:
            count -= 1
        return count * size
    if group.kind == "chunk":
        start = found // group.reach * group.reach // size
        count = start
        while count < blocks and row[count]:
            count += 1
        while count * size % unit:
            count -= 1
        return count * size
    wanted = 1 if group.kind == "state" else -(-(group.reach - 1) // size) + drop
    for end in range(blocks, 0, -1):
        if (end - drop) * size % unit:
            continue
        run = 0
        while run < wanted and run < end and row[end - 1 - run]:
            run += 1
        if run in (wanted, end):
            return max(0, end - drop) * size
    return 0
