"""Identities that the calculator rests on, shown by running both sides of each on random numbers.

Every proof computes the same thing in two ways and gives the largest difference, as a share of
the largest value: what must be equal agrees to rounding, what must differ is far off. Sources:
DeepSeek-V2 (arXiv 2405.04434, section 2.1 and appendix C) for absorption and the decoupled key;
RoFormer (arXiv 2104.09864) for the rotation; FlashAttention (arXiv 2205.14135) for the merge of
partial softmaxes; Gated DeltaNet (arXiv 2412.06464) for the recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calc.reference import mla
from calc.reference.ranks import Array
from calc.view_inputs import EVERY

EQUAL = 1e-10
"""Rounding of float64 over the sizes allowed here stays below this share."""
DIFFERENT = 1e-3
"""What differs, differs by more than this share."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the numbers are: ``tokens`` cached ones, ``heads``, ``ranks`` that share them."""

    tokens: int = 96
    heads: int = 8
    ranks: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        for name in SIZES:
            EVERY[f"learn_{name}"].check(getattr(self, name))


SIZES = ("tokens", "heads", "ranks", "seed")


@dataclass(frozen=True, slots=True)
class Proof:
    """Both sides compared. ``error``: the largest difference as a share of the largest value."""

    name: str
    equal: bool
    error: float

    @property
    def holds(self) -> bool:
        return self.error <= EQUAL if self.equal else self.error >= DIFFERENT


def _error(first: Array, second: Array) -> float:
    return float(np.abs(first - second).max() / np.abs(first).max())


def _shape(sizes: Sizes) -> mla.Shape:
    heads = sizes.heads // sizes.ranks * sizes.ranks  # a rank holds whole heads
    return mla.Shape(
        hidden=64, heads=heads, q_latent=48, kv_latent=32, nope=16, rope_width=8, value=12
    )


def _layer(sizes: Sizes) -> tuple[mla.Weights, Array]:
    """One layer's weights, and the hidden vectors of all tokens."""
    weights = mla.random_weights(_shape(sizes), sizes.seed)
    random = np.random.default_rng(sizes.seed + 1)
    return weights, random.normal(size=(sizes.tokens, weights.shape.hidden))


def _latents(weights: mla.Weights, hidden: Array) -> Array:
    return mla.cache_rows(weights, hidden, np.arange(len(hidden), dtype=float))[
        :, : weights.shape.kv_latent
    ]


def _shares(random: np.random.Generator, tokens: int, heads: int) -> Array:
    raw = np.exp(random.normal(size=(heads, tokens)))
    shares: Array = raw / raw.sum(axis=1, keepdims=True)
    return shares


def absorbed_key(sizes: Sizes) -> float:
    """q (W_UK c) = (q W_UK) c: the up-projection of keys moves to the query's side."""
    weights, hidden = _layer(sizes)
    latents = _latents(weights, hidden)
    shape = weights.shape
    query = np.random.default_rng(sizes.seed).normal(size=(shape.heads, shape.nope))
    keys = np.einsum("tc,chd->thd", latents, weights.w_uk)
    written_out = np.einsum("hd,thd->ht", query, keys)
    absorbed = np.einsum("hd,chd->hc", query, weights.w_uk) @ latents.T
    return _error(written_out, absorbed)


def absorbed_value(sizes: Sizes) -> float:
    """Sum of a (W_UV c) = W_UV (sum of a c): the up-projection of values waits for the sum."""
    weights, hidden = _layer(sizes)
    latents = _latents(weights, hidden)
    shares = _shares(np.random.default_rng(sizes.seed), len(hidden), weights.shape.heads)
    values = np.einsum("tc,chv->thv", latents, weights.w_uv)
    written_out = np.einsum("ht,thv->hv", shares, values)
    late = np.einsum("hc,chv->hv", shares @ latents, weights.w_uv)
    return _error(written_out, late)


def rotated_up_projection(sizes: Sizes) -> float:
    """Rotating an up-projected key is not up-projecting a rotated latent: R W c and W R c."""
    weights, hidden = _layer(sizes)
    latents, places = _latents(weights, hidden), np.arange(len(hidden), dtype=float)
    matrix = weights.w_uk[:, 0]

    def turned(x: Array) -> Array:
        whole = mla.Shape(1, 1, 1, 1, 1, rope_width=x.shape[-1], value=1)
        return mla.rotate(x, places, whole)

    return _error(turned(latents @ matrix), turned(latents) @ matrix)


