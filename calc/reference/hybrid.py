"""A correctness experiment: a tiny hybrid model generates with and without its prefix cache.

Three layers in a row with fixed random weights: full attention, attention over a window, and a
recurrent state. A first request fills the cache chunk by chunk. A second one, with the same
beginning, takes what is there (rows of zeros stand for what is not) and goes on. Its logits are
compared with those of a run without any cache: they are the same, bit by bit, when every piece
that the boundary needs was there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from calc.errors import CalcError
from calc.layers import Growth
from calc.reuse import ReuseGroup, Rule, needs

Vector = npt.NDArray[np.float64]

WIDTH, VOCABULARY, SEED = 16, 32, 20
CHUNK, WINDOW, PREFIX, GENERATED = 8, 20, 64, 12
MOST_PREFIX = 512
QUESTION = (7, 3)
"""What the second request asks behind the shared prefix."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Embedding, head, and queries, keys, values for three layers."""

    embedding: Vector
    head: Vector
    query: tuple[Vector, ...]
    key: tuple[Vector, ...]
    value: tuple[Vector, ...]

    @classmethod
    def seeded(cls, seed: int = SEED) -> Weights:
        """The same weights for the same seed."""
        random = np.random.default_rng(seed)

        def matrices() -> tuple[Vector, ...]:
            return tuple(random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)) for _ in range(3))

        embedding, head = random.normal(0, 1, (2, VOCABULARY, WIDTH))
        return cls(embedding, head, matrices(), matrices(), matrices())


@dataclass(slots=True)
class Memory:
    """What the three layers keep: rows of K and V, and a state (key x value)."""

    full: list[tuple[Vector, Vector]] = field(default_factory=list)
    window: list[tuple[Vector, Vector]] = field(default_factory=list)
    state: Vector = field(default_factory=lambda: np.zeros((WIDTH, WIDTH)))


def _normal(x: Vector) -> Vector:
    normal: Vector = x / np.sqrt(np.mean(x * x) + 1e-6)
    return normal


def _attend(query: Vector, rows: Sequence[tuple[Vector, Vector]]) -> Vector:
    scores = np.array([query @ key for key, _ in rows]) / WIDTH**0.5
    shares = np.exp(scores - scores.max())
    mixed: Vector = (shares / shares.sum()) @ np.array([value for _, value in rows])
    return mixed


def step(weights: Weights, memory: Memory, token: int, window: int = WINDOW) -> Vector:
    """One token through the model; the memory takes it in. Returns the logits."""
    x = weights.embedding[token]
    for layer in range(3):
        read = _normal(x)
        query, key, value = (
            matrices[layer] @ read for matrices in (weights.query, weights.key, weights.value)
        )
        if layer == 2:
            memory.state = 0.95 * memory.state + np.outer(np.tanh(key), value)
            x = x + _normal(query @ memory.state)
            continue
        rows = memory.full if layer == 0 else memory.window
        rows.append((key, value))
        x = x + _attend(query, rows if layer == 0 else rows[-window:])
    logits: Vector = weights.head @ _normal(x)
    return logits


@dataclass(slots=True)
class Saved:
    """A filled cache: rows of both attention layers, and a state at every chunk's end."""

    full: list[tuple[Vector, Vector]]
    window: list[tuple[Vector, Vector]]
    states: list[Vector]


def fill(weights: Weights, tokens: Sequence[int], chunk: int = CHUNK) -> Saved:
    """The cache that a first request leaves behind."""
    memory, states = Memory(), []
    for place, token in enumerate(tokens, start=1):
        step(weights, memory, token)
        if place % chunk == 0:
            states.append(memory.state)
    return Saved(memory.full, memory.window, states)


