"""Cache element formats: what one token's row weighs in each of them.

A *dense* row holds K and V of the KV heads on a rank; a *latent* row (MLA)
holds one compressed vector and one rotary key for all heads. A format that an
engine does not have for a row is ``None`` there, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.errors import CalcError
from calc.items import Formula, Item, Status, formula
from calc.units import exact_div

DTYPE_BYTES = {"bf16": 2, "float32": 4}
"""Element sizes of state dtypes, bytes."""

VLLM = "vLLM 0.33"


@formula(unit="B/token", source=f"{VLLM} v1/kv_cache_interface.py AttentionSpec")
def dense_row_bytes(kv_heads_per_rank: int, k_dim: int, v_dim: int, element_bytes: int) -> int:
    """K and V of one token in one layer on one rank; a per-tensor scale weighs nothing."""
    return kv_heads_per_rank * (k_dim + v_dim) * element_bytes


@formula(
    unit="B/token",
    source=f"{VLLM} v1/attention/backends/triton_attn.py customize_spec",
    status=Status.ENGINE,
)
def dense_row_bytes_token_scaled(
    kv_heads_per_rank: int, k_dim: int, v_dim: int, element_bytes: int
) -> int:
    """One byte an element and one float32 scale for K and one for V of each head."""
    return kv_heads_per_rank * ((k_dim + v_dim) * element_bytes + 8)


@formula(
    unit="B/token",
    source=f"{VLLM} v1/attention/backends/triton_attn.py customize_spec",
    status=Status.ENGINE,
)
def dense_row_bytes_int4(kv_heads_per_rank: int, k_dim: int, v_dim: int) -> int:
    """Half a byte an element and one float32 scale for K and one for V of each head."""
    return kv_heads_per_rank * (exact_div(k_dim + v_dim, 2) + 8)


@formula(
    unit="B/token",
    source=f"{VLLM} utils/torch_utils.py nvfp4_kv_cache_full_dim",
    status=Status.ENGINE,
)
def dense_row_bytes_nvfp4(kv_heads_per_rank: int, k_dim: int, v_dim: int) -> int:
    """Half a byte an element and one fp8 scale for every 16 elements."""
    return kv_heads_per_rank * (exact_div(k_dim + v_dim, 2) + exact_div(k_dim + v_dim, 16))


@formula(unit="B/token", source=f"{VLLM} model_executor/layers/attention/mla_attention.py")
def latent_row_bytes(kv_lora_rank: int, rope_dim: int, element_bytes: int) -> int:
    """One latent vector and one rotary key of one token in one layer; there is no V."""
    return (kv_lora_rank + rope_dim) * element_bytes


@formula(
    unit="B/token",
    source=f"{VLLM} mla_attention.py MLACommonBackend.customize_spec",
    status=Status.ENGINE,
)
def latent_row_bytes_token_scaled(kv_lora_rank: int, rope_dim: int) -> int:
    """One byte an element; the pair of float32 scales is reserved though one is used."""
    return kv_lora_rank + rope_dim + 8


@formula(
    unit="B/token",
    source=f"{VLLM} mla_attention.py MLACommonBackend.customize_spec",
    status=Status.ENGINE,
)
def latent_row_bytes_int4(kv_lora_rank: int, rope_dim: int) -> int:
    """Half a byte an element; the pair of float32 scales is reserved though one is used."""
    return exact_div(kv_lora_rank + rope_dim, 2) + 8


@formula(
    unit="B/token",
    source="SGLang 0.5.23 model_executor/pool_configurator.py _compute_cell_size (fp4 MLA)",
    status=Status.ENGINE,
)
def latent_row_bytes_nvfp4(kv_lora_rank: int, rope_dim: int) -> int:
    """Half a byte an element and one fp8 scale for every 16 elements."""
    return exact_div(kv_lora_rank + rope_dim, 2) + exact_div(kv_lora_rank + rope_dim, 16)


@formula(
    unit="B/token",
    source=f"{VLLM} v1/attention/backends/mla/flashmla_sparse.py; FlashMLA README",
    status=Status.ENGINE,
)
def latent_row_bytes_fp8_ds(kv_lora_rank: int, rope_dim: int) -> int:
    """fp8 latent, a float32 scale for every 128 of it, and the rotary key in bf16 (656 B)."""
    return kv_lora_rank + exact_div(kv_lora_rank, 128) * 4 + rope_dim * 2


@formula(
    unit="B/token",
    source=f"{VLLM} v1/attention/backends/mla/flashmla_sparse.py (SM100)",
    status=Status.ENGINE,
)
def latent_row_bytes_nvfp4_ds(kv_lora_rank: int, rope_dim: int) -> int:
    """e2m1 latent, an fp8 scale for every 16 of it, and the rotary key in fp8 (352 B)."""
    return exact_div(kv_lora_rank, 2) + exact_div(kv_lora_rank, 16) + rope_dim


@formula(
    unit="B/token",
    source=f"{VLLM} model_executor/models/deepseek_v2.py DeepseekV32IndexerCache",
    status=Status.ENGINE,
)
def indexer_row_bytes(index_dim: int) -> int:
    """One fp8 indexer key and a float32 scale for every 128 of it (132 B), in any KV format."""
    return index_dim + exact_div(index_dim, 128) * 4


TOKEN_SCALES = f"{VLLM} v1/attention/backends/triton_attn.py customize_spec"
BLOCK_SCALES = "a scale for every block of elements, inside the row"


@formula(unit="B/token", source=TOKEN_SCALES, status=Status.ENGINE)
def token_head_scales(kv_heads_per_rank: int) -> int:
    """One float32 scale for K and one for V of each head and token."""
    return kv_heads_per_rank * 8


@formula(unit="B/token", source=BLOCK_SCALES, status=Status.ENGINE)
def dense_block_scales(kv_heads_per_rank: int, k_dim: int, v_dim: int) -> int:
    """One fp8 scale for every 16 elements of K and V."""
    return kv_heads_per_rank * exact_div(k_dim + v_dim, 16)


@formula(unit="B/token", source=TOKEN_SCALES, status=Status.ENGINE)
def latent_pair_scales() -> int:
    """A pair of float32 scales for a latent row."""
    return 8


@formula(unit="B/token", source=BLOCK_SCALES, status=Status.ENGINE)
def latent_block_scales(kv_lora_rank: int, rope_dim: int) -> int:
    """One fp8 scale for every 16 elements of a latent row."""
    return exact_div(kv_lora_rank + rope_dim, 16)


@formula(unit="B/token", source=BLOCK_SCALES, status=Status.ENGINE)
def latent_fp8_ds_scales(kv_lora_rank: int) -> int:
    """One float32 scale for every 128 elements of the latent."""
    return exact_div(kv_lora_rank, 128) * 4


@formula(unit="B/token", source=BLOCK_SCALES, status=Status.ENGINE)
def latent_nvfp4_ds_scales(kv_lora_rank: int) -> int:
    """One fp8 scale for every 16 elements of the latent."""
    return exact_div(kv_lora_rank, 16)


@formula(unit="B/token", source=BLOCK_SCALES, status=Status.ENGINE)
def indexer_scales(index_dim: int) -> int:
    """One float32 scale for every 128 elements of an indexer key."""
    return exact_div(index_dim, 128) * 4


SCALES: dict[str, Formula[Any, Any]] = {
    "dense_row_bytes_token_scaled": token_head_scales,
    "dense_row_bytes_int4": token_head_scales,
    "dense_row_bytes_nvfp4": dense_block_scales,
    "latent_row_bytes_token_scaled": latent_pair_scales,
    "latent_row_bytes_int4": latent_pair_scales,
    "latent_row_bytes_nvfp4": latent_block_scales,
    "latent_row_bytes_fp8_ds": latent_fp8_ds_scales,
    "latent_row_bytes_nvfp4_ds": latent_nvfp4_ds_scales,
    "indexer_row_bytes": indexer_scales,
}
"""The part of a row that its scales take, by the row's formula; others carry none."""


