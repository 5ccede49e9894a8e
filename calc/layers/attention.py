"""Attention that caches K and V per KV head: full, sliding-window and chunked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from calc.layers.base import Growth, Heads, Mixer, Sharding, Store, Tokens, Width


class Attention(Mixer):
    """Keeps K and V of every token for each KV head (MHA, GQA and MQA alike).

    K and V may differ in width. A layer with ``reads_other_layer`` reads the
    K and V of an earlier layer and keeps none itself. The flags below change
    weights, never the cache.
    """

    kind: Literal["attention"] = "attention"
    heads: Heads
    kv_heads: Heads
    k_dim: Width
    v_dim: Width
    reads_other_layer: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    output_gate: Literal["none", "head", "element"] = "none"
    v_from_k: bool = False
    input_size: int | None = Field(None, gt=0, le=2**20)

    @property
    def growth(self) -> Growth:
        return Growth.GROWING

    @property
    def limit(self) -> int:
        return 0

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        if self.reads_other_layer:
            return ()
        dcp = place.dcp if self.growth is Growth.GROWING else 1
        held = place.engine.kv_heads_per_rank(self.kv_heads, place.tp, dcp)
        row = place.kv_format.dense_row(self.kind, held, self.k_dim, self.v_dim)
        copies = max(1, place.tp // (dcp * self.kv_heads))
        return (Store("kv", self.kind, self.growth, row, self.limit, dcp, copies),)

    def split_counts(self) -> dict[str, int]:
        return {"query heads": self.heads}


class SlidingWindowAttention(Attention):
    """Keeps K and V of the last ``window`` tokens for each KV head."""

    kind: Literal["sliding_window"] = "sliding_window"  # type: ignore[assignment]
    window: Tokens

    @property
    def growth(self) -> Growth:
        return Growth.WINDOW

    @property
    def limit(self) -> int:
        return self.window


class ChunkedAttention(Attention):
    """Keeps K and V of the tokens since the start of the current chunk, for each KV head."""

    kind: Literal["chunked"] = "chunked"  # type: ignore[assignment]
    chunk: Tokens

    @property
    def growth(self) -> Growth:
        return Growth.CHUNK

    @property
    def limit(self) -> int:
        return self.chunk
