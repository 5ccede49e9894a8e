"""What is often said, and what engine blogs, docstrings and pull requests say."""

from __future__ import annotations

from calc.learn.claims.base import Claim, Source, Verdict, arithmetic, ratio_of
from calc.learn.claims.models import compression, dense, report, row
from calc.learn.claims.storage import experts_ratio


def _claim(id: str, claimed: float, compute: object, within: float = 0.01) -> Claim:
    return arithmetic(id, Source.POPULAR, claimed, compute, within)  # type: ignore[arg-type]


def _judged(id: str, verdict: Verdict) -> Claim:
    return Claim(id, Source.POPULAR, judged=verdict)


def _against_tp_1(**fields: int) -> object:
    made = report("deepseek-v3", **fields).cache.stage.growing_per_token
    alone = report("deepseek-v3").cache.stage.growing_per_token
    return ratio_of.item("ratio", first=made, second=alone)


CLAIMS = (
    _claim("gqa_formula", 65_536, lambda: {"latent": row("deepseek-v3")}),
    _claim(
        "tp_cuts_mla",
        1 / 8,
        lambda: {
            "tp_8": _against_tp_1(tp=8),
            "tp_8_dcp_8": _against_tp_1(tp=8, dcp=8),
        },
    ),
    _claim(
        "tp_cuts_gqa",
        1 / 16,
        lambda: {
            "kv_heads_8": ratio_of.item(
                "ratio",
                first=report("llama-3.1-8b", tp=16).cache.stage.growing_per_token,
                second=report("llama-3.1-8b").cache.stage.growing_per_token,
            )
        },
    ),
    _claim("experts_grow", 2, lambda: {"half_experts": experts_ratio()}),
    _claim(
        "mla_below_mqa",
        0.5,
        lambda: {
            "head_128": ratio_of.item("ratio", first=row("deepseek-v3"), second=dense(1, 128, 128))
        },
    ),
    _claim(
        "or_43",
        71,
        lambda: {
            "deepseek_v3": compression(128, 192, 128, 512, 64),
            "kimi_k3": compression(96, 192, 128, 512, 64),
            "k_nope_twice": compression(96, 128, 128, 512, 64),
        },
    ),
    _claim(
        "million",
        1_000_000,
        lambda: {
            "decimal": ratio_of.item("tokens", first=10**6, second=1),
            "binary": ratio_of.item("tokens", first=2**20, second=1),
        },
        0.0,
    ),
    _judged("early_chunks_needed", Verdict.WRONG),
    _judged("stitched", Verdict.WRONG),
    _judged("dcp_needs_mla", Verdict.WRONG),
    _judged("contiguous", Verdict.WRONG),
    _judged("k_up", Verdict.WRONG),
    _judged("gathers_partials", Verdict.WRONG),
    _judged("calls_3_to_2", Verdict.CONDITIONAL),
    _judged("gathers_metadata", Verdict.WRONG),
    _judged("vllm_no_k3", Verdict.WRONG),
)
