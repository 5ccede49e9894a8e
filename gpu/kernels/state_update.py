"""One token's update of a recurrent state: KDA, gated delta net, Mamba-2, lightning attention."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def state_update(
    state,
    q,
    k,
    v,
    decay,
    beta,
    out,
    heads,
    share,
    key_dim: tl.constexpr,
    value_dim: tl.constexpr,
    columns: tl.constexpr,
    delta: tl.constexpr,
    channel_decay: tl.constexpr,
):
    """One program: ``columns`` of one head's key x value matrix, updated in place.

    ``share`` value heads use one key head. With ``delta`` the value written is
    the error against what the decayed state says for the key.
    """
    head = tl.program_id(0).to(tl.int64)
    request = head // heads
    key_head = request * (heads // share) + (head % heads) // share
    row = tl.arange(0, key_dim)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    place = state + head * key_dim * value_dim + row[:, None] * value_dim + column[None, :]
    kept = tl.load(place).to(tl.float32)
    key = tl.load(k + key_head * key_dim + row).to(tl.float32)
    query = tl.load(q + key_head * key_dim + row).to(tl.float32)
    value = tl.load(v + head * value_dim + column).to(tl.float32)
    strength = tl.load(beta + head)
    if channel_decay:
        kept = kept * tl.load(decay + head * key_dim + row)[:, None]
    else:
        kept = kept * tl.load(decay + head)
    if delta:
        value = value - tl.sum(kept * key[:, None], 0)
    kept += key[:, None] * (value * strength)[None, :]
    tl.store(place, kept.to(state.dtype.element_ty))
    answer = tl.sum(kept * query[:, None], 0)
    tl.store(out + head * value_dim + column, answer.to(out.dtype.element_ty))
