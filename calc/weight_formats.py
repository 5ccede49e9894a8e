"""Weight formats: what a matrix weighs in each of them, scales included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from calc.items import Formula, Item, formula
from calc.units import Number, ceil_div

StoredFormat = Literal["bf16", "fp8", "mxfp4", "nvfp4", "int4", "int4_g32"]
"""A format in which one matrix is stored."""


@formula(unit="B", source="16 bits a parameter")
def weight_bytes_bf16(rows: int, columns: int, copies: int) -> Number:
    """Weights in bf16 or fp16, without scales."""
    return rows * columns * copies * 2


@formula(unit="B", source="config.json of deepseek-ai/DeepSeek-V3: weight_block_size [128, 128]")
def weight_bytes_fp8(rows: int, columns: int, copies: int) -> Number:
    """fp8 weights, a float32 scale for every block of 128 x 128."""
    return (rows * columns + ceil_div(rows, 128) * ceil_div(columns, 128) * 4) * copies


@formula(unit="B", source="OCP Microscaling Formats (MX) specification 1.0: MXFP4")
def weight_bytes_mxfp4(rows: int, columns: int, copies: int) -> Number:
    """Half a byte a weight, an 8-bit scale for every 32 along the input width."""
    return rows * (ceil_div(columns, 2) + ceil_div(columns, 32)) * copies


@formula(unit="B", source="NVIDIA NVFP4: an fp8 scale for 16 weights, a float32 scale for a tensor")
def weight_bytes_nvfp4(rows: int, columns: int, copies: int) -> Number:
    """Half a byte a weight, an fp8 scale for every 16, one float32 scale for each matrix."""
    return (rows * (ceil_div(columns, 2) + ceil_div(columns, 16)) + 4) * copies


@formula(unit="B", source="symmetric 4-bit integers with a 16-bit scale for each group")
def weight_bytes_int4(rows: int, columns: int, copies: int, group: int) -> Number:
    """Half a byte a weight, a 16-bit scale for every group along the input width."""
    return rows * (ceil_div(columns, 2) + ceil_div(columns, group) * 2) * copies


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One stored format; ``scales`` says what its scaling factors belong to."""

    id: StoredFormat
    formula: Formula[Any, Any]
    scales: str
    arguments: tuple[tuple[str, int], ...] = ()

    def item(self, key: str, rows: int | Item, columns: int | Item, copies: int | Item) -> Item:
        """Bytes of equal matrices, scales included."""
        return self.formula.item(
            key, rows=rows, columns=columns, copies=copies, **dict(self.arguments)
        )

    def bytes(self, rows: int, columns: int, copies: int) -> int:
        """The value of ``item`` alone."""
        found: int = self.formula(rows, columns, copies, **dict(self.arguments))
        return found


STORED_FORMATS: dict[str, WeightFormat] = {
    made.id: made
    for made in (
        WeightFormat("bf16", weight_bytes_bf16, "none"),
        WeightFormat("fp8", weight_bytes_fp8, "block of 128 x 128"),
        WeightFormat("mxfp4", weight_bytes_mxfp4, "group of 32"),
        WeightFormat("nvfp4", weight_bytes_nvfp4, "group of 16, and tensor"),
        WeightFormat("int4", weight_bytes_int4, "group of 128", (("group", 128),)),
        WeightFormat("int4_g32", weight_bytes_int4, "group of 32", (("group", 32),)),
    )
}

CHECKPOINT = "checkpoint"
"""The format id that means: as the published checkpoint stores each part."""

WEIGHT_FORMATS: tuple[str, ...] = (CHECKPOINT, *STORED_FORMATS)
"""What a user may choose."""

QUANTISED_ROLES = ("attention", "state", "indexer", "dense", "shared", "experts", "latent")
"""The matrices that a single chosen format is applied to.

Embeddings, the output head, routers and norms stay in bf16, as in the
published checkpoints of all families here.
"""
