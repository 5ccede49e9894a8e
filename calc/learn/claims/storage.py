"""Claims of the article on KV storage of complex models."""

from __future__ import annotations

from calc.items import Item
from calc.layers import MoeFfn
from calc.learn.claims.base import (
    Claim,
    Source,
    Verdict,
    arithmetic,
    difference_of,
    percent_of,
    product_of,
    ratio_of,
)
from calc.learn.claims.models import (
    compression,
    dense,
    index_row,
    report,
    row,
    row_fp8_ds,
    row_token_scaled,
)
from calc.model import ModelSpec
from calc.presets import CUSTOM, load_preset
from calc.report import evaluate
from calc.reuse import window_chunks_vllm, window_chunks_whole
from calc.scenario import Scenario
from calc.units import KIB, MIB

V3 = "deepseek-v3"
LAYERS, GLOBAL, WINDOW_LAYERS, WINDOW, PREFIX = 48, 8, 40, 1024, 32_768
"""Its example of a sliding-window hybrid."""
BATCHED = 8192
"""vLLM's max_num_batched_tokens: what a window layer may need at admission on top."""


def _claim(id: str, claimed: float, compute: object, within: float = 0.0005) -> Claim:
    return arithmetic(id, Source.STORAGE, claimed, compute, within)  # type: ignore[arg-type]


def _judged(id: str, verdict: Verdict) -> Claim:
    return Claim(id, Source.STORAGE, judged=verdict)


def _token() -> Item:
    return report(V3).cache.stage.growing_per_token


def _layer_tokens(window_tokens: int) -> Item:
    """Layers times tokens: whole prefix in global layers, ``window_tokens`` in the others."""
    return difference_of.item(
        "swa",
        first=product_of.item("all", first=LAYERS, second=PREFIX),
        second=product_of.item("saved", first=WINDOW_LAYERS, second=PREFIX - window_tokens),
    )


def _share(window_tokens: int) -> Item:
    return percent_of.item(
        "share",
        first=_layer_tokens(window_tokens),
        second=product_of.item("all", first=LAYERS, second=PREFIX),
    )


def experts_ratio() -> Item:
    """DeepSeek-V3's cache of a token with half its experts against all of them."""
    spec = load_preset(V3)
    halved = [
        layer.model_copy(
            update={
                "ffns": tuple(
                    ffn.model_copy(update={"experts": ffn.experts // 2})
                    if isinstance(ffn, MoeFfn)
                    else ffn
                    for ffn in layer.ffns
                )
            }
        )
        for layer in spec.layers
    ]
    data = spec.model_dump() | {"id": CUSTOM, "layers": [layer.model_dump() for layer in halved]}
    fewer = evaluate(Scenario(CUSTOM, spec=ModelSpec.model_validate(_tuples(data))))
    return ratio_of.item("experts", first=fewer.cache.stage.growing_per_token, second=_token())


def _tuples(node: object) -> object:
    if isinstance(node, dict):
        return {key: _tuples(value) for key, value in node.items()}
    return tuple(_tuples(value) for value in node) if isinstance(node, list | tuple) else node


CLAIMS = (
    _claim("row", 1152, lambda: {"always": row(V3)}),
    _claim("token", 70_272, lambda: {"always": _token()}),
    _claim(
        "token_kib",
        68.6,
        lambda: {"always": ratio_of.item("kib", first=_token(), second=KIB)},
        0.001,
    ),
    _claim(
        "prefix_mib",
        549,
        lambda: {
            "always": ratio_of.item(
                "mib",
                first=product_of.item("prefix", first=_token(), second=8192),
                second=MIB,
            )
        },
        0.001,
    ),
    _claim("mha_row", 81_920, lambda: {"always": dense(128, 192, 128)}),
    _claim(
        "times_71",
        71,
        lambda: {
            "k_192": compression(128, 192, 128, 512, 64),
            "k_128": compression(128, 128, 128, 512, 64),
        },
        0.007,
    ),
    _claim(
        "tp_copies",
        1152,
        lambda: {
            "dcp_1": ratio_of.item(
                "per_layer", first=report(V3, tp=8).cache.stage.growing_per_token, second=61
            ),
            "dcp_8": ratio_of.item(
                "per_layer", first=report(V3, tp=8, dcp=8).cache.stage.growing_per_token, second=61
            ),
        },
    ),
    _claim(
        "swa_all",
        1_572_864,
        lambda: {"always": product_of.item("all", first=LAYERS, second=PREFIX)},
    ),
    _claim("swa_units", 303_104, lambda: {"always": _layer_tokens(WINDOW)}),
    _claim(
        "swa_share",
        19,
        lambda: {
            "ideal": _share(WINDOW),
            "decode": _share(WINDOW + 16),
            "admission": _share(WINDOW - 1 + BATCHED),
            "no_hybrid": _share(PREFIX),
        },
        0.02,
    ),
    _claim(
        "window_chunks",
        64,
        lambda: {
            "vllm": window_chunks_vllm.item("vllm", window=WINDOW, block_size=16),
            "whole": window_chunks_whole.item("whole", window=WINDOW, block_size=16),
            "lmcache": window_chunks_whole.item("lmcache", window=WINDOW, block_size=256),
        },
    ),
    _judged("full_prefix", Verdict.RIGHT),
    _judged("early_window", Verdict.RIGHT),
    _judged("lmcache_window_field", Verdict.CONDITIONAL),
    _judged("snapshot", Verdict.RIGHT),
    _judged("state_split", Verdict.CONDITIONAL),
    _claim("experts", 1, lambda: {"always": experts_ratio()}),
    _judged("attention_dp", Verdict.RIGHT),
    _claim(
        "fp8_half",
        50,
        lambda: {
            "per_tensor": percent_of.item("fp8", first=row(V3, 1), second=row(V3)),
            "token_head": percent_of.item("fp8", first=row_token_scaled(V3), second=row(V3)),
            "ds_mla": percent_of.item("fp8", first=row_fp8_ds(V3), second=row(V3)),
            "ds_mla_index": percent_of.item(
                "fp8",
                first=difference_of.item(
                    "sum",
                    first=row_fp8_ds(V3),
                    second=product_of.item("minus", first=-1, second=index_row()),
                ),
                second=row(V3),
            ),
        },
        0.01,
    ),
    _judged("formats_apart", Verdict.RIGHT),
    _judged("media_hash", Verdict.RIGHT),
    _judged("lora_key", Verdict.CONDITIONAL),
    _judged("draft_space", Verdict.CONDITIONAL),
    _judged("rope_key", Verdict.CONDITIONAL),
    _judged("layout_key", Verdict.CONDITIONAL),
)
