"""Kinds of questions: each makes one from a random number generator, with its worked answer.

Every answer is an Item of the ordinary formulas, or the truth of a claim that was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, get_args

from calc.capacity import Component
from calc.items import Item
from calc.layers import Growth
from calc.layout import legal_dcp, legal_tp
from calc.learn.claims import CLAIMS, Verdict, name
from calc.learn.mental import Path, Term, mental
from calc.learn.story import striped_bytes
from calc.report import Report, evaluate
from calc.reuse import Rule, aligned_length, usable, window_chunks
from calc.reuse_groups import reuse_groups
from calc.scenario import Scenario
from calc.timing.report import times
from calc.timing.step import Group
from calc.whatif import times_fewer

MODELS = (
    "deepseek-v3",
    "deepseek-v2-lite",
    "kimi-k3",
    "kimi-linear-48b",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "mistral-7b",
    "qwen3-235b-a22b",
    "qwen3-next-80b-a3b",
    "gpt-oss-120b",
    "gemma-3-27b",
    "jamba-1.5-mini",
)
CONTEXTS = (8192, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576)
BATCHES = (1, 8, 16, 32, 64, 128)
GPUS = ("h100", "h200", "b200")
BUDGETS = (20.0, 40.0, 60.0, 80.0, 100.0)
ROUNDED = 0.1
"""What a rounded estimate may be off."""


@dataclass(frozen=True, slots=True)
class Question:
    """``kind`` names its text, ``values`` fill it in. A number has ``exact`` and ``unit``, a
    choice ``options`` and the place of the right one."""

    kind: str
    topic: str
    scenario: Scenario | None
    values: Mapping[str, Any]
    unit: str = ""
    tolerance: float = 0.0
    exact: Item | None = None
    path: Path | None = None
    options: tuple[str, ...] = ()
    right: int = 0
    claim: str = ""
    rows: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def value(self) -> float:
        assert self.exact is not None
        return float(self.exact.value)

    def accepts(self, answer: float) -> bool:
        """Whether a number is right, as exactly as the question asks."""
        return abs(answer - self.value) <= self.tolerance * abs(self.value) + 1e-9


def _scenario(random: Random, models: Sequence[str] = MODELS, striped: bool = False) -> Scenario:
    """A model on a layout that is legal for it."""
    for _ in range(100):
        base = Scenario(random.choice(models), context=random.choice(CONTEXTS))
        model = base.model_spec
        tp = random.choice([size for size in legal_tp(model) if size in (1, 2, 4, 8, 16)])
        stripes = [n for n in legal_dcp(model, tp, base.engine_rules) if n <= tp]
        if striped and max(stripes) == 1:
            continue
        dcp = random.choice([n for n in stripes if n > 1] if striped else [1, *stripes])
        return replace(base, tp=tp, dcp=dcp)
    raise AssertionError("no layout was found")  # some model of each list can be striped


def _components(report: Report) -> tuple[Component, ...]:
    return report.cache.stage.components


def _row_terms(part: Component, tokens: int) -> Term:
    """A component over some tokens, as one would multiply it out."""
    store = part.store
    each = float(store.bytes.value)
    if part.growth is Growth.STATE:
        return Term((part.layers, each))
    if part.growth is not Growth.GROWING and store.limit:
        tokens = min(tokens, store.limit)
    divisors = tuple(float(n) for n in (store.dcp, store.tokens_per_row) if n > 1)
    counted = (part.layers, each) if tokens == 1 else (part.layers, each, tokens)
    return Term(counted, divisors)


def _estimate(
    kind: str,
    topic: str,
    made: Scenario,
    exact: Item,
    terms: Sequence[Term],
    unit: str,
    **given: Any,
) -> Question:
    """A question for a number that may be rounded to two digits."""
    path = mental(terms, float(exact.value), ROUNDED)
    return Question(kind, topic, made, _layout(made) | given, unit, ROUNDED, exact, path)


def token_bytes(random: Random) -> Question:
    """Growing bytes of a token on a rank."""
    kv_dtype = random.choice(("bf16", "bf16", "fp8"))
    made = replace(_scenario(random), kv_dtype=kv_dtype)
    report = evaluate(made)
    exact = report.cache.stage.growing_per_token
    if not exact.value:  # windows and states only: nothing grows
        return request_bytes(random)
    parts = [part for part in _components(report) if part.growth is Growth.GROWING]
    terms = [_row_terms(part, 1) for part in parts]
    return _estimate("token_bytes", "kv", made, exact, terms, "B")


def request_bytes(random: Random) -> Question:
    """Bytes of a request on a rank."""
    made = _scenario(random)
    report = evaluate(made)
    terms = [_row_terms(part, made.context) for part in _components(report)]
    return _estimate("request_bytes", "kv", made, report.cache.stage.per_request, terms, "B")


def fixed_against_growing(random: Random) -> Question:
    """The context from which on the growing part outweighs the states."""
    made = _scenario(random, ("kimi-k3", "kimi-linear-48b", "qwen3-next-80b-a3b", "jamba-1.5-mini"))
    stage = evaluate(made).cache.stage
    exact = times_fewer.item(
        "quiz.crossover",
        base_elements=stage.state_per_request,
        elements=stage.growing_per_token,
    )
    state, growing = stage.state_per_request.value, float(stage.growing_per_token.value)
    return _estimate(
        "crossover",
        "crossover",
        made,
        exact,
        [Term((float(state),), (growing,))],
        "tokens",
        state=int(state),
        growing=growing,
    )


def stripe_saves(random: Random) -> Question:
    """What a token keeps on a rank once DCP stripes it."""
    made = _scenario(random, ("deepseek-v3", "kimi-k3", "deepseek-v2-lite"), striped=True)
    alone = evaluate(replace(made, dcp=1)).cache.stage.growing_per_token
    exact = striped_bytes.item("quiz.striped", row_bytes=alone, dcp=made.dcp)
    terms = [Term((float(alone.value),), (made.dcp,))]
    return _estimate("stripe_saves", "kv", made, exact, terms, "B", alone=int(alone.value))


def max_requests(random: Random) -> Question:
    """The largest batch that a budget holds."""
    made = replace(_scenario(random), kv_cache_memory_gib=random.choice(BUDGETS))
    report = evaluate(made)
    exact = report.fit.max_requests
    if exact.value < 10:  # a rounded estimate needs something to round
        made = replace(made, context=8192, kv_cache_memory_gib=100.0)
        report = evaluate(made)
        exact = report.fit.max_requests
    held = float(report.cache.stage.per_request.value)
    terms = [Term((float(made.budget_bytes),), (held,))]
    given = {"budget": made.kv_cache_memory_gib, "request": int(held)}
    return _estimate("max_requests", "fit", made, exact, terms, "requests", **given)


def which_fits(random: Random) -> Question:
    """One of four layouts that holds a batch."""
    for _ in range(60):
        model = random.choice(("llama-3.1-70b", "deepseek-v3", "kimi-k3", "qwen3-235b-a22b"))
        base = Scenario(
            model,
            gpu=random.choice(GPUS),
            context=random.choice(CONTEXTS[2:6]),
            batch=random.choice(BATCHES[1:]),
        )
        tps = [size for size in legal_tp(base.model_spec) if size in (2, 4, 8, 16)]
        layouts = []
        for tp in tps:
            stripes = legal_dcp(base.model_spec, tp, base.engine_rules)
            layouts += [replace(base, tp=tp, dcp=dcp) for dcp in {min(stripes), max(stripes)}]
        fits = [_fits(made) for made in layouts]
        if any(fits) and fits.count(False) >= 2:
            good = random.choice([made for made, fit in zip(layouts, fits, strict=True) if fit])
            bad = [made for made, fit in zip(layouts, fits, strict=True) if not fit]
            chosen = sorted([good, *random.sample(bad, min(3, len(bad)))], key=_size)
            rows = tuple({"tp": made.tp, "dcp": made.dcp} for made in chosen)
            values = {
                "model": base.model_spec.name,
                "gpu": base.gpu.upper(),
                "batch": base.batch,
                "context": base.context,
            }
            return Question(
                "which_fits",
                "fit",
                good,
                values,
                options=tuple(f"TP {made.tp} · DCP {made.dcp}" for made in chosen),
                right=chosen.index(good),
                rows=rows,
            )
    raise AssertionError("no choice of layouts was found")


def _fits(made: Scenario) -> bool:
    """By the bytes alone and as the engine admits it: a question has one answer."""
    report = evaluate(made)
    view = report.engine.view
    return report.fit.fits and view is not None and int(view.max_requests.value) >= made.batch


def _size(made: Scenario) -> tuple[int, int]:
    return made.tp, made.dcp


def gather_payload(random: Random) -> Question:
    """The tensor of gathered queries in a latent layer."""
    made = replace(
        _scenario(random, ("deepseek-v3", "kimi-k3"), striped=True),
        batch=random.choice(BATCHES),
        query_replication="off",
    )
    stage = next(one for one in evaluate(made).step.stages if one.name == "gather_query")
    assert stage.payload is not None
    given = {"batch": made.batch, "heads": stage.shape[1], "width": stage.shape[2]}
    terms = [Term((*stage.shape, 2.0))]
    return _estimate("gather_payload", "traffic", made, stage.payload, terms, "B", **given)


def reduce_sent(random: Random) -> Question:
    """What a rank sends in the all-reduce behind the output projection."""
    made = replace(_scenario(random), batch=random.choice(BATCHES))
    if made.tp == 1:
        made = replace(made, tp=2, dcp=1)
    stage = next(one for one in evaluate(made).step.stages if one.name == "o_proj")
    assert stage.sent is not None
    terms = [Term((2, made.tp - 1, *stage.shape, 2.0), (made.tp,))]
    given = {"batch": made.batch, "hidden": stage.shape[1]}
    return _estimate("reduce_sent", "traffic", made, stage.sent, terms, "B", **given)


def usable_prefix(random: Random) -> Question:
    """How much of a prefix vLLM can skip with nothing missing."""
    made = _scenario(random)
    groups = reuse_groups(made, Rule.VLLM)
    limit = max(group.limit for group in groups)
    prefix = random.randrange(max(20_000, 2 * limit), 130_000)
    hit = usable(groups, prefix, {}, Rule.VLLM, 1)
    exact = aligned_length.item("quiz.usable", tokens=prefix, alignment=hit.align)
    assert exact.value == hit.tokens
    values = _layout(made) | {"prefix": prefix, "alignment": hit.align}
    return Question("usable_prefix", "hits", made, values, "tokens", 0.0, exact)


def window_needs(random: Random) -> Question:
    """Chunks of a window that a hit needs."""
    model = random.choice(("gemma-3-27b", "gpt-oss-120b", "mistral-7b", "gemma-2-9b"))
    made = replace(Scenario(model), block_size=random.choice((16, 32, 64)))
    rule = random.choice((Rule.VLLM, Rule.LMCACHE))
    groups = reuse_groups(made, rule)
    group = next((one for one in groups if one.growth is Growth.WINDOW), None)
    if group is None:  # a window layer that is looked up as full attention
        return usable_prefix(random)
    exact = window_chunks(group, rule)
    values = _layout(made) | {
        "window": group.limit,
        "chunk": group.chunk,
        "engine": {"vllm": "vLLM", "lmcache": "LMCache"}[rule.value],
    }
    return Question("window_chunks", "hits", made, values, "chunks", 0.0, exact)


def step_part(random: Random) -> Question:
    """What takes longest in an estimated decode step."""
    made = replace(
        _scenario(random, ("deepseek-v3", "kimi-k3", "llama-3.1-70b")),
        gpu=random.choice(GPUS),
        batch=random.choice(BATCHES),
    )
    step = times(evaluate(made)).decode
    names = get_args(Group)
    sizes = [float(step.group(part)) for part in names]
    values = _layout(made) | {"batch": made.batch, "gpu": made.gpu.upper()}
    right = max(range(len(sizes)), key=sizes.__getitem__)
    rows = tuple({"group": part, "us": size} for part, size in zip(names, sizes, strict=True))
    return Question("step_part", "traffic", made, values, options=names, right=right, rows=rows)


STATEMENTS = tuple(claim for claim in CLAIMS if claim.verdict in (Verdict.RIGHT, Verdict.WRONG))
"""Claims that are plainly right or wrong."""
FAILINGS = (
    "popular_gqa_formula",
    "popular_tp_cuts_gqa",
    "popular_early_chunks_needed",
    "popular_stitched",
    "popular_experts_grow",
)
"""The common failings of an interview: they come up more often."""


def statement(random: Random) -> Question:
    """True or false?"""
    usual = [claim for claim in STATEMENTS if name(claim) in FAILINGS]
    wanted = random.random() < 0.5  # as many true ones as false ones
    pool = [claim for claim in STATEMENTS if (claim.verdict is Verdict.RIGHT) is wanted]
    chosen = random.choice(usual if not wanted and random.random() < 0.5 else pool)
    return Question(
        "statement",
        "statements",
        None,
        {},
        options=("true", "false"),
        right=0 if chosen.verdict is Verdict.RIGHT else 1,
        claim=name(chosen),
    )


def _layout(made: Scenario) -> dict[str, Any]:
    return {
        "model": made.model_spec.name,
        "tp": made.tp,
        "dcp": made.dcp,
        "context": made.context,
        "kv_dtype": made.kv_dtype,
    }


KINDS: dict[str, tuple[Callable[[Random], Question], ...]] = {
    "kv": (token_bytes, request_bytes, stripe_saves),
    "fit": (max_requests, which_fits),
    "crossover": (fixed_against_growing,),
    "traffic": (gather_payload, reduce_sent, step_part),
    "hits": (usable_prefix, window_needs),
    "statements": (statement,),
}
"""By topic."""
