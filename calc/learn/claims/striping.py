"""Claims of the article on DCP for MLA in SGLang, with Kimi K3 on eight ranks and 64 requests."""

from __future__ import annotations

from calc.items import Item, total
from calc.learn.claims.base import (
    Claim,
    Source,
    Verdict,
    arithmetic,
    difference_of,
    product_of,
    ratio_of,
)
from calc.learn.claims.models import compression, elements, report, row
from calc.report import Report
from calc.traffic import Stage

K3 = "kimi-k3"
LAYERS, MILLION, BINARY_MILLION = 24, 10**6, 2**20
MB, GB = 10**6, 10**9
KV_HEADS_16 = 16


def _claim(id: str, claimed: float, compute: object, within: float = 0.008) -> Claim:
    return arithmetic(id, Source.STRIPING, claimed, compute, within)  # type: ignore[arg-type]


def _judged(id: str, verdict: Verdict) -> Claim:
    return Claim(id, Source.STRIPING, judged=verdict)


def step(engine: str, backend: str, replication: str = "off", **fields: str | int) -> Report:
    """Its scenario: TP 8, DCP 8, 64 requests."""
    return report(
        K3,
        tp=8,
        dcp=8,
        batch=64,
        engine=engine,
        dcp_backend=backend,
        query_replication=replication,
        **fields,
    )


def _stage(made: Report, name: str) -> Stage:
    return next(one for one in made.step.stages if one.kind == "mla" and one.name == name)


def _moved(made: Report, name: str) -> Item:
    sent = _stage(made, name).sent
    assert sent is not None
    return _in(MB, sent)


def _payload(made: Report, name: str) -> Item:
    payload = _stage(made, name).payload
    assert payload is not None
    return _in(MB, payload)


def _silent(made: Report) -> Item:
    """What gathering queries sends where every rank computes them: the sum over no stage."""
    parts = [one.sent for one in made.step.stages if one.name == "gather_query" and one.sent]
    return _in(MB, total("striping.gathered", "B", parts))


def latent_sent(made: Report) -> Item:
    """What the latent layers send in a step on one rank, bytes."""
    parts = [one.per_step for one in made.step.stages if one.kind == "mla" and one.per_step]
    return total("striping.latent", "B", parts)


def _in(unit: int, item: Item) -> Item:
    return ratio_of.item("in_unit", first=item, second=unit)


def _tokens(count: int, stripes: int = 1) -> Item:
    """Latent rows of a context in all layers, GB on one of the stripes' ranks."""
    each = product_of.item("layers", first=row(K3), second=LAYERS)
    every = product_of.item("tokens", first=each, second=count)
    return _in(GB * stripes, every)


def _all_ranks(made: Report) -> Item:
    return _in(GB, product_of.item("ranks", first=latent_sent(made), second=8))


def _width(backend: str) -> Item:
    """Elements of a head's row in the all-to-all."""
    payload = _stage(step("sglang", backend), "exchange_partials").payload
    assert payload is not None
    return ratio_of.item("width", first=payload, second=64 * 96 * 2)


CLAIMS = (
    _claim(
        "times_43",
        43,
        lambda: {
            "k_nope_twice": compression(96, 128, 128, 512, 64),
            "k_192": compression(96, 192, 128, 512, 64),
        },
        0.01,
    ),
    _claim(
        "times_14",
        14,
        lambda: {
            "k_nope_twice": compression(32, 128, 128, 512, 64),
            "k_192": compression(32, 192, 128, 512, 64),
        },
        0.03,
    ),
    _claim("row_kb", 1.125, lambda: {"kib": _in(1024, row(K3)), "kb": _in(1000, row(K3))}, 0.001),
    _claim(
        "million_gb",
        27.6,
        lambda: {"decimal": _tokens(MILLION), "binary": _tokens(BINARY_MILLION)},
        0.003,
    ),
    _claim(
        "stripe_gb",
        3.45,
        lambda: {"decimal": _tokens(MILLION, 8), "binary": _tokens(BINARY_MILLION, 8)},
        0.001,
    ),
    _claim(
        "saved_gb",
        24,
        lambda: {
            "decimal": difference_of.item(
                "saved", first=_tokens(MILLION), second=_tokens(MILLION, 8)
            )
        },
        0.02,
    ),
    _claim(
        "states_mb",
        0,
        lambda: {"per_request": _in(MB, product_of.item("ranks", first=_states(), second=8))},
    ),
    _claim(
        "query_width",
        576,
        lambda: {
            "up_projection": elements(
                _stage(step("sglang", "fi_a2a"), "query_up_projection").shape[-1], 1
            ),
            "absorbed": elements(_stage(step("sglang", "fi_a2a"), "query_absorption").shape[-1], 1),
        },
    ),
    _claim(
        "gather_payload", 7.1, lambda: {"off": _payload(step("sglang", "fi_a2a"), "gather_query")}
    ),
    _claim(
        "gather_sent",
        6.2,
        lambda: {
            "off": _moved(step("sglang", "fi_a2a"), "gather_query"),
            "on": _silent(step("sglang", "fi_a2a", "on")),
        },
    ),
    _claim(
        "partial_width",
        516,
        lambda: {"fi_a2a": _width("fi_a2a"), "a2a": _width("a2a")},
        0.0005,
    ),
    _claim(
        "partial_sent",
        5.5,
        lambda: {
            "fi_a2a": _moved(step("sglang", "fi_a2a"), "exchange_partials"),
            "a2a": _moved(step("sglang", "a2a"), "exchange_partials"),
        },
        0.01,
    ),
    _claim(
        "reduce_sent",
        1.6,
        lambda: {
            "ring": _moved(step("sglang", "fi_a2a"), "o_proj"),
            "nvls": _moved(step("sglang", "fi_a2a", collective_algorithm="nvls"), "o_proj"),
        },
    ),
    _claim(
        "step_mb",
        320,
        lambda: {
            "fi_a2a": _in(MB, latent_sent(step("sglang", "fi_a2a"))),
            "replicated": _in(MB, latent_sent(step("sglang", "fi_a2a", "on"))),
            "vllm": _in(MB, latent_sent(step("vllm", "ag_rs"))),
            "whole_step": _in(MB, step("sglang", "fi_a2a").step.sent_per_rank),
        },
        0.005,
    ),
    _claim(
        "all_ranks_gb",
        2.5,
        lambda: {"fi_a2a": _all_ranks(step("sglang", "fi_a2a"))},
        0.0195,
    ),
    _claim(
        "context_free",
        1,
        lambda: {
            "always": ratio_of.item(
                "ratio",
                first=latent_sent(step("sglang", "fi_a2a", context=1_000_000)),
                second=latent_sent(step("sglang", "fi_a2a", context=1000)),
            )
        },
        0.0,
    ),
    _judged("kv_silent", Verdict.CONDITIONAL),
    _judged("exact_merge", Verdict.RIGHT),
    _judged("exp2", Verdict.CONDITIONAL),
    _judged("backend", Verdict.CONDITIONAL),
    _judged("hidden_whole", Verdict.CONDITIONAL),
    _judged("mha_cannot", Verdict.WRONG),
    _judged("owner", Verdict.RIGHT),
    _judged("compute_free", Verdict.CONDITIONAL),
)


def _states() -> Item:
    return step("sglang", "fi_a2a").cache.stage.state_per_request