def scales_of(row: Item) -> Item | None:
    """The scale bytes inside a row; None where the row holds elements only."""
    rule = SCALES.get(row.formula.name)
    if rule is None:
        return None
    return rule.item(f"{row.key}.scales", **{name: row.arguments[name] for name in rule.parameters})


@dataclass(frozen=True, slots=True)
class KvFormat:
    """A KV cache format: its dense and its latent row (None: no engine has it there).

    ``arguments`` are bound to the row formulas beside the widths; ``scales``
    names the granularity of the scaling factors.
    """

    id: str
    dense: Formula[Any, Any] | None
    latent: Formula[Any, Any] | None
    scales: str
    divisor: int = 1
    dense_arguments: dict[str, int] | None = None
    latent_arguments: dict[str, int] | None = None

    def dense_row(self, kind: str, kv_heads_per_rank: Item, k_dim: int, v_dim: int) -> Item:
        """Bytes of one token's K and V in one layer on one rank."""
        if self.dense is None:
            raise CalcError(
                "format_kind", given=self.id, kind=kind, reason="it packs a latent row (MLA)"
            )
        self._check_width(k_dim + v_dim)
        return self.dense.item(
            f"{kind}.row",
            kv_heads_per_rank=kv_heads_per_rank,
            k_dim=k_dim,
            v_dim=v_dim,
            **(self.dense_arguments or {}),
        )

    def latent_row(self, kind: str, kv_lora_rank: int, rope_dim: int) -> Item:
        """Bytes of one token's latent row in one layer; the same on every rank."""
        if self.latent is None:
            raise CalcError("format_kind", given=self.id, kind=kind, reason="dense rows only")
        self._check_width(kv_lora_rank if self.dense is None else kv_lora_rank + rope_dim)
        return self.latent.item(
            f"{kind}.row",
            kv_lora_rank=kv_lora_rank,
            rope_dim=rope_dim,
            **(self.latent_arguments or {}),
        )

    def _check_width(self, width: int) -> None:
        if width % self.divisor:
            raise CalcError("format_width", given=self.id, divisor=self.divisor, width=width)


