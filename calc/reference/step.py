"""A whole decode step of a small hybrid MoE model over simulated ranks, and its plain form.

Ranks are numbered replica by replica: rank = replica x tp + place. Layers are latent attention or
K/V attention (both striped over dcp where it is above one), then a dense part or experts. Each
layer has its own cached past, given as hidden states; norms are left out. The stages carry the
names of `calc.traffic`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calc.reference import gqa, mla, moe
from calc.reference.ranks import Array, Ranks

ExpertWay = Literal[
    "sum", "allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput"
]
Tokens = NDArray[np.int64]
Pasts = Sequence[Sequence[Array]]
"""Hidden states [n, hidden] of the cached tokens, by layer and request of one replica."""


@dataclass(frozen=True)
class Dense:
    """A feed-forward part with two matrices: [hidden, inner], [inner, hidden]."""

    up: Array
    down: Array


@dataclass(frozen=True)
class Model:
    """Embedding [V, hidden], layers of (mixer, feed-forward part), head [hidden, V]."""

    embedding: Array
    layers: Sequence[tuple[mla.Weights | gqa.Weights, Dense | moe.Weights]]
    head: Array


@dataclass(frozen=True)
class Groups:
    """How the step is divided; `spread`: experts over all ranks, else every expert by width."""

    tp: int = 1
    dp: int = 1
    dcp: int = 1
    backend: mla.Backend = "ag_rs"
    spread: bool = False
    way: ExpertWay = "sum"
    row: moe.Row | None = None

    @property
    def divides(self) -> bool:
        """Whether rows are divided over tp before they go to experts."""
        return self.way != "sum" and self.spread and self.tp > 1


def unsharded(model: Model, tokens: Tokens, pasts: Pasts) -> Array:
    """Logits [B, V] of one replica's requests."""
    x = model.embedding[tokens]
    for (mixer, ffn), past in zip(model.layers, pasts, strict=True):
        contexts = [np.concatenate([old, x[b : b + 1]]) for b, old in enumerate(past)]
        if isinstance(mixer, mla.Weights):
            x = x + mla.unsharded_attention(mixer, contexts)
        else:
            x = x + gqa.unsharded_attention(mixer, contexts)
        x = x + (_dense(ffn, x) if isinstance(ffn, Dense) else moe.unsharded(ffn, x))
    logits: Array = x @ model.head
    return logits


