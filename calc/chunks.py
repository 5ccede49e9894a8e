"""Sets of chunk numbers as people type them: a few ranges, however many chunks they name."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import overload

from calc.errors import CalcError, shown

MOST_CHUNKS = 2**24
"""No prefix has more."""
SIGNS = r"[0-9, \-–]"
"""A sign of a list of chunks; what a link carries is made of the same."""


class Chunks(Sequence[int]):
    """Chunk numbers in order, each once, kept as the fewest ranges: ``runs``.

    Looking one up costs a search through the runs, whatever their length.
    """

    __slots__ = ("_counts", "_starts", "runs")

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        """Neighbouring ranges join; a chunk in two of them is in neither."""
        edges: list[int] = []
        for edge in sorted(edge for one in ranges if one for edge in (one.start, one.stop)):
            if edges and edges[-1] == edge:
                edges.pop()
            else:
                edges.append(edge)
        self.runs = tuple(map(range, edges[::2], edges[1::2]))
        self._starts = edges[::2]
        self._counts = [0, *accumulate(map(len, self.runs))]

    @classmethod
    def of(cls, chunks: Iterable[int]) -> Chunks:
        """Any chunk numbers."""
        if isinstance(chunks, Chunks):
            return chunks
        if isinstance(chunks, range) and chunks.step == 1:
            return cls([chunks])
        return cls(range(chunk, chunk + 1) for chunk in set(chunks))

    def run(self, chunk: int) -> range | None:
        """The run that a chunk is part of."""
        place = bisect_right(self._starts, chunk) - 1
        return self.runs[place] if place >= 0 and chunk in self.runs[place] else None

    def toggled(self, chunks: range) -> Chunks:
        """The same with some chunks on the other side."""
        return Chunks([*self.runs, chunks])

    def __contains__(self, chunk: object) -> bool:
        return isinstance(chunk, int) and self.run(chunk) is not None

    def __len__(self) -> int:
        return self._counts[-1]

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(place)
        run = bisect_right(self._counts, place) - 1
        return self.runs[run][place - self._counts[run]]

    def __iter__(self) -> Iterator[int]:
        for run in self.runs:
            yield from run

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunks) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __repr__(self) -> str:
        return f"Chunks({written(self)!r})"


def parse_chunks(text: str, group: str) -> Chunks:
    """Chunk numbers as people type them: ``3, 7-9``; nothing may be named twice."""
    named = []
    for piece in text.replace(" ", "").split(",") if text.strip() else ():
        match = re.fullmatch(r"([0-9]{1,9})(?:[-–]([0-9]{1,9}))?", piece, re.ASCII)
        if match is None:
            raise CalcError("reuse_unreadable", group=group, given=shown(piece))
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_CHUNKS:
            raise CalcError("reuse_unreadable", group=group, given=shown(piece))
        named.append(range(first, last + 1))
    named.sort(key=lambda one: one.start)
    for before, after in pairwise(named):
        if after.start < before.stop:
            raise CalcError("reuse_overlap", group=group, given=after.start)
    return Chunks(named)


def written(chunks: Iterable[int]) -> str:
    """Chunk numbers as ``parse_chunks`` reads them.

    >>> written({3, 7, 8, 9})
    '3, 7-9'
    """
    runs = Chunks.of(chunks).runs
    return ", ".join(str(one.start) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)