KV_FORMATS: dict[str, KvFormat] = {
    made.id: made
    for made in (
        KvFormat(
            "bf16",
            dense_row_bytes,
            latent_row_bytes,
            scales="none",
            dense_arguments={"element_bytes": 2},
            latent_arguments={"element_bytes": 2},
        ),
        KvFormat(
            "fp8",
            dense_row_bytes,
            latent_row_bytes,
            scales="tensor",
            dense_arguments={"element_bytes": 1},
            latent_arguments={"element_bytes": 1},
        ),
        KvFormat("fp8_ds_mla", None, latent_row_bytes_fp8_ds, scales="block", divisor=128),
        KvFormat(
            "int8_per_token_head",
            dense_row_bytes_token_scaled,
            latent_row_bytes_token_scaled,
            scales="token_head",
            dense_arguments={"element_bytes": 1},
        ),
        KvFormat(
            "fp8_per_token_head",
            dense_row_bytes_token_scaled,
            latent_row_bytes_token_scaled,
            scales="token_head",
            dense_arguments={"element_bytes": 1},
        ),
        KvFormat(
            "int4_per_token_head",
            dense_row_bytes_int4,
            latent_row_bytes_int4,
            scales="token_head",
            divisor=2,
        ),
        KvFormat(
            "nvfp4", dense_row_bytes_nvfp4, latent_row_bytes_nvfp4, scales="block", divisor=16
        ),
        KvFormat("nvfp4_ds_mla", None, latent_row_bytes_nvfp4_ds, scales="block", divisor=16),
    )
}