def decode(
    model: Model, tokens: Sequence[Tokens], pasts: Sequence[Pasts], groups: Groups
) -> tuple[list[Array], Ranks]:
    """Logits on every rank, and the ranks with their ledger."""
    ranks = Ranks(groups.tp * groups.dp)
    mine = [tokens[rank // groups.tp] for rank in range(ranks.size)]
    x = _embed(model, mine, ranks, groups)
    for index, (mixer, ffn) in enumerate(model.layers):
        past = [of_layer[index] for of_layer in pasts]
        addends = _attend(mixer, past, x, ranks, groups)
        if isinstance(ffn, moe.Weights) and groups.divides:
            x = _divided_experts(ffn, addends, x, ranks, groups)
            continue
        summed = ranks.all_reduce(addends, 2, stage="o_proj", group_size=groups.tp)
        x = _plus(x, summed)
        parts = _feed_forward(ffn, x, ranks, groups)
        x = _plus(x, parts)
    width = model.head.shape[1] // groups.tp
    own = [
        found @ model.head[:, rank % groups.tp * width : (rank % groups.tp + 1) * width]
        for rank, found in enumerate(x)
    ]
    return ranks.all_gather(own, 2, stage="logits", axis=1, group_size=groups.tp), ranks


def _embed(model: Model, tokens: Sequence[Tokens], ranks: Ranks, groups: Groups) -> list[Array]:
    """Each rank knows a part of the vocabulary; the sum over tp is the row."""
    width = len(model.embedding) // groups.tp
    own = []
    for rank, of in enumerate(tokens):
        known = of // width == rank % groups.tp
        own.append(np.where(known[:, np.newaxis], model.embedding[of], 0.0))
    return ranks.all_reduce(own, 2, stage="embedding", group_size=groups.tp)


def _attend(
    mixer: mla.Weights | gqa.Weights,
    past: Sequence[Sequence[Array]],
    x: Sequence[Array],
    ranks: Ranks,
    groups: Groups,
) -> list[Array]:
    tp, dcp, backend = groups.tp, groups.dcp, groups.backend
    contexts = [
        [np.concatenate([old, x[replica * tp][b : b + 1]]) for b, old in enumerate(of)]
        for replica, of in enumerate(past)
    ]
    if isinstance(mixer, gqa.Weights):
        kept = [gqa.striped_caches(mixer, of, tp, dcp) for of in contexts]
        return gqa.attend(
            ranks, mixer, [c for of in kept for c in of], x, tp=tp, dcp=dcp, backend=backend
        )
    rows = [mla.striped_caches(mixer, of, tp, dcp) for of in contexts]
    positions = [
        np.array([len(context) - 1.0 for context in contexts[rank // tp]])
        for rank in range(ranks.size)
    ]
    return mla.attend(
        ranks,
        mixer,
        [cache for of in rows for cache in of],
        x,
        positions,
        tp=tp,
        dcp=dcp,
        backend=backend,
    )


def _dense(ffn: Dense, x: Array, part: slice = slice(None)) -> Array:
    output: Array = np.maximum(x @ ffn.up[:, part], 0.0) @ ffn.down[part]
    return output


def _feed_forward(
    ffn: Dense | moe.Weights, x: Sequence[Array], ranks: Ranks, groups: Groups
) -> list[Array]:
    tp = groups.tp
    if isinstance(ffn, Dense):
        width = ffn.up.shape[1] // tp
        addends = [
            _dense(ffn, found, slice(rank % tp * width, (rank % tp + 1) * width))
            for rank, found in enumerate(x)
        ]
    elif groups.way == "sum":
        addends = [_local_experts(ffn, found, rank % tp, groups) for rank, found in enumerate(x)]
    elif groups.spread:
        return _dispatched(ffn, x, ranks, groups)  # tp is 1: each rank has its own rows
    else:
        addends = moe.gather_and_reduce(
            ranks,
            ffn,
            x,
            row=groups.row,
            group_size=groups.dp,
            stride=tp,
            width_shares=ranks.size,
        )
    return ranks.all_reduce(addends, 2, stage="ffn", group_size=tp)


def _local_experts(ffn: moe.Weights, x: Array, place: int, groups: Groups) -> Array:
    """This rank's addend where all rows are here already."""
    ids, shares = moe.route(ffn, x)
    if groups.spread:
        each = ffn.experts // groups.tp
        experts, part = range(place * each, (place + 1) * each), slice(None)
    else:
        width = ffn.gate.shape[2] // groups.tp
        experts, part = range(ffn.experts), slice(place * width, (place + 1) * width)
    return moe.own_experts(ffn, experts, part, x, ids.astype(float), shares)


def _dispatched(
    ffn: moe.Weights, rows: Sequence[Array], ranks: Ranks, groups: Groups
) -> list[Array]:
    """Rows to experts spread over all ranks, and back."""
    ways: dict[str, Callable[..., list[Array]]] = {
        "allgather_reducescatter": moe.gather_and_reduce,
        "deepep_low_latency": moe.send_to_experts,
        "deepep_high_throughput": moe.send_to_ranks,
    }
    return ways[groups.way](ranks, ffn, rows, row=groups.row)


def _divided_experts(
    ffn: moe.Weights,
    addends: Sequence[Array],
    x: Sequence[Array],
    ranks: Ranks,
    groups: Groups,
) -> list[Array]:
    """The output projection only as far as the own rows, these to the experts, all rows back."""
    tp = groups.tp
    rows = ranks.reduce_scatter(addends, 2, stage="o_proj", group_size=tp)
    own = [np.split(found, tp)[rank % tp] for rank, found in enumerate(x)]
    attended = _plus(own, rows)
    finished = _plus(attended, _dispatched(ffn, attended, ranks, groups))
    return ranks.all_gather(finished, 2, stage="experts_gather", group_size=tp)


def _plus(x: Sequence[Array], y: Sequence[Array]) -> list[Array]:
    return [a + b for a, b in zip(x, y, strict=True)]