def resume(saved: Saved, boundary: int, missing: Mapping[str, Sequence[int]]) -> Memory:
    """A memory at the boundary from the cache; what is missing is zeros, as in fresh memory."""

    def rows(kept: list[tuple[Vector, Vector]], name: str) -> list[tuple[Vector, Vector]]:
        empty = (np.zeros(WIDTH), np.zeros(WIDTH))
        gone = set(missing.get(name, ()))
        return [empty if at // CHUNK in gone else kept[at] for at in range(boundary)]

    last = boundary // CHUNK - 1
    state = np.zeros((WIDTH, WIDTH))
    if last >= 0 and last not in missing.get("state", ()):
        state = saved.states[last]
    return Memory(rows(saved.full, "growing"), rows(saved.window, "window"), state)


def generate(
    weights: Weights, memory: Memory, rest: Sequence[int], count: int = GENERATED
) -> tuple[list[int], Vector]:
    """Reads the rest of a prompt, then picks the likeliest token again and again."""
    logits = np.zeros(VOCABULARY)
    for token in rest:
        logits = step(weights, memory, token)
    tokens: list[int] = []
    seen = [logits]
    for _ in range(count):
        tokens.append(int(np.argmax(logits)))
        logits = step(weights, memory, tokens[-1])
        seen.append(logits)
    return tokens, np.array(seen)


def model_groups() -> tuple[ReuseGroup, ...]:
    """The experiment's three layers as groups of one layer each."""
    return (
        ReuseGroup("growing", "attention", Growth.GROWING, 1, CHUNK),
        ReuseGroup("window", "sliding_window", Growth.WINDOW, 1, CHUNK, WINDOW),
        ReuseGroup("state", "kda", Growth.STATE, 1, CHUNK),
    )


@functools.cache
def _first(prefix: int) -> tuple[Weights, list[int], Saved, tuple[list[int], Vector]]:
    """The first request, the cache it leaves behind, and the answer of a run without a cache."""
    weights = Weights.seeded()
    tokens = [int(token) for token in np.random.default_rng(1).integers(0, VOCABULARY, prefix)]
    plain = generate(weights, Memory(), [*tokens, *QUESTION])
    return weights, tokens, fill(weights, tokens), plain


@dataclass(frozen=True, slots=True)
class Trial:
    """One run with the cache beside one without: ``usable`` is what the rule says of it.

    ``error`` is the largest difference between logits; 0.0 means the same bits.
    """

    name: str
    group: str | None
    chunk: int | None
    usable: bool
    error: float
    same_tokens: bool


def trial(
    boundary: int, missing: Mapping[str, Sequence[int]], name: str = "own", prefix: int = PREFIX
) -> Trial:
    """Goes on from a boundary with pieces missing, and compares with a run without a cache."""
    if not 0 < prefix <= MOST_PREFIX:
        raise CalcError("out_of_range", "prefix", given=prefix, minimum=1, maximum=MOST_PREFIX)
    if boundary % CHUNK or not 0 <= boundary <= prefix:
        raise CalcError("reuse_interval", interval=boundary, unit=CHUNK)
    weights, tokens, saved, plain = _first(prefix)
    rest = [*tokens[boundary:], *QUESTION]
    resumed = generate(weights, resume(saved, boundary, missing), rest)
    lacking = [
        (group.id, chunk)
        for group in model_groups()
        for chunk in needs(group, boundary, Rule.VLLM)
        if chunk in missing.get(group.id, ())
    ]
    named = next(iter(missing), None)
    error = float(np.abs(plain[1] - resumed[1]).max())
    chunk = min(missing[named]) if named and missing[named] else None
    return Trial(name, named, chunk, not lacking, error, plain[0] == resumed[0])


def experiment() -> tuple[Trial, ...]:
    """Everything there; each early piece gone; each needed piece gone; a state of elsewhere."""
    last = PREFIX // CHUNK - 1
    first_of_window = needs(model_groups()[1], PREFIX, Rule.VLLM).start
    return (
        trial(PREFIX, {}, "complete"),
        trial(PREFIX, {"window": range(first_of_window)}, "early_window"),
        trial(PREFIX, {"state": range(last)}, "early_states"),
        trial(PREFIX, {"growing": [0]}, "first_rows"),
        trial(PREFIX, {"window": [first_of_window]}, "window_rows"),
        trial(PREFIX, {"state": [last]}, "snapshot"),
        trial(PREFIX - CHUNK, {"state": [last]}, "earlier_snapshot"),
    )
