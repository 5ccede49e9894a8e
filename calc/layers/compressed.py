"""Latent attention over compressed history (DeepSeek-V4)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from calc.errors import CalcError
from calc.formats import SCALES, indexer_row_bytes
from calc.items import Item, Status, formula
from calc.layers.base import Growth, Heads, Mixer, Sharding, Store, Tokens, Width
from calc.layers.tensors import Split, Tensor, by_heads, vector
from calc.units import exact_div

DEEPSEEK_V4 = "vLLM 0.33 models/deepseek_v4/attention.py"


@formula(unit="B", source=DEEPSEEK_V4)
def shared_latent_bytes(head_dim: int, element_bytes: int) -> int:
    """One vector that serves as K and as V of every head."""
    return head_dim * element_bytes


@formula(unit="B", source=DEEPSEEK_V4, status=Status.ENGINE)
def shared_latent_bytes_packed(head_dim: int, rope_dim: int) -> int:
    """fp8 but for the rotary part in bf16, an 8-bit scale for every 64 and one of padding."""
    return head_dim - rope_dim + exact_div(head_dim - rope_dim, 64) + 1 + rope_dim * 2


@formula(unit="B", source=DEEPSEEK_V4, status=Status.ENGINE)
def packed_scales(head_dim: int, rope_dim: int) -> int:
    """An 8-bit scale for every 64 elements in fp8, and one byte of padding."""
    return exact_div(head_dim - rope_dim, 64) + 1


SCALES[shared_latent_bytes_packed.name] = packed_scales


class CompressedLatentAttention(Mixer):
    """Keeps a window of latent rows and, for the rest, one row for several tokens.

    With ``compress_ratio`` m, every m tokens before the window leave one row.
    With ``index_dim`` an indexer key goes with each of those rows and chooses
    ``index_top_k`` of them; without it all are read. Each row is K and V of all
    heads at once, the same on every TP rank. The rows of a group that is not
    complete yet (fewer than m tokens) are not counted.
    """

    kind: Literal["compressed_latent"] = "compressed_latent"
    heads: Heads
    head_dim: Width
    rope_dim: int = Field(ge=0, le=2**20)
    window: Tokens
    compress_ratio: int | None = Field(None, gt=1, le=2**20)
    overlap: bool = False
    index_dim: int | None = Field(None, gt=0, le=2**20)
    index_heads: int | None = Field(None, gt=0, le=2**14)
    index_top_k: int | None = Field(None, gt=0, le=2**20)
    q_lora_rank: Width
    o_groups: Heads = 1
    o_lora_rank: Width

    packed_formats: ClassVar[tuple[str, ...]] = ("fp8", "fp8_ds_mla")

    @model_validator(mode="after")
    def _consistent(self) -> CompressedLatentAttention:
        index = (self.index_dim, self.index_heads, self.index_top_k)
        if any(index) and not (all(index) and self.compress_ratio):
            raise ValueError(
                "an indexer needs index_dim, index_heads, index_top_k and compress_ratio"
            )
        if self.rope_dim > self.head_dim:
            raise ValueError("rope_dim is a part of head_dim")
        if self.heads % self.o_groups:
            raise ValueError("o_groups must divide heads")
        return self

    def least_block(self, place: Sharding) -> int:
        """SGLang 0.5.23 arg_groups/model_overrides/deepseek_v4.py: pages of 256."""
        return 256 if place.engine.id == "sglang" else 0

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        row = self._row(place)
        kept = [Store("window", self.kind, Growth.WINDOW, row, self.window, copies=place.tp)]
        if self.compress_ratio:
            kept.append(self._compressed("compressed", row, self.compress_ratio, place))
        if self.compress_ratio and self.index_dim:
            key = indexer_row_bytes.item(f"{self.kind}.index_row", index_dim=self.index_dim)
            kept.append(self._compressed("index_key", key, self.compress_ratio, place))
        return tuple(kept)

    def _compressed(self, name: str, row: Item, tokens: int, place: Sharding) -> Store:
        return Store(name, self.kind, Growth.GROWING, row, copies=place.tp, tokens_per_row=tokens)

    def _row(self, place: Sharding) -> Item:
        key = f"{self.kind}.row"
        if place.kv_format.id == "bf16":
            return shared_latent_bytes.item(key, head_dim=self.head_dim, element_bytes=2)
        if place.kv_format.id in self.packed_formats:
            return shared_latent_bytes_packed.item(
                key, head_dim=self.head_dim, rope_dim=self.rope_dim
            )
        raise CalcError(
            "format_kind",
            given=place.kv_format.id,
            kind=self.kind,
            reason="its rows exist in bf16 and packed as fp8",
        )

    def split_counts(self) -> dict[str, int]:
        return {"query heads": self.heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        queries = by_heads("wq_b", self.heads, self.head_dim)
        grouped = exact_div(self.heads * self.head_dim, self.o_groups)
        low_rank = by_heads("wo_a", self.o_groups, self.o_lora_rank)
        return (
            Tensor("wq_a", "attention", self.q_lora_rank, hidden_size),
            vector("q_norm", "norm", self.q_lora_rank),
            Tensor("wq_b", "attention", queries, self.q_lora_rank, Split.ROWS),
            Tensor("wkv", "attention", self.head_dim, hidden_size),
            vector("kv_norm", "norm", self.head_dim),
            # each group of heads has its own low-rank output, and all share the way up
            Tensor("wo_a", "attention", low_rank, grouped, Split.ROWS, most_shares=self.o_groups),
            Tensor("wo_b", "attention", hidden_size, low_rank, Split.COLUMNS),
            vector("sinks", "attention", self.heads, Split.ROWS),
            *self._compressor("compressor", self.head_dim, hidden_size),
            *self._indexer(hidden_size),
        )

    def _compressor(self, name: str, width: int, hidden_size: int) -> tuple[Tensor, ...]:
        """Values, gates and positions of a group; overlapping groups have two of each."""
        if self.compress_ratio is None:
            return ()
        made = width * (2 if self.overlap else 1)
        return (
            Tensor(f"{name}_wkv", "indexer", made, hidden_size),
            Tensor(f"{name}_gate", "indexer", made, hidden_size),
            Tensor(f"{name}_positions", "norm", self.compress_ratio, made),
            vector(f"{name}_norm", "norm", width),
        )

    def _indexer(self, hidden_size: int) -> tuple[Tensor, ...]:
        if self.index_dim is None or self.index_heads is None:
            return ()
        queries = by_heads("index_wq", self.index_heads, self.index_dim)
        return (
            Tensor("index_wq", "indexer", queries, self.q_lora_rank),
            Tensor("index_weights", "indexer", self.index_heads, hidden_size),
            *self._compressor("index_compressor", self.index_dim, hidden_size),
        )
