"""Shapes that are measured to learn this card's rates: other ones than the presets have."""

from __future__ import annotations

from gpu.shapes import AttentionShape

BACKENDS = ("flash_mla", "triton", "sdpa_cudnn")


def _latent(batch: int, tokens: int, heads: int) -> AttentionShape:
    scale = 192**-0.5
    return AttentionShape("mla", 1, batch, tokens, heads, 1, 576, 512, True, scale, tokens)


def _grouped(batch: int, tokens: int, heads: int, kv_heads: int, width: int) -> AttentionShape:
    scale = width**-0.5
    return AttentionShape(
        "attention", 1, batch, tokens, heads, kv_heads, width, width, False, scale, tokens
    )


SHAPES: tuple[AttentionShape, ...] = (
    _latent(32, 49_152, 8),
    _latent(48, 8_192, 8),
    _latent(24, 4_096, 8),
    _latent(32, 49_152, 64),
    _latent(48, 6_144, 64),
    _latent(32, 49_152, 128),
    _latent(48, 6_144, 128),
    _latent(24, 2_048, 128),
    _latent(6, 6_144, 64),
    _latent(2, 512, 32),
    _latent(2, 256, 128),
    _grouped(48, 49_152, 4, 1, 128),
    _grouped(48, 6_144, 4, 1, 128),
    _grouped(24, 12_288, 16, 4, 128),
    _grouped(48, 2_048, 16, 2, 64),
    _grouped(32, 256, 4, 1, 64),
    _grouped(48, 64, 4, 1, 64),
    _grouped(16, 192, 8, 2, 128),
)
