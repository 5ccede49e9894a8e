"""One decode step of multi-head latent attention (MLA) over simulated ranks, and its textbook form.

`decode_step` does what an engine does: absorbed attention on a latent cache whose tokens are
striped over the ranks of a decode-context-parallel (DCP) group, merged by log-sum-exp (LSE).
`unsharded_attention` does what the paper says: keys and values of every token and head written
out, one softmax. They share only the weights, so that their agreement means something.

Sources: DeepSeek-V2 (arXiv 2405.04434, section 2.1) for MLA; RoFormer (arXiv 2104.09864) for
the rotation; order of operations and wire types as in vLLM (v1/attention/ops/dcp.py,
model_executor/layers/attention/mla_attention.py) and SGLang (layers/dcp/comm.py).

Axes: B requests, H heads, H_l = H / tp heads of one rank, H_g = H_l dcp heads of one DCP group,
d_c latent width, d_r width of the rotated key, n tokens of one stripe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calc.reference.ranks import Array, Ledger, Ranks

Backend = Literal["a2a", "fi_a2a", "ag_rs"]

QUERY_ALL_GATHER = "query_all_gather"
LSE_ALL_GATHER = "lse_all_gather"
OUTPUT_REDUCE_SCATTER = "output_reduce_scatter"
OUTPUT_ALL_TO_ALL = "output_all_to_all"
O_PROJ_ALL_REDUCE = "o_proj_all_reduce"

LSE_BYTES = 4
LSE_SLOTS = {"a2a": 1, "fi_a2a": 2}
"""fp32 slots packed behind each head's output: `fi_a2a` has two and leaves the second unused."""


@dataclass(frozen=True)
class WireBytes:
    """Bytes of one element on the wire [bytes]; LSEs are always fp32.

    vLLM reduce-scatters the corrected outputs in bf16 (`output=2`), SGLang in fp32 (`output=4`);
    an fp8 attention gathers its query in one byte (`query=1`).
    """

    query: int = 2
    output: int = 2
    hidden: int = 2


@dataclass(frozen=True)
class Shape:
    """Widths of one MLA layer [elements]; `rope=False` leaves the decoupled key unrotated."""

    hidden: int
    heads: int
    q_latent: int
    kv_latent: int
    nope: int
    rope_width: int
    value: int
    rope: bool = True
    rope_theta: float = 10_000.0


@dataclass(frozen=True)
class Weights:
    """The matrices of one MLA layer; `w_uk` and `w_uv` keep the head axis apart."""

    shape: Shape
    w_dq: Array  # [hidden, q_latent]
    q_norm: Array  # [q_latent]
    w_uq: Array  # [q_latent, H, nope + d_r]
    w_dkv: Array  # [hidden, d_c]
    kv_norm: Array  # [d_c]
    w_kr: Array  # [hidden, d_r]
    w_uk: Array  # [d_c, H, nope]
    w_uv: Array  # [d_c, H, value]
    w_o: Array  # [H, value, hidden]


@dataclass(frozen=True)
class DecodeResult:
    """What a decode step left: outputs per rank [B, hidden], caches [rank][request], the ledger."""

    outputs: list[Array]
    caches: list[list[Array]]
    ledger: Ledger


def random_weights(shape: Shape, seed: int = 0) -> Weights:
    """Weights scaled so that activations stay near one and the softmax is far from flat."""
    rng = np.random.default_rng(seed)

    def matrix(fan_in: int, *dims: int) -> Array:
        return rng.normal(scale=fan_in**-0.5, size=dims)

    s = shape
    return Weights(
        shape=s,
        w_dq=matrix(s.hidden, s.hidden, s.q_latent),
        q_norm=rng.uniform(1.0, 2.0, s.q_latent),
        w_uq=matrix(s.q_latent, s.q_latent, s.heads, s.nope + s.rope_width),
        w_dkv=matrix(s.hidden, s.hidden, s.kv_latent),
        kv_norm=rng.uniform(1.0, 2.0, s.kv_latent),
        w_kr=matrix(s.hidden, s.hidden, s.rope_width),
        w_uk=matrix(s.kv_latent, s.kv_latent, s.heads, s.nope),
        w_uv=matrix(s.kv_latent, s.kv_latent, s.heads, s.value),
        w_o=matrix(s.heads * s.value, s.heads, s.value, s.hidden),
    )


# --- The cache ------------------------------------------------------------------------------------


