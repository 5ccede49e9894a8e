"""Latent attention in three steps: compression, absorption, striping; bytes and FLOPs of each.

Each step is one layer's cost of one cached token on one rank, decoding. A multiplication and an
addition are two FLOPs. Source: DeepSeek-V2 (arXiv 2405.04434, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.formats import dense_row_bytes, latent_row_bytes
from calc.items import Item, formula
from calc.layers import LatentAttention
from calc.layout import Layout
from calc.units import Number, exact_div
from calc.whatif import grouped_elements, latent_elements, times_fewer

ELEMENT_BYTES = 2
"""The story is told in bf16; formats change the bytes, not the steps."""


@formula(unit="heads", source="tensor parallelism splits the query heads")
def local_heads(heads: int, tp: int) -> int:
    """Query heads of one rank."""
    return exact_div(heads, tp)


@formula(unit="FLOP", source="scores with K, then the weighted sum of V")
def attend_flop(heads_per_rank: int, k_dim: int, v_dim: int) -> int:
    """Attention over one cached token with K and V written out."""
    return 2 * heads_per_rank * (k_dim + v_dim)


@formula(unit="FLOP", source="products with W_UK and W_UV")
def up_project_flop(heads_per_rank: int, kv_lora_rank: int, k_dim: int, v_dim: int) -> int:
    """Writing K (its part without rotation) and V of one token out of its latent."""
    return 2 * heads_per_rank * kv_lora_rank * (k_dim + v_dim)


@formula(unit="FLOP", source="every step writes K and V of the whole context out again")
def compressed_flop(attended: Number, written_out: Number) -> Number:
    """One cached token, its K and V written out anew in each step."""
    return attended + written_out


@formula(unit="FLOP", source="all heads share one row: scores with all of it, sums of its latent")
def absorbed_flop(heads_per_rank: int, kv_lora_rank: int, rope_dim: int) -> int:
    """Attention over one cached row by absorbed queries."""
    return 2 * heads_per_rank * (2 * kv_lora_rank + rope_dim)


@formula(unit="FLOP", source="each rank sees all heads of its group and its share of the tokens")
def striped_flop(row_flop: Number, dcp: int) -> Number:
    """One cached token on average over the ranks: dcp times the heads, every dcp-th token."""
    return row_flop * dcp / dcp


@formula(unit="B/token", source="every dcp-th row is on this rank")
def striped_bytes(row_bytes: int, dcp: int) -> Number:
    """One cached token on one rank on average."""
    return row_bytes / dcp


@dataclass(frozen=True, slots=True)
class Told:
    """One step: what a rank keeps of a token and layer, computes for it, and once a new token."""

    name: str
    kept: Item
    each: Item
    once: Item | None


@dataclass(frozen=True, slots=True)
class Story:
    """From K and V of all heads to a striped latent; ``ratio``: elements against elements."""

    told: tuple[Told, ...]
    ratio: Item


def story(mixer: LatentAttention, layout: Layout) -> Story:
    """The three steps for a layer, on the ranks of a layout."""
    k_dim = mixer.nope_dim + mixer.rope_dim
    heads = local_heads.item("story.heads", heads=mixer.heads, tp=layout.tp)
    written = dense_row_bytes.item(
        "story.written",
        kv_heads_per_rank=heads,
        k_dim=k_dim,
        v_dim=mixer.v_dim,
        element_bytes=ELEMENT_BYTES,
    )
    attended = attend_flop.item(
        "story.attended", heads_per_rank=heads, k_dim=k_dim, v_dim=mixer.v_dim
    )
    up = up_project_flop.item(
        "story.up",
        heads_per_rank=heads,
        kv_lora_rank=mixer.kv_lora_rank,
        k_dim=mixer.nope_dim,
        v_dim=mixer.v_dim,
    )
    row = latent_row_bytes.item(
        "story.row",
        kv_lora_rank=mixer.kv_lora_rank,
        rope_dim=mixer.rope_dim,
        element_bytes=ELEMENT_BYTES,
    )
    absorbed = absorbed_flop.item(
        "story.absorbed",
        heads_per_rank=heads,
        kv_lora_rank=mixer.kv_lora_rank,
        rope_dim=mixer.rope_dim,
    )
    once = up_project_flop.item(
        "story.once",
        heads_per_rank=heads,
        kv_lora_rank=mixer.kv_lora_rank,
        k_dim=mixer.nope_dim,
        v_dim=mixer.v_dim,
    )
    told = (
        Told("written", written, attended, None),
        Told(
            "compressed",
            row,
            compressed_flop.item("story.compressed", attended=attended, written_out=up),
            None,
        ),
        Told("absorbed", row, absorbed, once),
        Told(
            "striped",
            striped_bytes.item("story.striped", row_bytes=row, dcp=layout.dcp),
            striped_flop.item("story.striped_flop", row_flop=absorbed, dcp=layout.dcp),
            once,
        ),
    )
    ratio = times_fewer.item(
        "story.ratio",
        base_elements=grouped_elements.item(
            "story.mha", kv_heads=mixer.heads, k_dim=k_dim, v_dim=mixer.v_dim
        ),
        elements=latent_elements.item(
            "story.latent", kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim
        ),
    )
    return Story(told, ratio)
