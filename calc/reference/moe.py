"""A mixture of experts whose experts are spread over simulated ranks, and its plain form.

Three ways for tokens to reach their experts and come back, as in `calc.traffic.experts`: gather
all rows and reduce-scatter the sums; one message for each token and expert; one message for each
token and rank (between nodes: for each node, forwarded inside). Nothing is quantised; the bytes
are those of the element types said to be on the wire.

Sources: vLLM fused_moe/prepare_finalize (naive_dp_ep.py, deepep_ll.py, deepep_ht.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calc.reference.ranks import Array, Ranks

DISPATCH = "dispatch"
COMBINE = "combine"
DISPATCH_FORWARD = "dispatch_forward"
COMBINE_FORWARD = "combine_forward"
ROUTING_BYTES = 4
"""One expert's id, or its weight."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Weights:
    """Router [hidden, E] and gated experts [E, hidden, inner] x 2, [E, inner, hidden]."""

    router: Array
    gate: Array
    up: Array
    down: Array
    top_k: int
    groups: int = 1
    top_k_groups: int = 1

    @property
    def experts(self) -> int:
        return int(self.router.shape[1])


@dataclass(frozen=True)
class Row:
    """Bytes of one row on the wire: its elements, and what goes with it (scales, a header)."""

    element: int = 2
    beside: int = 0


def random_weights(
    hidden: int,
    inner: int,
    experts: int,
    top_k: int,
    seed: int = 0,
    groups: tuple[int, int] = (1, 1),
) -> Weights:
    """Weights scaled so that activations stay near one."""
    rng = np.random.default_rng(seed)

    def matrix(fan_in: int, *dims: int) -> Array:
        return rng.normal(scale=fan_in**-0.5, size=dims)

    return Weights(
        matrix(1, hidden, experts),
        matrix(hidden, experts, hidden, inner),
        matrix(hidden, experts, hidden, inner),
        matrix(inner, experts, inner, hidden),
        top_k,
        *groups,
    )


def route(weights: Weights, x: Array) -> tuple[Ids, Array]:
    """Ids and weights [T, k] of the experts of rows [T, hidden].

    With groups of experts a row first chooses groups, by their best expert, then only within them.
    """
    scores = x @ weights.router
    if weights.groups > 1:
        grouped = scores.reshape(len(x), weights.groups, -1)
        chosen = np.argsort(-grouped.max(axis=2), axis=1)[:, : weights.top_k_groups]
        outside = np.ones((len(x), weights.groups), dtype=bool)
        np.put_along_axis(outside, chosen, values=False, axis=1)
        scores = np.where(outside[:, :, np.newaxis], -np.inf, grouped).reshape(scores.shape)
    ids = np.argsort(-scores, axis=1)[:, : weights.top_k]
    best = np.take_along_axis(scores, ids, axis=1)
    share = np.exp(best - best.max(axis=1, keepdims=True))
    return ids, share / share.sum(axis=1, keepdims=True)


def expert(weights: Weights, which: int, x: Array, part: slice = slice(None)) -> Array:
    """One expert's output for rows; `part` of its inner width gives an addend of it."""
    gate = x @ weights.gate[which][:, part]
    inner = gate / (1 + np.exp(-gate)) * (x @ weights.up[which][:, part])
    output: Array = inner @ weights.down[which][part]
    return output


def unsharded(weights: Weights, x: Array) -> Array:
    """The layer on one rank, row by row."""
    ids, shares = route(weights, x)
    return np.stack(
        [
            sum(
                (s * expert(weights, int(e), row[np.newaxis])[0])
                for e, s in zip(of, share, strict=True)
            )
            for row, of, share in zip(x, ids, shares, strict=True)
        ]
    )


