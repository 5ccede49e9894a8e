"""Decode attention in two stages: splits of the cached tokens, then a merge by log-sum-exp.

One kernel serves latent attention (K is one row for all heads, V its first
columns) and grouped K/V attention. K is read in two pieces, both powers of two:
576 = 512 + 64, 192 = 128 + 64, 128 = 128 + 0.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(source, row, column, stride, rows_left, rows: tl.constexpr, width: tl.constexpr):
    """A [rows, width] piece through a plain pointer; rows past the end are zero."""
    index = tl.arange(0, rows)
    pointers = source + (row + index).to(tl.int64)[:, None] * stride
    pointers += column + tl.arange(0, width)[None, :]
    return tl.load(pointers, mask=(index < rows_left)[:, None], other=0.0)


@triton.jit
def split_decode(
    q,
    k_main,
    k_rest,
    v,
    part_out,
    part_lse,
    scale_log2,
    tokens,
    splits,
    kv_heads,
    group,
    d_main: tl.constexpr,
    d_rest: tl.constexpr,
    d_v: tl.constexpr,
    latent: tl.constexpr,
    heads_tile: tl.constexpr,
    block: tl.constexpr,
    tma: tl.constexpr,
):
    """One program: one split of one request's tokens for one tile of one KV head's queries."""
    head_block = tl.program_id(0)
    split = tl.program_id(1)
    request = tl.program_id(2) // kv_heads
    kv_head = tl.program_id(2) % kv_heads
    d_k: tl.constexpr = d_main + d_rest

    in_group = head_block * heads_tile + tl.arange(0, heads_tile)
    live = in_group < group
    q_row = (request * kv_heads * group + kv_head * group + in_group).to(tl.int64)
    main = tl.arange(0, d_main)
    q_main = tl.load(q + q_row[:, None] * d_k + main[None, :], mask=live[:, None], other=0.0)
    if d_rest > 0:
        rest = d_main + tl.arange(0, d_rest)
        q_rest = tl.load(q + q_row[:, None] * d_k + rest[None, :], mask=live[:, None], other=0.0)

    blocks = tl.cdiv(tokens, block)
    first = (blocks * split) // splits
    last = (blocks * (split + 1)) // splits
    largest = tl.full([heads_tile], float("-inf"), tl.float32)
    weight = tl.zeros([heads_tile], tl.float32)
    total = tl.zeros([heads_tile, d_v], tl.float32)
    column = kv_head * d_k
    stride = kv_heads * d_k
    for index in range(first, last):
        start = index * block
        row = request * tokens + start
        if tma:
            k = k_main.load([row, column])
        else:
            k = _tile(k_main, row, column, stride, tokens - start, block, d_main)
        scores = tl.dot(q_main, k.T)
        if d_rest > 0:
            if tma:
                k2 = k_rest.load([row, column + d_main])
            else:
                k2 = _tile(k_rest, row, column + d_main, stride, tokens - start, block, d_rest)
            scores = tl.dot(q_rest, k2.T, scores)
        scores *= scale_log2
        scores = tl.where((start + tl.arange(0, block))[None, :] < tokens, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        faded = tl.exp2(largest - new_largest)
        p = tl.exp2(scores - new_largest[:, None])
        weight = weight * faded + tl.sum(p, 1)
        largest = new_largest
        if latent:
            values = k
        elif tma:
            values = v.load([row, kv_head * d_v])
        else:
            values = _tile(v, row, kv_head * d_v, kv_heads * d_v, tokens - start, block, d_v)
        total = tl.dot(p.to(values.dtype), values, total * faded[:, None])

    safe = tl.where(weight > 0, weight, 1.0)
    lse = tl.where(weight > 0, (largest + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    out_row = q_row * splits + split
    columns = tl.arange(0, d_v)
    result = total / safe[:, None]
    result = result.to(part_out.dtype.element_ty)  # with one split these are the final answer
    tl.store(part_out + out_row[:, None] * d_v + columns[None, :], result, mask=live[:, None])
    tl.store(part_lse + out_row, lse, mask=live)
