"""Small models for tests, and the short way from one to its numbers."""

from __future__ import annotations

from typing import Any

from calc.layers import AnyFfn, AnyMixer, Attention, Indexer, LatentAttention
from calc.model import Layer, ModelSpec
from calc.presets import CUSTOM
from calc.report import Report, evaluate
from calc.scenario import Scenario


def model(*layers: Layer, hidden_size: int = 64, vocab_size: int = 100) -> ModelSpec:
    """A custom model of these layers."""
    return ModelSpec(
        id=CUSTOM, name="Custom", hidden_size=hidden_size, vocab_size=vocab_size, layers=layers
    )


def layers(count: int, *mixers: AnyMixer, ffns: tuple[AnyFfn, ...] = ()) -> Layer:
    """``count`` equal layers with these mixers side by side."""
    return Layer(count=count, mixers=mixers, ffns=ffns)


def gqa(heads: int, kv_heads: int, width: int = 128) -> Attention:
    """Attention with equal K and V widths."""
    return Attention(heads=heads, kv_heads=kv_heads, k_dim=width, v_dim=width)


def mla(heads: int = 128, **changed: Any) -> LatentAttention:
    """Latent attention of DeepSeek-V3's widths."""
    widths = {"kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128, "v_dim": 128}
    return LatentAttention(heads=heads, **(widths | changed))


def indexer() -> Indexer:
    """The indexer of DeepSeek-V3.2."""
    return Indexer(heads=64, index_dim=128, top_k=2048)


def report(of: ModelSpec | str, **fields: Any) -> Report:
    """The report of a preset or a custom model."""
    if isinstance(of, str):
        return evaluate(Scenario(of, **fields))
    return evaluate(Scenario(CUSTOM, spec=of, **fields))


def sent_per_step(found: Report, kind: str, *names: str) -> int:
    """Bytes that one rank sends in a step, over the stages of a kind with these names."""
    rows = [row for row in found.step.stages if row.kind == kind and row.name in names]
    return sum(row.per_step.value for row in rows if row.per_step is not None)