def gather_and_reduce(
    ranks: Ranks,
    weights: Weights,
    rows: Sequence[Array],
    *,
    row: Row | None = None,
    group_size: int | None = None,
    stride: int = 1,
    width_shares: int = 1,
) -> list[Array]:
    """All-gather rows, ids and weights; own experts on all of them; reduce-scatter the sums.

    Experts are spread over the group; with `width_shares` each expert is instead cut in so many
    parts by inner width, rank r holding part r, and the results are addends over them.
    """
    row = row or Row()

    def gathered(values: Sequence[Array], itemsize: int) -> list[Array]:
        return ranks.all_gather(
            values, itemsize, stage=DISPATCH, group_size=group_size, stride=stride
        )

    routed = [route(weights, x) for x in rows]
    everyone = gathered(rows, row.element)
    if row.beside:
        gathered([np.zeros((len(x), row.beside)) for x in rows], 1)
    ids = gathered([chosen.astype(float) for chosen, _ in routed], ROUTING_BYTES)
    shares = gathered([share for _, share in routed], ROUTING_BYTES)
    place = {
        rank: index
        for group in ranks.groups(group_size, stride)
        for index, rank in enumerate(group)
    }
    size = group_size or ranks.size
    sums = []
    for rank in range(ranks.size):
        if width_shares > 1:
            experts, inner = range(weights.experts), weights.gate.shape[2] // width_shares
            part = slice(rank * inner, (rank + 1) * inner)
        else:
            each = weights.experts // size
            experts, part = range(place[rank] * each, (place[rank] + 1) * each), slice(None)
        sums.append(own_experts(weights, experts, part, everyone[rank], ids[rank], shares[rank]))
    return ranks.reduce_scatter(sums, 2, stage=COMBINE, group_size=group_size, stride=stride)


def own_experts(
    weights: Weights, experts: range, part: slice, x: Array, ids: Array, shares: Array
) -> Array:
    """The weighted outputs of some experts for all rows, zero where none of them was chosen."""
    found = np.zeros_like(x)
    for which in experts:
        at, slot = np.nonzero(ids == which)
        found[at] += shares[at, slot, np.newaxis] * expert(weights, which, x[at], part)
    return found


def send_to_experts(
    ranks: Ranks,
    weights: Weights,
    rows: Sequence[Array],
    *,
    row: Row | None = None,
    routed: Sequence[tuple[Ids, Array]] | None = None,
) -> list[Array]:
    """One message for each row and chosen expert, and the expert's bf16 output back.

    A message to an expert on the row's own rank crosses no link and is not counted.
    """
    row, each = row or Row(), weights.experts // ranks.size
    routed = routed or [route(weights, x) for x in rows]
    results = []
    for src, (x, (ids, shares)) in enumerate(zip(rows, routed, strict=True)):
        found = np.zeros_like(x)
        for t, (of, share) in enumerate(zip(ids, shares, strict=True)):
            for which, s in zip(of, share, strict=True):
                dst = int(which) // each
                arrived = _moved(ranks, src, dst, x[t], row, DISPATCH)
                output = expert(weights, int(which), arrived[np.newaxis])[0]
                found[t] += s * _moved(ranks, dst, src, output, Row(), COMBINE)
        results.append(found)
    return results


def send_to_ranks(
    ranks: Ranks,
    weights: Weights,
    rows: Sequence[Array],
    *,
    row: Row | None = None,
    routed: Sequence[tuple[Ids, Array]] | None = None,
    ranks_per_node: int = 0,
) -> list[Array]:
    """One message for each row and rank with a chosen expert, and one bf16 sum back.

    With `ranks_per_node` a row crosses to another node once, to the rank there of the sender's
    place, which forwards it inside the node and adds up what comes back.
    """
    row, each = row or Row(), weights.experts // ranks.size
    node = ranks_per_node or ranks.size
    routed = routed or [route(weights, x) for x in rows]
    results = []
    for src, (x, (ids, shares)) in enumerate(zip(rows, routed, strict=True)):
        found = np.zeros_like(x)
        for t, (of, share) in enumerate(zip(ids, shares, strict=True)):
            reached = sorted({int(which) // each for which in of})
            for there in sorted({dst // node for dst in reached}):
                entry = there * node + src % node
                at_entry = _moved(ranks, src, entry, x[t], row, DISPATCH)
                added = np.zeros_like(x[t])
                for dst in (dst for dst in reached if dst // node == there):
                    inside = DISPATCH_FORWARD if ranks_per_node else DISPATCH
                    arrived = _moved(ranks, entry, dst, at_entry, row, inside)
                    own = [
                        s * expert(weights, int(which), arrived[np.newaxis])[0]
                        for which, s in zip(of, share, strict=True)
                        if int(which) // each == dst
                    ]
                    back = COMBINE_FORWARD if ranks_per_node else COMBINE
                    added = added + _moved(ranks, dst, entry, np.sum(own, axis=0), Row(), back)
                found[t] += _moved(ranks, entry, src, added, Row(), COMBINE)
        results.append(found)
    return results


def _moved(ranks: Ranks, src: int, dst: int, values: Array, row: Row, stage: str) -> Array:
    """A row on another rank; where it already is when both are the same."""
    if src == dst:
        return values
    if row.beside:
        ranks.send(src, dst, np.zeros(row.beside), 1, stage=stage)
    return ranks.send(src, dst, values, row.element, stage=stage)
