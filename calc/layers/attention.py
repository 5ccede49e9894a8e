"""Attention that caches K and V per KV head: full, sliding-window and chunked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from calc.layers.base import Growth, Heads, Mixer, Sharding, Store, Tokens, Width
from calc.layers.tensors import Split, Tensor, by_heads, vector


class Attention(Mixer):
    """Keeps K and V of every token for each KV head (MHA, GQA and MQA alike).

    K and V may differ in width. A layer with ``reads_other_layer`` reads the
    K and V of an earlier layer and keeps none itself. The fields below it
    change weights, never the cache: ``qk_norm`` is over each head's width or
    over all heads at once, ``sinks`` one learned logit for each query head,
    ``v_from_k`` no V projection, ``kv_projections`` whether K and V are made
    here at all, ``input_size`` the width read if not the hidden one.
    ``heads_over_dcp``: SGLang's code for the model splits its K/V heads over the
    tp / dcp ranks, so that several of one group may hold different heads' tokens.
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
    qk_norm: Literal["none", "head", "width"] = "none"
    sinks: bool = False
    v_from_k: bool = False
    kv_projections: bool = True
    heads_over_dcp: bool = False
    input_size: int | None = Field(None, gt=0, le=2**20)

    @model_validator(mode="after")
    def _equal_groups(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads")
        return self

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

    def replicable_counts(self) -> dict[str, int]:
        return {"KV heads": self.kv_heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        read = self.input_size or hidden_size
        return (
            *self._queries(read),
            *(self._keys_and_values(read) if self.kv_projections else ()),
            Tensor(
                "o_proj",
                "attention",
                hidden_size,
                by_heads("o_proj", self.heads, self.v_dim),
                Split.COLUMNS,
            ),
            *((vector("o_bias", "attention", hidden_size),) if self.o_bias else ()),
            *((vector("sinks", "attention", self.heads, Split.ROWS),) if self.sinks else ()),
        )

    def _queries(self, read: int) -> tuple[Tensor, ...]:
        made = [self._by_heads("q_proj", self.heads, self.k_dim, read)]
        if self.output_gate == "element":
            made.append(self._by_heads("gate_proj", self.heads, self.v_dim, read))
        if self.output_gate == "head":
            made.append(self._by_heads("gate_proj", self.heads, 1, read))
        if self.qkv_bias:
            made.append(self._by_heads("q_bias", self.heads, self.k_dim, 1))
        if self.qk_norm == "head":
            made.append(vector("q_norm", "norm", self.k_dim))
        if self.qk_norm == "width":
            made.append(self._by_heads("q_norm", self.heads, self.k_dim, 1))
        return tuple(made)

    def _keys_and_values(self, read: int) -> tuple[Tensor, ...]:
        made = [self._by_heads("k_proj", self.kv_heads, self.k_dim, read)]
        if not self.v_from_k:
            made.append(self._by_heads("v_proj", self.kv_heads, self.v_dim, read))
        if self.qkv_bias:
            made.append(self._by_heads("kv_bias", self.kv_heads, self.k_dim + self.v_dim, 1))
        if self.qk_norm == "head":
            made.append(vector("k_norm", "norm", self.k_dim))
        if self.qk_norm == "width":
            made.append(self._by_heads("k_norm", self.kv_heads, self.k_dim, 1))
        return tuple(made)

    def _by_heads(self, name: str, heads: int, width: int, read: int) -> Tensor:
        rows = by_heads(name, heads, width)
        return Tensor(name, "attention", rows, read, Split.ROWS, most_shares=heads)


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