def decoupled_key(sizes: Sizes) -> float:
    """With a rotated key of its own beside the latent, absorbed scores are the written-out ones."""
    weights, hidden = _layer(sizes)
    shape = weights.shape
    places = np.arange(len(hidden), dtype=float)
    rows = mla.cache_rows(weights, hidden, places)
    queries = mla.absorbed_queries(weights, hidden[-1:], places[-1:], slice(None))[0]
    latent = mla.rms_norm(hidden[-1:] @ weights.w_dq, weights.q_norm)
    query = np.einsum("bq,qhd->bhd", latent, weights.w_uq)
    rotated = mla.rotate(query[..., shape.nope :], places[-1:], shape)[0]
    keys = np.einsum("tc,chd->thd", rows[:, : shape.kv_latent], weights.w_uk)
    written_out = np.einsum("hd,thd->ht", query[0, :, : shape.nope], keys)
    written_out += rotated @ rows[:, shape.kv_latent :].T
    return _error(written_out, queries @ rows.T)


def kept_norm(sizes: Sizes) -> float:
    """A rotation keeps the length of a vector, so that nothing has to be normalised behind it."""
    weights, hidden = _layer(sizes)
    keys = hidden @ weights.w_kr
    turned = mla.rotate(keys, np.arange(len(hidden), dtype=float), weights.shape)
    return _error(np.linalg.norm(keys, axis=1), np.linalg.norm(turned, axis=1))


def _stripes(rows: Array, ranks: int) -> list[Array]:
    """Rows cut into stripes of very different lengths: halves, and halves of the rest."""
    ends = [len(rows) - (len(rows) >> (rank + 1)) for rank in range(ranks - 1)]
    return np.split(rows, ends)


def _partials(sizes: Sizes) -> tuple[Array, Array, Array]:
    """Attention over all rows, and over each stripe: output, outputs, natural log-sum-exps."""
    weights, hidden = _layer(sizes)
    places = np.arange(len(hidden), dtype=float)
    rows = mla.cache_rows(weights, hidden, places)
    queries = mla.absorbed_queries(weights, hidden[-1:], places[-1:], slice(None))
    whole, _ = mla.partial_attention(weights.shape, queries, [rows])
    parts = [
        mla.partial_attention(weights.shape, queries, [stripe])
        for stripe in _stripes(rows, sizes.ranks)
    ]
    return whole, np.stack([output for output, _ in parts]), np.stack([lse for _, lse in parts])


def _merged(outputs: Array, lses: Array, base: float) -> Array:
    """Two passes: the largest log-sum-exp, then shares of powers of the base."""
    shares = base ** (lses - lses.max(axis=0))
    merged: Array = (shares[..., np.newaxis] * outputs).sum(axis=0) / shares.sum(axis=0)[..., None]
    return merged


def merged_natural(sizes: Sizes) -> float:
    """Partial softmaxes over unequal stripes, merged by their log-sum-exp to base e."""
    whole, outputs, lses = _partials(sizes)
    return _error(whole, _merged(outputs, lses, float(np.e)))


def merged_base_2(sizes: Sizes) -> float:
    """The same to base 2, as FlashInfer and TensorRT-LLM kernels give it."""
    whole, outputs, lses = _partials(sizes)
    return _error(whole, _merged(outputs, lses / np.log(2), 2.0))


def merged_wrong_base(sizes: Sizes) -> float:
    """Natural log-sum-exps read as if to base 2: a merge must know its kernel's base."""
    whole, outputs, lses = _partials(sizes)
    return _error(whole, _merged(outputs, lses, 2.0))


