"""Claims of the article on MLA as data movement: width 4,096, 32 heads of 128, 32 layers."""

from __future__ import annotations

from calc.hardware import load_hardware
from calc.items import Item
from calc.learn.claims.base import (
    Claim,
    Source,
    Verdict,
    arithmetic,
    difference_of,
    larger_of,
    latency_saved,
    product_of,
    ratio_of,
)
from calc.learn.claims.models import (
    compression,
    dense,
    elements,
    latent,
    row,
    row_token_scaled,
)
from calc.units import GIB, KIB, MIB

V3 = "deepseek-v3"
HEADS, WIDTH, LAYERS, TOKENS = 32, 128, 32, 8192
A100_FP32 = 19.5
"""TFLOP/s of the CUDA cores: NVIDIA A100 data sheet."""
RING, SHARED_KIB = 32, 164
"""Tokens of its ring buffer; KiB of shared memory of an A100 multiprocessor (white paper)."""
A100_SM, A100_HZ, SHARED_BYTES_A_CLOCK = 108, 1.41e9, 128
"""Multiprocessors, boost clock, and shared-memory bytes a clock of each: A100 white paper."""


def _claim(id: str, claimed: float, compute: object, within: float = 0.0005) -> Claim:
    return arithmetic(id, Source.MOVEMENT, claimed, compute, within)  # type: ignore[arg-type]


def _judged(id: str, verdict: Verdict) -> Claim:
    return Claim(id, Source.MOVEMENT, judged=verdict)


def _row() -> Item:
    return dense(HEADS, WIDTH, WIDTH)


def _in(unit: int, *factors: Item | float) -> Item:
    made: Item | float = factors[0]
    for factor in factors[1:]:
        made = product_of.item("product", first=made, second=factor)
    return ratio_of.item("in_unit", first=made, second=unit)


def _bf16() -> float:
    return float(load_hardware("a100-80gb").flops["bf16"].value) / 1e12


def _least(needed: Item) -> Item:
    """The capacity, where it holds what is needed, or else what would be needed."""
    return larger_of.item("capacity", first=needed, second=SHARED_KIB)


CLAIMS = (
    _claim("mha_token", 67_108_864, lambda: {"always": _row()}),
    _claim("layer_mib", 256, lambda: {"always": _in(MIB, _row(), TOKENS)}, 0.002),
    _claim("layers_gib", 8, lambda: {"always": _in(GIB, _row(), TOKENS, LAYERS)}, 0.06),
    _claim(
        "latent_4k",
        4096,
        lambda: {"published": row(V3), "toy": elements(1024 + 64)},
        0.03,
    ),
    _claim(
        "times_16000",
        16_000,
        lambda: {
            "k_192": compression(128, 192, 128, 512, 64),
            "k_128": compression(128, 128, 128, 512, 64),
            "toy": compression(HEADS, WIDTH, WIDTH, 1024, 64),
        },
        0.03,
    ),
    _claim(
        "latent_1024",
        1024,
        lambda: {"published": elements(latent(V3).kv_lora_rank, 1)},
    ),
    _claim(
        "mqa_500",
        1 / 500,
        lambda: {"head_128": ratio_of.item("mqa", first=row(V3), second=dense(1, 128, 128))},
        0.05,
    ),
    _claim(
        "gqa_2000",
        1 / 2000,
        lambda: {"gqa_8": ratio_of.item("gqa", first=row(V3), second=dense(8, 128, 128))},
        0.05,
    ),
    _claim("rotary_32", 32, lambda: {"published": elements(latent(V3).rope_dim, 1)}),
    _judged("rotary_again", Verdict.WRONG),
    _judged("absorb_concat", Verdict.WRONG),
    _judged("no_commute", Verdict.RIGHT),
    _judged("vllm_unaware", Verdict.WRONG),
    _claim(
        "rotary_128",
        128,
        lambda: {"published": elements(latent(V3).rope_dim, 1)},
    ),
    _judged("normalise", Verdict.WRONG),
    _judged("int8_drift", Verdict.WRONG),
    _claim(
        "int8_half",
        50,
        lambda: {
            "elements": product_of.item(
                "percent",
                first=100,
                second=ratio_of.item("share", first=row(V3, 1), second=row(V3)),
            ),
            "scaled": product_of.item(
                "percent",
                first=100,
                second=ratio_of.item("share", first=row_token_scaled(V3), second=row(V3)),
            ),
        },
        0.01,
    ),
    _claim(
        "a100_flops",
        A100_FP32,
        lambda: {
            "fp32": product_of.item("fp32", first=A100_FP32, second=1),
            "bf16": product_of.item("bf16", first=_bf16(), second=1),
        },
        0.01,
    ),
    _claim(
        "shared_2tb",
        2,
        lambda: {
            "shared": product_of.item(
                "shared",
                first=A100_SM * SHARED_BYTES_A_CLOCK,
                second=A100_HZ / 1e12,
            ),
        },
        0.03,
    ),
    _claim(
        "ring_fits",
        SHARED_KIB,
        lambda: {
            "one_layer": _least(_in(KIB, elements(1024), RING)),
            "all_layers": _least(_in(KIB, elements(1024), RING, LAYERS)),
        },
        0.0,
    ),
    _judged("ring_keeps", Verdict.WRONG),
    _claim(
        "latency_32",
        32,
        lambda: {"always": latency_saved.item("saved", before=18, after=27)},
        0.015,
    ),
    _claim(
        "batch_230",
        230,
        lambda: {
            "one_after_another": product_of.item("steps", first=1.8, second=128),
            "one_step": product_of.item("step", first=1.8, second=1),
        },
        0.005,
    ),
    _claim(
        "times_14",
        14,
        lambda: {"always": ratio_of.item("times", first=4.2, second=0.3)},
    ),
    _claim(
        "saved_16",
        16,
        lambda: {"always": difference_of.item("saved", first=38, second=22)},
    ),
    _judged("context_32k", Verdict.UNVERIFIABLE),
    _judged("svd_25", Verdict.UNVERIFIABLE),
    _judged("measured_rate", Verdict.UNVERIFIABLE),
    _judged("fused_1_8", Verdict.UNVERIFIABLE),
    _judged("rope_4_2", Verdict.UNVERIFIABLE),
    _judged("ring_3_7", Verdict.UNVERIFIABLE),
    _judged("quality_table", Verdict.UNVERIFIABLE),
    _judged("norm_band", Verdict.UNVERIFIABLE),
    _judged("customer", Verdict.UNVERIFIABLE),
    _judged("training", Verdict.OUT_OF_SCOPE),
    _judged("architecture_ideas", Verdict.OUT_OF_SCOPE),
)
