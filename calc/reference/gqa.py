"""One decode step of K/V attention whose token axis is striped over a DCP group.

vLLM stripes over the ranks that hold copies of one KV head: `tp` splits the query heads, each rank
has max(1, H_kv / tp) KV heads. SGLang splits KV heads over tp / dcp ranks first, so that a group
holds more heads and each rank fewer tokens of them; it sums whole outputs and slices.

Sources: vLLM v1/attention/backends/flash_attn.py (_forward_with_dcp), SGLang layers/dcp/comm.py.
Axes as in `calc.reference.mla`; H_kv KV heads, d_k and d_v their widths.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calc.reference.mla import Backend, WireBytes, exchange, group_queries, merge_weights, owner
from calc.reference.ranks import Array, Ranks

LSE_BYTES = 4
LSE_ALL_GATHER = "lse_all_gather"
OUTPUT_ALL_REDUCE = "output_all_reduce"


@dataclass(frozen=True)
class Weights:
    """The matrices of one layer: queries, keys, values, and the output projection."""

    w_q: Array  # [hidden, H, d_k]
    w_k: Array  # [hidden, H_kv, d_k]
    w_v: Array  # [hidden, H_kv, d_v]
    w_o: Array  # [H, d_v, hidden]

    @property
    def shared_by(self) -> int:
        """Query heads that share a KV head."""
        return int(self.w_q.shape[1] // self.w_k.shape[1])


Cache = tuple[Array, Array]
"""K [n, heads held, d_k] and V [n, heads held, d_v] of one request on one rank."""


def random_weights(
    hidden: int, heads: int, kv_heads: int, k_dim: int, v_dim: int, seed: int = 0
) -> Weights:
    """Weights scaled so that activations stay near one."""
    rng = np.random.default_rng(seed)

    def matrix(fan_in: int, *dims: int) -> Array:
        return rng.normal(scale=fan_in**-0.5, size=dims)

    return Weights(
        matrix(hidden, hidden, heads, k_dim),
        matrix(hidden, hidden, kv_heads, k_dim),
        matrix(hidden, hidden, kv_heads, v_dim),
        matrix(heads * v_dim, heads, v_dim, hidden),
    )


def held_heads(rank: int, kv_heads: int, tp: int, dcp: int, *, heads_first: bool) -> range:
    """The KV heads of a rank; `heads_first`: split over tp / dcp ranks before the tokens are."""
    ways = tp // dcp if heads_first else tp
    place = rank % tp // dcp if heads_first else rank % tp
    if ways >= kv_heads:
        first = place // (ways // kv_heads)
        return range(first, first + 1)
    each = kv_heads // ways
    return range(place * each, (place + 1) * each)


def striped_caches(
    weights: Weights, contexts: Sequence[Array], tp: int, dcp: int, *, heads_first: bool = False
) -> list[list[Cache]]:
    """K and V of whole contexts [L, hidden], by rank of one replica and request."""
    kv_heads = weights.w_k.shape[1]
    keys = [np.einsum("lh,hkd->lkd", x, weights.w_k) for x in contexts]
    values = [np.einsum("lh,hkd->lkd", x, weights.w_v) for x in contexts]
    caches = []
    for rank in range(tp):
        held = list(held_heads(rank, kv_heads, tp, dcp, heads_first=heads_first))
        mine = [[i for i in range(len(x)) if owner(i, dcp) == rank % dcp] for x in contexts]
        caches.append(
            [
                (k[tokens][:, held], v[tokens][:, held])
                for k, v, tokens in zip(keys, values, mine, strict=True)
            ]
        )
    return caches


def attend(
    ranks: Ranks,
    weights: Weights,
    caches: Sequence[Sequence[Cache]],
    hidden: Sequence[Array],
    *,
    tp: int,
    dcp: int,
    backend: Backend = "ag_rs",
    heads_first: bool = False,
    wire: WireBytes | None = None,
) -> list[Array]:
    """One layer on every rank, up to the addends of the output projection [B, hidden].

    Ranks are replicas of `tp` ranks each. `heads_first` also sums whole outputs (SGLang's ag_rs).
    """
    wire, heads = wire or WireBytes(), weights.w_q.shape[1]
    local, kv_heads = heads // tp, weights.w_k.shape[1]
    spans = [slice(r % tp * local, (r % tp + 1) * local) for r in range(ranks.size)]
    queries = [
        np.einsum("bh,hqd->bqd", x, weights.w_q[:, span])
        for x, span in zip(hidden, spans, strict=True)
    ]
    queries = group_queries(ranks, queries, dcp, wire)
    outputs, lses = [], []
    for rank, query in enumerate(queries):
        first = rank % tp // dcp * dcp * local
        held = held_heads(rank, kv_heads, tp, dcp, heads_first=heads_first)
        of = [(first + head) // weights.shared_by - held.start for head in range(query.shape[1])]
        output, lse = partial_attention(query, caches[rank], of)
        outputs.append(output)
        lses.append(lse)
    if heads_first and backend == "ag_rs":
        merged = _sum_whole(ranks, outputs, lses, dcp, local, wire)
    else:
        merged = exchange(ranks, outputs, lses, dcp, backend, wire)
    return [
        np.einsum("bqd,qdo->bo", output, weights.w_o[span])
        for output, span in zip(merged, spans, strict=True)
    ]


def partial_attention(
    queries: Array, cache: Sequence[Cache], kv_head_of: Sequence[int]
) -> tuple[Array, Array]:
    """Attention [B, heads, d_v] over one rank's stripes, and natural-log LSEs [B, heads]."""
    batch, heads, width = queries.shape
    outputs = np.zeros((batch, heads, cache[0][1].shape[-1]))
    lses = np.full((batch, heads), -np.inf)
    for b, (keys, values) in enumerate(cache):
        if len(keys) == 0:
            continue
        for head, held in enumerate(kv_head_of):
            scores = keys[:, held] @ queries[b, head] / width**0.5
            top = scores.max()
            exp = np.exp(scores - top)
            outputs[b, head] = exp @ values[:, held] / exp.sum()
            lses[b, head] = top + np.log(exp.sum())
    return outputs, lses


def _sum_whole(
    ranks: Ranks,
    outputs: Sequence[Array],
    lses: Sequence[Array],
    dcp: int,
    local: int,
    wire: WireBytes,
) -> list[Array]:
    """All-gather LSEs, all-reduce the whole corrected outputs, keep the own heads of the sum."""
    gathered = ranks.all_gather(
        [lse[np.newaxis] for lse in lses], LSE_BYTES, stage=LSE_ALL_GATHER, group_size=dcp
    )
    corrected = [
        output * merge_weights(every)[rank % dcp][..., np.newaxis]
        for rank, (output, every) in enumerate(zip(outputs, gathered, strict=True))
    ]
    whole = ranks.all_reduce(corrected, wire.output, stage=OUTPUT_ALL_REDUCE, group_size=dcp)
    return [
        found[:, rank % dcp * local : (rank % dcp + 1) * local] for rank, found in enumerate(whole)
    ]


def unsharded_attention(weights: Weights, contexts: Sequence[Array]) -> Array:
    """Plain attention of each context's last token over its whole context: [B, hidden]."""
    outputs = []
    for context in contexts:
        query = np.tensordot(context[-1], weights.w_q, axes=1)
        keys = np.repeat(np.tensordot(context, weights.w_k, axes=1), weights.shared_by, axis=1)
        values = np.repeat(np.tensordot(context, weights.w_v, axes=1), weights.shared_by, axis=1)
        scores = np.einsum("qd,lqd->ql", query, keys) / query.shape[-1] ** 0.5
        probability = np.exp(scores - scores.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        attended = np.einsum("ql,lqd->qd", probability, values)
        outputs.append(np.einsum("qd,qdo->o", attended, weights.w_o))
    return np.stack(outputs)
