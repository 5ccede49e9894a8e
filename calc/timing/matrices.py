"""The time of the matrix products of a step: weights streamed, or arithmetic.

Whatever takes longer, part by part; experts are read only where a token chose
them. Nothing here was measured: the shares of the data-sheet rates are
assumptions, named below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from calc.hardware import Hardware
from calc.items import Item, Status, formula
from calc.layers import MoeFfn
from calc.layout import Layout
from calc.model import ModelSpec
from calc.units import Number, greater
from calc.weight_formats import CHECKPOINT
from calc.weights import RankPart, rank_bytes

MEMORY_SHARE = 0.8
"""Of the memory's rate, what streaming weights reaches."""
COMPUTE_SHARE = 0.6
"""Of the dense arithmetic rate, what large matrix products reach."""
KERNEL_US = 2.5
"""A small kernel inside a CUDA graph."""

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5156, "int4_g32": 0.5625}
FOUR_BITS = {"mxfp4": 0.53125, "nvfp4": 0.5625}


@formula(
    unit="µs",
    source="weights read once, or arithmetic; no kernel below its launch",
    status=Status.ESTIMATE,
)
def products_us(
    read_bytes: Number, memory_rate: float, flop: Number, flop_rate: float, launch_us: float
) -> Number:
    """Matrix products of one part over all its layers."""
    return greater(greater(read_bytes / memory_rate, flop / flop_rate), launch_us)


@formula(unit="experts", source="counting: every expert equally likely", status=Status.ESTIMATE)
def touched_share(experts: int, top_k: int, tokens: Number) -> Number:
    """Share of the experts that at least one token chose."""
    return 1 - (1 - top_k / experts) ** tokens


@formula(unit="B", source="only chosen experts are read", status=Status.ESTIMATE)
def weights_read(weight_bytes: Number, share: Number) -> Number:
    """Bytes of a part's weights that a step reads."""
    return weight_bytes * share


@formula(unit="FLOP", source="two operations for a weight and a token", status=Status.ESTIMATE)
def product_flop(weight_bytes: Number, weight_element: float, tokens: Number) -> Number:
    """Arithmetic of a part on one rank."""
    return 2 * weight_bytes / weight_element * tokens


def compute_share(gpu: Hardware) -> float:
    """What large matrix products reach of the arithmetic rate: measured on this GPU, or assumed."""
    return gpu.reached.gemm or COMPUTE_SHARE


@dataclass(frozen=True, slots=True)
class Products:
    """Matrix products of a model on one rank of a GPU kind; ``pp`` stages one after another."""

    gpu: Hardware
    model: ModelSpec
    layout: Layout
    weight_format: str = CHECKPOINT
    query_replicated: bool = False

    def parts(self, tokens: int, rows_of_head: int, drafting: bool = False) -> Iterator[Item]:
        """One Item a part, for ``tokens`` of a rank and the rows that need logits."""
        whole = replace(self.layout, pp=1)
        held = rank_bytes(self.model, whole, self.weight_format, self.query_replicated, drafting)
        for part in held.parts:
            if part.role == "embedding" and not self.model.tied_embeddings:
                continue  # a few rows are looked up
            rows = rows_of_head if part.role in ("head", "embedding") else tokens
            yield self._part(part, rows)

    def _part(self, part: RankPart, tokens: int) -> Item:
        read, used = part.item, float(tokens)
        if part.role == "experts":
            ffn = self.model.moe_ffns[0]
            read, used = self._experts(part, ffn, tokens)
        weight, rate = self._rate(part.format)
        key = f"products.{part.name}"
        return products_us.item(
            f"{key}.us",
            read_bytes=read,
            memory_rate=self.gpu.memory_rate.value * MEMORY_SHARE / 1e6,
            flop=product_flop.item(
                f"{key}.flop", weight_bytes=part.item, weight_element=weight, tokens=used
            ),
            flop_rate=rate * compute_share(self.gpu) / 1e6,
            launch_us=KERNEL_US * part.layers * len(part.tensors),
        )

    def _experts(self, part: RankPart, ffn: MoeFfn, tokens: int) -> tuple[Item, float]:
        """Tokens of all replicas reach the experts; each works on top_k / experts of them."""
        everyone = tokens * self.layout.dp * self.layout.pcp
        share = touched_share.item(
            f"products.{part.name}.touched",
            experts=ffn.experts,
            top_k=ffn.top_k,
            tokens=everyone,
        )
        read = weights_read.item(f"products.{part.name}.read", weight_bytes=part.item, share=share)
        return read, everyone * ffn.top_k / ffn.experts

    def _rate(self, stored: str) -> tuple[float, float]:
        """(bytes of a weight, operations a second) for a stored format."""
        flops = self.gpu.flops
        if stored in FOUR_BITS:
            rate = flops["fp4"] if "fp4" in flops else flops["bf16"]
            return FOUR_BITS[stored], rate.value
        rate = flops["fp8"] if stored == "fp8" and "fp8" in flops else flops["bf16"]
        return WEIGHT_BYTES[stored], rate.value
