"""Multi-head latent attention (MLA) and the indexer of its sparse variant (DSA)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from calc.errors import CalcError
from calc.formats import KV_FORMATS, indexer_row_bytes
from calc.items import Item, Status, formula
from calc.layers.base import BLACKWELL, HOPPER, Growth, Heads, Mixer, Sharding, Store, Width
from calc.layers.tensors import Split, Tensor, by_heads, vector


@formula(
    unit="B/token",
    source="vLLM 0.33 models/minimax_m3/common/indexer.py",
    status=Status.ENGINE,
)
def plain_index_row_bytes(index_dim: int, element_bytes: int) -> int:
    """One indexer key without scales."""
    return index_dim * element_bytes


FLASHINFER_NOPE = (64, 128, 192)
"""Widths without rotation that FlashInfer's latent attention has (vLLM 0.33 flashinfer_mla.py)."""


class LatentAttention(Mixer):
    """Keeps one latent vector and one rotary key per token, shared by all heads.

    Every TP rank holds the same rows unless dcp stripes them. ``sparse`` layers
    attend to the tokens that an indexer chose (DSA). ``query_replication``
    names the engines that can compute the whole DCP group's queries on each
    rank for this model instead of gathering them.

    A layer with ``reads_other_layer`` attends to the rows of an earlier layer and
    keeps none; without ``down_projection`` it makes its own rows with the
    projection of an earlier layer, so it keeps as much and weighs less.
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
    reads_other_layer: bool = False
    down_projection: bool = True
    query_replication: tuple[Literal["vllm", "sglang"], ...] = ("vllm", "sglang")

    @property
    def row_elements(self) -> int:
        """Elements of one cached row: the latent and the rotary key."""
        return self.kv_lora_rank + self.rope_dim

    def row(self, place: Sharding) -> Item:
        """Bytes of one token's row."""
        kv_format = place.kv_format
        if kv_format.id in place.engine.refused_latent_formats:
            reason = "this engine has it for K and V rows only"
            raise CalcError("format_kind", given=kv_format.id, kind=self.kind, reason=reason)
        if self.sparse and kv_format.id == "fp8":
            kv_format = KV_FORMATS["fp8_ds_mla"]  # what the engines mean by fp8 here
        return kv_format.latent_row(self.kind, self.kv_lora_rank, self.rope_dim)

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        if self.reads_other_layer:
            return ()
        row = self.row(place)
        copies = place.tp // place.dcp
        return (Store("latent", self.kind, Growth.GROWING, row, dcp=place.dcp, copies=copies),)

    def least_block(self, place: Sharding) -> int:
        """vLLM 0.33 platforms/cuda.py _get_backend_priorities: FlashInfer's kernel on Blackwell
        takes 32 tokens; FlashMLA, Hopper's for 8-bit rows, 64; FlashAttention's and Triton's any
        16. Sparse layers have an indexer, which asks for more."""
        if place.engine.id != "vllm" or self.sparse:
            return 0
        if place.cuda == BLACKWELL and self.nope_dim in FLASHINFER_NOPE:
            return 32
        return 64 if place.cuda == HOPPER and place.kv_format.id == "fp8" else 0

    def split_counts(self) -> dict[str, int]:
        return {"query heads": self.heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        def serving_heads(name: str, width: int, read: int, split: Split) -> Tensor:
            rows = by_heads(name, self.heads, width)
            return Tensor(name, "attention", rows, read, split, most_shares=self.heads)

        query_dim = self.nope_dim + self.rope_dim
        query: tuple[Tensor, ...]
        if self.q_lora_rank is None:
            query = (serving_heads("q_proj", query_dim, hidden_size, Split.QUERY),)
        else:
            query = (
                Tensor("q_a_proj", "attention", self.q_lora_rank, hidden_size),
                vector("q_a_norm", "norm", self.q_lora_rank),
                serving_heads("q_b_proj", query_dim, self.q_lora_rank, Split.QUERY),
            )
        gate = (serving_heads("g_proj", self.v_dim, hidden_size, Split.ROWS),)
        down: tuple[Tensor, ...] = ()
        if self.down_projection and not self.reads_other_layer:
            down = (
                Tensor("kv_a_proj", "attention", self.row_elements, hidden_size),
                vector("kv_a_norm", "norm", self.kv_lora_rank),
            )
        return (
            *query,
            *down,
            # kv_b_proj in two: W_UK joins the query's side, W_UV stays with the local heads
            serving_heads("w_uk", self.nope_dim, self.kv_lora_rank, Split.QUERY),
            serving_heads("w_uv", self.v_dim, self.kv_lora_rank, Split.ROWS),
            Tensor(
                "o_proj",
                "attention",
                hidden_size,
                by_heads("o_proj", self.heads, self.v_dim),
                Split.COLUMNS,
            ),
            *(gate if self.output_gate else ()),
        )


class Indexer(Mixer):
    """Keeps one fp8 indexer key per token; it chooses the tokens a sparse layer reads.

    Its queries come from the attention's compressed query where there is one
    (``q_lora_rank``), else from the hidden state. ``plain_keys`` are stored as
    they are, in bf16, or in fp8 with any 8-bit cache (MiniMax-M3).
    """

    projects_output: ClassVar[bool] = False

    kind: Literal["indexer"] = "indexer"
    heads: Heads
    index_dim: Annotated[int, Field(gt=0, le=2**20, multiple_of=128)]
    top_k: Width
    q_lora_rank: int | None = Field(None, gt=0, le=2**20)
    plain_keys: bool = False

    def least_block(self, place: Sharding) -> int:
        """vLLM 0.33 v1/attention/backends/mla/indexer.py: 64 on CUDA; SGLang 0.5.23
        arg_groups/model_overrides/deepseek_v2.py and minimax_m3.py: 64, with plain keys 128."""
        if place.engine.id == "sglang":
            return 128 if self.plain_keys else 64
        return 0 if self.plain_keys or not place.cuda else 64

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        dcp = place.dcp if place.engine.stripes_indexer else 1
        row = self._row(2 if place.kv_format.id == "bf16" else 1)
        copies = place.tp // dcp
        return (Store("index_key", self.kind, Growth.GROWING, row, dcp=dcp, copies=copies),)

    def _row(self, element_bytes: int) -> Item:
        key = f"{self.kind}.row"
        if self.plain_keys:
            return plain_index_row_bytes.item(
                key, index_dim=self.index_dim, element_bytes=element_bytes
            )
        return indexer_row_bytes.item(key, index_dim=self.index_dim)

    def split_counts(self) -> dict[str, int]:
        return {}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        queries = by_heads("wq_b", self.heads, self.index_dim)
        return (
            Tensor("wq_b", "indexer", queries, self.q_lora_rank or hidden_size),
            Tensor("wk", "indexer", self.index_dim, hidden_size),
            vector("k_norm", "norm", 2 * self.index_dim),  # a LayerNorm: weight and bias
            Tensor("weights_proj", "indexer", self.heads, hidden_size),
        )
