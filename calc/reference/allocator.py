"""A block allocator that does what the closed forms of ``calc.engines`` count.

One pool of equal blocks, block 0 never given out. Requests are admitted one by
one and run: a prefill in steps of so many tokens, then one token a step. Each
group has its own block table. A step is *settled* ``concurrent`` steps after it
was scheduled; only then do blocks that lie wholly outside a window or before
the current chunk go back to the pool. Written without any of the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


class OutOfBlocksError(Exception):
    """The pool has no block left."""


@dataclass(frozen=True)
class GroupRule:
    """How one group keeps its blocks: ``reach`` is the window or chunk in tokens."""

    kind: Literal["full", "window", "chunk", "state"]
    block: int = 16
    reach: int = 0
    ranks: int = 1
    states: int = 1


@dataclass
class Pool:
    """Blocks by number; a block has one owner at a time."""

    size: int
    free: list[int] = field(init=False)
    owner: dict[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.size - 1, 0, -1))

    def take(self, owner: object) -> int:
        if not self.free:
            raise OutOfBlocksError
        number = self.free.pop()
        if number in self.owner:
            raise AssertionError(f"block {number} was given out twice")
        self.owner[number] = owner
        return number

    def give_back(self, number: int) -> None:
        del self.owner[number]
        self.free.append(number)


class Request:
    """One request with a block table for each group; ``peak`` is the most it ever held."""

    def __init__(self, rules: list[GroupRule], pool: Pool, concurrent: int) -> None:
        self.rules, self.pool, self.concurrent = rules, pool, concurrent
        self.tables: list[dict[int, int]] = [{} for _ in rules]
        self.scheduled = [0]
        self.peak = 0
        self.peak_by_group = [0] * len(rules)

    def step(self, tokens: int) -> None:
        """Schedule the next ``tokens`` tokens; blocks of settled steps are freed before."""
        settled = self.scheduled[-self.concurrent] if len(self.scheduled) >= self.concurrent else 0
        for rule, table in zip(self.rules, self.tables, strict=True):
            self._free(rule, table, settled)
        until = self.scheduled[-1] + tokens
        for rule, table in zip(self.rules, self.tables, strict=True):
            self._fill(rule, table, until, settled)
        self.scheduled.append(until)
        held = [len(table) for table in self.tables]
        self.peak = max(self.peak, sum(held))
        self.peak_by_group = [
            max(old, new) for old, new in zip(self.peak_by_group, held, strict=True)
        ]

    def run(self, length: int, batch_tokens: int, prompt: int) -> None:
        """Prefill ``prompt`` tokens in chunks, then decode up to ``length``."""
        while self.scheduled[-1] < prompt:
            self.step(min(batch_tokens, prompt - self.scheduled[-1]))
        while self.scheduled[-1] < length:
            self.step(1)

    def release(self) -> None:
        for table in self.tables:
            for number in table.values():
                self.pool.give_back(number)
            table.clear()

    def _fill(self, rule: GroupRule, table: dict[int, int], until: int, settled: int) -> None:
        if rule.kind == "state":
            for slot in range(rule.states):
                if slot not in table:
                    table[slot] = self.pool.take(self)
            return
        first_needed = self._outside(rule, settled) // (rule.block * rule.ranks)
        index = first_needed
        while index * rule.block * rule.ranks < until:
            if index not in table:
                table[index] = self.pool.take(self)
            index += 1

    def _free(self, rule: GroupRule, table: dict[int, int], settled: int) -> None:
        if rule.kind == "state":
            return
        outside = self._outside(rule, settled)
        for index in list(table):
            if (index + 1) * rule.block * rule.ranks <= outside:
                self.pool.give_back(table.pop(index))

    @staticmethod
    def _outside(rule: GroupRule, settled: int) -> int:
        """Tokens from the start that no later token reads."""
        if rule.kind == "window":
            return max(0, settled - (rule.reach - 1))
        if rule.kind == "chunk":
            return settled - settled % rule.reach
        return 0


def peak_blocks(
    rules: list[GroupRule], length: int, batch_tokens: int, concurrent: int, prompt: int
) -> list[int]:
    """The most blocks that one request holds in each group while it runs."""
    pool = Pool(1 + sum(length + rule.states for rule in rules))  # a token a block needs no more
    request = Request(rules, pool, concurrent)
    request.run(length, batch_tokens, prompt)
    return request.peak_by_group


def admit(
    rules: list[GroupRule], pool_blocks: int, lengths: list[int], batch_tokens: int, concurrent: int
) -> int:
    """How many of these requests, run one after the other and kept, the pool holds at their peak.

    Each length is run alone to its end; what it held at its peak is then kept for it.
    """
    pool = Pool(pool_blocks)
    peaks = {
        length: sum(peak_blocks(rules, length, batch_tokens, concurrent, length))
        for length in set(lengths)
    }
    admitted = 0
    for length in lengths:
        need = peaks[length]
        if need > len(pool.free):
            return admitted
        for _ in range(need):
            pool.take(admitted)
        admitted += 1
    return admitted