def owner(token: int, dcp: int) -> int:
    """The rank within a DCP group that keeps this token's row."""
    return token % dcp


def cache_rows(weights: Weights, hidden: Array, positions: Array) -> Array:
    """What MLA keeps of tokens [n, hidden]: normed latent and rotated key, [n, d_c + d_r]."""
    latent = rms_norm(hidden @ weights.w_dkv, weights.kv_norm)
    key = rotate(hidden @ weights.w_kr, positions, weights.shape)
    return np.concatenate([latent, key], axis=-1)


def striped_caches(
    weights: Weights, contexts: Sequence[Array], tp: int, dcp: int
) -> list[list[Array]]:
    """The rows of whole contexts, striped: `caches[rank][request]` is [n, d_c + d_r].

    All tp / dcp DCP groups of the TP group hold the same stripes.
    """
    rows = [cache_rows(weights, x, np.arange(len(x), dtype=np.float64)) for x in contexts]
    mine = [
        [[i for i in range(len(x)) if owner(i, dcp) == rank % dcp] for x in contexts]
        for rank in range(tp)
    ]
    return [[row[tokens] for row, tokens in zip(rows, stripes, strict=True)] for stripes in mine]


def write_token(
    weights: Weights, caches: list[list[Array]], hidden: Array, positions: Array, dcp: int
) -> list[list[Array]]:
    """Append each request's new row, [B, hidden] at `positions` [B], on its owners and only there.

    `hidden` is on every rank already, so the owner makes the row itself and nothing is sent.
    """
    new = cache_rows(weights, hidden, positions)
    return [
        [
            np.concatenate([stripe, new[b : b + 1]])
            if owner(int(positions[b]), dcp) == rank % dcp
            else stripe
            for b, stripe in enumerate(stripes)
        ]
        for rank, stripes in enumerate(caches)
    ]


# --- The steps of one layer -----------------------------------------------------------------------


def rms_norm(x: Array, gain: Array) -> Array:
    """Scale to a root mean square of one along the last axis, then by `gain`."""
    normed: Array = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6)
    return normed * gain