def dcp_step(sizes: Sizes) -> float:
    """A decode step over all ranks, tokens striped, against textbook attention on one."""
    weights, hidden = _layer(sizes)
    contexts = [hidden, hidden[: sizes.tokens // 3]]
    truth = mla.unsharded_attention(weights, contexts)
    found = [
        mla.decode_step(weights, contexts, tp=sizes.ranks, dcp=sizes.ranks, backend=backend).outputs
        for backend in ("ag_rs", "a2a", "fi_a2a")
    ]
    return max(_error(truth, output) for outputs in found for output in outputs)


def _attend(query: Array, keys: Array, values: Array, seen: npt.NDArray[np.bool_]) -> Array:
    """Attention of one query over the rows that it sees."""
    scores = np.where(seen, keys @ query / 4, -np.inf)
    shares = np.exp(scores - scores.max())
    mixed: Array = shares @ values / shares.sum()
    return mixed


def _window(sizes: Sizes, kept: int) -> float:
    """One query over a window of ``tokens // 4``: all rows masked, and only the last ``kept``."""
    random = np.random.default_rng(sizes.seed)
    keys, values = random.normal(size=(2, sizes.tokens, 16))
    query = random.normal(size=16)
    seen = np.arange(sizes.tokens) >= sizes.tokens - sizes.tokens // 4
    rest = _attend(query, keys[-kept:], values[-kept:], np.full(kept, True))
    return _error(_attend(query, keys, values, seen), rest)


def window_rows(sizes: Sizes) -> float:
    """Window attention with nothing but the last w rows: w - 1 cached ones and the token's own."""
    return _window(sizes, sizes.tokens // 4)


def window_short(sizes: Sizes) -> float:
    """The same with half of these rows gone."""
    return _window(sizes, sizes.tokens // 8)


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """A gated delta rule, S <- a (I - b k k^T) S + b k v^T, over tokens in two chunks."""

    keys: Array
    values: Array
    decay: float = 0.97
    strength: float = 0.8

    @classmethod
    def seeded(cls, sizes: Sizes) -> _Recurrence:
        keys, values = np.random.default_rng(sizes.seed).normal(size=(2, sizes.tokens, 16))
        return cls(keys / np.linalg.norm(keys, axis=1, keepdims=True), values)

    def transition(self, token: int) -> Array:
        key = self.keys[token]
        made: Array = self.decay * (np.eye(16) - self.strength * np.outer(key, key))
        return made

    def run(self, first: int, end: int, state: Array) -> Array:
        for token in range(first, end):
            added = self.strength * np.outer(self.keys[token], self.values[token])
            state = self.transition(token) @ state + added
        return state


def stitched_state(sizes: Sizes) -> float:
    """The states of two chunks, each begun empty, do not add up to the state of both."""
    rule, empty = _Recurrence.seeded(sizes), np.zeros((16, 16))
    end = sizes.tokens
    cut = end - 4  # a short last chunk, so that the first one's part has not faded
    whole = rule.run(0, end, empty)
    return _error(whole, rule.run(0, cut, empty) + rule.run(cut, end, empty))


def resumed_state(sizes: Sizes) -> float:
    """From a snapshot exactly at the boundary the rest gives the state of both."""
    rule, empty = _Recurrence.seeded(sizes), np.zeros((16, 16))
    cut = sizes.tokens // 2
    snapshot = rule.run(0, cut, empty)
    whole = rule.run(0, sizes.tokens, empty)
    return _error(whole, rule.run(cut, sizes.tokens, snapshot))


def carried_state(sizes: Sizes) -> float:
    """Chunks would join if each also kept the product of its transitions, as scans do inside a
    kernel: a square matrix a head and chunk, which no prefix cache stores."""
    rule, empty = _Recurrence.seeded(sizes), np.zeros((16, 16))
    end = sizes.tokens
    cut = end - 4
    product = np.eye(16)
    for token in range(cut, end):
        product = rule.transition(token) @ product
    whole = rule.run(0, end, empty)
    return _error(whole, product @ rule.run(0, cut, empty) + rule.run(cut, end, empty))


PROOFS: dict[str, tuple[bool, Callable[[Sizes], float]]] = {
    "absorbed_key": (True, absorbed_key),
    "absorbed_value": (True, absorbed_value),
    "rotated_up_projection": (False, rotated_up_projection),
    "decoupled_key": (True, decoupled_key),
    "kept_norm": (True, kept_norm),
    "merged_natural": (True, merged_natural),
    "merged_base_2": (True, merged_base_2),
    "merged_wrong_base": (False, merged_wrong_base),
    "dcp_step": (True, dcp_step),
    "window_rows": (True, window_rows),
    "window_short": (False, window_short),
    "stitched_state": (False, stitched_state),
    "resumed_state": (True, resumed_state),
    "carried_state": (True, carried_state),
}
"""Each proof by name: whether both sides must be equal, and what computes their difference."""


def prove(name: str, sizes: Sizes = Sizes()) -> Proof:
    """Run one proof.

    >>> prove("absorbed_key").holds, prove("stitched_state").holds
    (True, True)
    """
    equal, compute = PROOFS[name]
    return Proof(name, equal, compute(sizes))
