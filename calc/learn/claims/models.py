"""Figures of models that several claims are about, as Items of the ordinary formulas."""

from __future__ import annotations

import functools

from calc.formats import (
    dense_row_bytes,
    indexer_row_bytes,
    latent_row_bytes,
    latent_row_bytes_fp8_ds,
    latent_row_bytes_token_scaled,
)
from calc.items import Item
from calc.layers import LatentAttention
from calc.presets import load_preset
from calc.report import Report, evaluate
from calc.scenario import Scenario
from calc.whatif import elements_bytes, grouped_elements, latent_elements, times_fewer

BF16 = 2


@functools.cache
def report(model: str, **fields: str | int | float) -> Report:
    """A scenario, computed once."""
    return evaluate(Scenario(model, **fields))  # type: ignore[arg-type]


def latent(model: str) -> LatentAttention:
    """The latent layer of a model."""
    return load_preset(model).latent_mixers[0]


def row(model: str, element_bytes: int = BF16) -> Item:
    """A latent layer's row of one token."""
    made = latent(model)
    return latent_row_bytes.item(
        f"{model}.row",
        kv_lora_rank=made.kv_lora_rank,
        rope_dim=made.rope_dim,
        element_bytes=element_bytes,
    )


def row_fp8_ds(model: str) -> Item:
    made = latent(model)
    return latent_row_bytes_fp8_ds.item(
        f"{model}.fp8_ds", kv_lora_rank=made.kv_lora_rank, rope_dim=made.rope_dim
    )


def row_token_scaled(model: str) -> Item:
    made = latent(model)
    return latent_row_bytes_token_scaled.item(
        f"{model}.scaled", kv_lora_rank=made.kv_lora_rank, rope_dim=made.rope_dim
    )


def index_row(width: int = 128) -> Item:
    """The indexer's key of a sparse layer."""
    return indexer_row_bytes.item("index.row", index_dim=width)


def dense(heads: int, k_dim: int, v_dim: int, element_bytes: int = BF16) -> Item:
    """K and V of some heads, one token and layer."""
    return dense_row_bytes.item(
        "dense.row",
        kv_heads_per_rank=heads,
        k_dim=k_dim,
        v_dim=v_dim,
        element_bytes=element_bytes,
    )


def compression(heads: int, k_dim: int, v_dim: int, latent_dim: int, rope_dim: int) -> Item:
    """Elements of K and V of all heads against those of a latent row."""
    return times_fewer.item(
        "compression",
        base_elements=grouped_elements.item("mha", kv_heads=heads, k_dim=k_dim, v_dim=v_dim),
        elements=latent_elements.item("latent", kv_lora_rank=latent_dim, rope_dim=rope_dim),
    )


def elements(count: int, element_bytes: int = BF16) -> Item:
    return elements_bytes.item("elements", elements=count, element_bytes=element_bytes)