def rotate(x: Array, positions: Array, shape: Shape) -> Array:
    """Turn the pairs (0, 1), (2, 3), ... of x [n, ..., d_r] by position x theta^(-2i / d_r)."""
    if not shape.rope:
        return x
    pairs = np.arange(0, shape.rope_width, 2) / shape.rope_width
    angle = positions.reshape(-1, *[1] * (x.ndim - 1)) * shape.rope_theta**-pairs
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    turned[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return turned


def absorbed_queries(weights: Weights, hidden: Array, positions: Array, heads: slice) -> Array:
    """Queries of `heads` in the space of the cached rows, [B, heads, d_c + d_r]."""
    s = weights.shape
    latent = rms_norm(hidden @ weights.w_dq, weights.q_norm)
    query = np.einsum("bq,qhd->bhd", latent, weights.w_uq[:, heads])
    absorbed = np.einsum("bhd,chd->bhc", query[..., : s.nope], weights.w_uk[:, heads])
    return np.concatenate([absorbed, rotate(query[..., s.nope :], positions, s)], axis=-1)


def partial_attention(
    shape: Shape, queries: Array, stripes: Sequence[Array]
) -> tuple[Array, Array]:
    """Attention over one rank's stripes: outputs [B, heads, d_c] and natural-log LSEs [B, heads].

    A request without a token on this rank gives a zero output and an LSE of minus infinity.
    """
    batch, heads, _ = queries.shape
    outputs = np.zeros((batch, heads, shape.kv_latent))
    lses = np.full((batch, heads), -np.inf)
    scale = 1.0 / np.sqrt(shape.nope + shape.rope_width)
    for b, rows in enumerate(stripes):
        if len(rows) == 0:
            continue
        scores = queries[b] @ rows.T * scale
        top = scores.max(axis=-1, keepdims=True)
        exp = np.exp(scores - top)
        total = exp.sum(axis=-1, keepdims=True)
        outputs[b] = exp / total @ rows[:, : shape.kv_latent]
        lses[b] = (top + np.log(total))[:, 0]
    return outputs, lses


def merge_weights(lses: Array) -> Array:
    """Share of each partial output in the whole softmax: exp(LSE_r - LSE), from [dcp, ...]."""
    weights: Array = np.exp(lses - np.logaddexp.reduce(lses, axis=0))
    return weights


def group_queries(ranks: Ranks, queries: Sequence[Array], dcp: int, wire: WireBytes) -> list[Array]:
    """All-gather of the local heads' queries [B, H_l, d_c + d_r] over DCP: [B, H_g, d_c + d_r]."""
    return ranks.all_gather(queries, wire.query, stage=QUERY_ALL_GATHER, axis=1, group_size=dcp)


def exchange(
    ranks: Ranks,
    outputs: Sequence[Array],
    lses: Sequence[Array],
    dcp: int,
    backend: Backend,
    wire: WireBytes,
) -> list[Array]:
    """Merge partial outputs [B, H_g, d_c] by LSEs [B, H_g]; each rank gets its [B, H_l, d_c]."""
    if backend == "ag_rs":
        return _gather_then_reduce(ranks, outputs, lses, dcp, wire)
    return _pack_then_all_to_all(ranks, outputs, lses, dcp, backend, wire)


def _gather_then_reduce(
    ranks: Ranks, outputs: Sequence[Array], lses: Sequence[Array], dcp: int, wire: WireBytes
) -> list[Array]:
    """All-gather fp32 LSEs, correct the own partial, reduce-scatter the corrected ones on heads."""
    gathered = ranks.all_gather(
        [lse[np.newaxis] for lse in lses], LSE_BYTES, stage=LSE_ALL_GATHER, group_size=dcp
    )
    corrected = [
        output * merge_weights(every)[rank % dcp][..., np.newaxis]
        for rank, (output, every) in enumerate(zip(outputs, gathered, strict=True))
    ]
    return ranks.reduce_scatter(
        corrected, wire.output, stage=OUTPUT_REDUCE_SCATTER, axis=1, group_size=dcp
    )


def _pack_then_all_to_all(
    ranks: Ranks,
    outputs: Sequence[Array],
    lses: Sequence[Array],
    dcp: int,
    backend: Backend,
    wire: WireBytes,
) -> list[Array]:
    """Send each head's output with its fp32 LSE behind it to the head's rank, which merges them.

    One fp32 slot is as wide as two bf16 elements, so a row is d_c + 2 (`a2a`) or d_c + 4
    (`fi_a2a`) elements. The simulated LSE sits in the first of them, the others are zero.
    """
    if LSE_BYTES % wire.output:
        raise ValueError(f"an fp32 LSE is no whole number of {wire.output}-byte elements")
    width = outputs[0].shape[-1]
    extra = LSE_SLOTS[backend] * LSE_BYTES // wire.output
    packed = []
    for output, lse in zip(outputs, lses, strict=True):
        row = np.zeros((*lse.shape, width + extra))
        row[..., :width], row[..., width] = output, lse
        packed.append(np.stack(np.split(row, dcp, axis=1)))
    arrived = ranks.all_to_all(packed, wire.output, stage=OUTPUT_ALL_TO_ALL, group_size=dcp)
    return [
        np.sum(merge_weights(block[..., width])[..., np.newaxis] * block[..., :width], axis=0)
        for block in arrived
    ]


def decode_step(
    weights: Weights,
    contexts: Sequence[Array],
    *,
    tp: int,
    dcp: int = 1,
    backend: Backend = "ag_rs",
    query_replication: bool = False,
    wire: WireBytes | None = None,
) -> DecodeResult:
    """Decode the last token of each context [L_b, hidden] over `tp` ranks; the rest is cached.

    With one rank in a DCP group there is nothing to exchange; with one rank nothing is sent.
    With query replication each rank makes the H_g queries of its group itself.
    """
    shape = weights.shape
    _check(shape, contexts, tp, dcp, backend)
    ranks = Ranks(tp)
    hidden = np.stack([context[-1] for context in contexts])
    positions = np.array([len(context) - 1.0 for context in contexts])
    past = striped_caches(weights, [context[:-1] for context in contexts], tp, dcp)
    caches = write_token(weights, past, hidden, positions, dcp)
    addends = attend(
        ranks,
        weights,
        caches,
        [hidden] * tp,
        [positions] * tp,
        tp=tp,
        dcp=dcp,
        backend=backend,
        query_replication=query_replication,
        wire=wire,
    )
    itemsize = (wire or WireBytes()).hidden
    final = ranks.all_reduce(addends, itemsize, stage=O_PROJ_ALL_REDUCE)
    return DecodeResult(final, caches, ranks.ledger)


def attend(
    ranks: Ranks,
    weights: Weights,
    caches: Sequence[Sequence[Array]],
    hidden: Sequence[Array],
    positions: Sequence[Array],
    *,
    tp: int,
    dcp: int,
    backend: Backend = "ag_rs",
    query_replication: bool = False,
    wire: WireBytes | None = None,
) -> list[Array]:
    """One layer on every rank, up to the addends of the output projection [B, hidden].

    Ranks are replicas of `tp` ranks each; `hidden` and `positions` are a replica's own.
    """
    wire, local = wire or WireBytes(), weights.shape.heads // tp
    heads = [slice(r % tp * local, (r % tp + 1) * local) for r in range(ranks.size)]
    spans = heads
    if query_replication:
        spans = [
            slice(heads[group[0]].start, heads[group[-1]].stop)
            for group in ranks.groups(dcp)
            for _ in group
        ]
    queries = [
        absorbed_queries(weights, x, at, span)
        for x, at, span in zip(hidden, positions, spans, strict=True)
    ]
    if not query_replication:
        queries = group_queries(ranks, queries, dcp, wire)
    partials = [
        partial_attention(weights.shape, query, stripes)
        for query, stripes in zip(queries, caches, strict=True)
    ]
    outputs, lses = [out for out, _ in partials], [lse for _, lse in partials]
    merged = exchange(ranks, outputs, lses, dcp, backend, wire)
    addends = []
    for mine, latent in zip(heads, merged, strict=True):
        values = np.einsum("bhc,chv->bhv", latent, weights.w_uv[:, mine])
        addends.append(np.einsum("bhv,hvo->bo", values, weights.w_o[mine]))
    return addends


def _check(shape: Shape, contexts: Sequence[Array], tp: int, dcp: int, backend: Backend) -> None:
    if tp < 1 or shape.heads % tp:
        raise ValueError(f"tp = {tp} does not divide {shape.heads} heads")
    if dcp < 1 or tp % dcp:
        raise ValueError(f"dcp = {dcp} does not divide tp = {tp}")
    if backend != "ag_rs" and backend not in LSE_SLOTS:
        raise ValueError(f"unknown backend {backend!r}")
    if not contexts or min(len(context) for context in contexts) < 1:
        raise ValueError("every request needs at least the token it decodes")


# --- The textbook form ----------------------------------------------------------------------------


def unsharded_attention(weights: Weights, contexts: Sequence[Array]) -> Array:
    """Plain multi-head attention of each context's last token, unabsorbed, one rank: [B, hidden].

    Keys [L, H, nope + d_r] and values [L, H, value] are written out for every token and head.
    The rotation is a product with exp(i position theta^(-2i / d_r)) on pairs read as complex.
    """
    s = weights.shape
    outputs = []
    for context in contexts:
        tokens = len(context)
        c_q = _unit_rms(context[-1] @ weights.w_dq) * weights.q_norm
        c_kv = _unit_rms(context @ weights.w_dkv) * weights.kv_norm
        k_nope = np.tensordot(c_kv, weights.w_uk, axes=1)
        values = np.tensordot(c_kv, weights.w_uv, axes=1)
        k_rope = context @ weights.w_kr
        query = np.tensordot(c_q, weights.w_uq, axes=1)
        q_nope, q_rope = query[:, : s.nope], query[:, s.nope :]
        if s.rope:
            k_rope = np.stack([_complex_turn(k_rope[i], i, s.rope_theta) for i in range(tokens)])
            q_rope = np.stack([_complex_turn(q, tokens - 1, s.rope_theta) for q in q_rope])
        result = np.zeros(s.hidden)
        for head in range(s.heads):
            key = np.hstack([k_nope[:, head], k_rope])
            scores = key @ np.hstack([q_nope[head], q_rope[head]]) / (s.nope + s.rope_width) ** 0.5
            probability = np.exp(scores - scores.max())
            probability /= probability.sum()
            result += probability @ values[:, head] @ weights.w_o[head]
        outputs.append(result)
    return np.stack(outputs)


def _unit_rms(x: Array) -> Array:
    scaled: Array = x * ((x * x).sum(axis=-1, keepdims=True) / x.shape[-1] + 1e-6) ** -0.5
    return scaled


def _complex_turn(x: Array, position: int, theta: float) -> Array:
    width = len(x)
    phases = np.exp([1j * position / theta ** (2 * i / width) for i in range(width // 2)])
    return (x.view(np.complex128) * phases).view(np.float64)
