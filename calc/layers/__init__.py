"""The layer kinds. A kind is a class here; a model is a list of layers made of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calc.layers.attention import Attention, ChunkedAttention, SlidingWindowAttention
from calc.layers.base import Growth, Mixer, Part, Sharding, Store
from calc.layers.compressed import CompressedLatentAttention
from calc.layers.ffn import AnyFfn, DenseFfn, MoeFfn
from calc.layers.latent import Indexer, LatentAttention
from calc.layers.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    ShortConvolution,
    StateMixer,
)

MIXERS: tuple[type[Mixer], ...] = (
    Attention,
    LatentAttention,
    Indexer,
    CompressedLatentAttention,
    SlidingWindowAttention,
    ChunkedAttention,
    Mamba1,
    Mamba2,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
)

AnyMixer = Annotated[
    Attention
    | LatentAttention
    | Indexer
    | CompressedLatentAttention
    | SlidingWindowAttention
    | ChunkedAttention
    | Mamba1
    | Mamba2
    | GatedDeltaNet
    | KimiDeltaAttention
    | LightningAttention
    | ShortConvolution,
    Field(discriminator="kind"),
]

__all__ = [
    "MIXERS",
    "AnyFfn",
    "AnyMixer",
    "Attention",
    "ChunkedAttention",
    "CompressedLatentAttention",
    "DenseFfn",
    "GatedDeltaNet",
    "Growth",
    "Indexer",
    "KimiDeltaAttention",
    "LatentAttention",
    "LightningAttention",
    "Mamba1",
    "Mamba2",
    "Mixer",
    "MoeFfn",
    "Part",
    "Sharding",
    "ShortConvolution",
    "SlidingWindowAttention",
    "StateMixer",
    "Store",
]
