"""Multi-head latent attention (MLA) and the indexer of its sparse variant (DSA)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from calc.formats import KV_FORMATS, indexer_row_bytes
from calc.layers.base import Growth, Heads, Mixer, Sharding, Store, Width


class LatentAttention(Mixer):
    """Keeps one latent vector and one rotary key per token, shared by all heads.

    Every TP rank holds the same rows unless dcp stripes them. ``sparse`` layers
    attend to the tokens that an indexer chose (DSA). ``query_replication``
    names the engines that can compute the whole DCP group's queries on each
    rank for this model instead of gathering them.
    """

    kind: Literal["mla"] = "mla"
    heads: Heads
    kv_lora_rank: Width
    rope_dim: int = Field(ge=0, le=2**20)
    nope_dim: Width
    v_dim: Width
    q_lora_rank: int | None = Field(None, gt=0, le=2**20)
    sparse: bool = False
    output_gate: bool = False
    query_replication: tuple[Literal["vllm", "sglang"], ...] = ("vllm", "sglang")

    @property
    def row_elements(self) -> int:
        """Elements of one cached row: the latent and the rotary key."""
        return self.kv_lora_rank + self.rope_dim

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        kv_format = place.kv_format
        if self.sparse and kv_format.id == "fp8":
            kv_format = KV_FORMATS["fp8_ds_mla"]  # what the engines mean by fp8 here
        row = kv_format.latent_row(self.kind, self.kv_lora_rank, self.rope_dim)
        copies = place.tp // place.dcp
        return (Store("latent", self.kind, Growth.GROWING, row, dcp=place.dcp, copies=copies),)

    def split_counts(self) -> dict[str, int]:
        return {"query heads": self.heads}


class Indexer(Mixer):
    """Keeps one fp8 indexer key per token; it chooses the tokens a sparse layer reads."""

    projects_output: ClassVar[bool] = False

    kind: Literal["indexer"] = "indexer"
    heads: Heads
    index_dim: Width
    top_k: Width

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        dcp = place.dcp if place.engine.stripes_indexer else 1
        row = indexer_row_bytes.item(f"{self.kind}.row", index_dim=self.index_dim)
        copies = place.tp // dcp
        return (Store("index_key", self.kind, Growth.GROWING, row, dcp=dcp, copies=copies),)

    def split_counts(self) -> dict[str, int]:
        return {}
