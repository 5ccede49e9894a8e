"""A start-up log beside what the engine's rules predict from the same inputs.

What the log states (sizes of the layout, length, cache memory) replaces the
scenario's; what it leaves open is the scenario's. Where prediction and log
differ, the inputs that logs do not state and that versions have changed are
tried one by one and in pairs; those that make every line agree are the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from calc.capacity import CONTEXT_LIMIT, StageCache, stage_caches
from calc.engine_cache import cache_settings, conv_drafts
from calc.engines import ENGINES
from calc.engines.settings import CacheSettings
from calc.engines.sglang_pool import printed_sizes
from calc.engines.vllm_blocks import BlockView, Plan, block_view, plan, smallest_block
from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.items import Item
from calc.layers import Growth, Sharding
from calc.layout import check_layout
from calc.logs import EngineLog
from calc.scenario import Scenario
from calc.units import GIB

KV_NAMES = {
    "auto": None,
    "bfloat16": "bf16",
    "float16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
"""Engines' names of cache formats that are called otherwise here (auto: the scenario's)."""

REASONS = {
    "states_not_cached": "no second state is kept for prefix caching",
    "states_cached": "a second state is kept for prefix caching",
    "no_checkpoint_slot": "no slot is kept for a checkpoint during prefill (older versions)",
    "kernel_block_16": "the attention kernel's block is 16 tokens",
    "kernel_block_32": "the attention kernel's block is 32 tokens",
    "kernel_block_64": "the attention kernel's block is 64 tokens",
    "kernel_block_128": "the attention kernel's block is 128 tokens",
    "one_batch": "one batch is in flight, not two (older versions, or scheduling in turn)",
    "batched_2048": "2,048 tokens a batch",
    "batched_4096": "4,096 tokens a batch",
    "batched_8192": "8,192 tokens a batch",
    "batched_16384": "16,384 tokens a batch",
    "kept_whole": "windows are allocated as full attention",
    "state_bf16": "states are kept in bf16",
    "state_float32": "states are kept in float32",
    "packed": "pages of different size lie side by side in a block",
}
"""What can differ without a log saying so."""

ALTERNATIVES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("states_not_cached", {"prefix_caching": False}),
    ("states_cached", {"prefix_caching": True}),
    ("no_checkpoint_slot", {"checkpoint_slots": 0}),
    ("one_batch", {"async_scheduling": False}),
    *((f"kernel_block_{size}", {"kernel_block": size}) for size in (64, 16, 128, 32)),
    *((f"batched_{size}", {"max_num_batched_tokens": size}) for size in (2048, 4096, 8192, 16384)),
    ("kept_whole", {"hybrid_manager": False}),
    ("state_bf16", {"state_dtype": "bf16"}),
    ("state_float32", {"state_dtype": "float32"}),
    ("packed", {"packed": True}),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure, logged and predicted; ``low`` to ``high`` is what rounding leaves open.

    ``item`` is the arithmetic behind the prediction.
    """

    name: str
    unit: str
    logged: float | int
    predicted: float | int
    low: float | int
    high: float | int
    item: Item | None = None

    @property
    def agrees(self) -> bool:
        return self.low <= self.logged <= self.high


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All figures that a log and the rules both have, and what explains a difference.

    ``reasons``: keys of REASONS; empty where all agree, or where nothing tried
    explains it (``explained`` tells them apart). ``explained_by`` are the figures
    with those reasons.
    """

    log: EngineLog
    inputs: dict[str, Any]
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]
    explained_by: tuple[Finding, ...]
    missing: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return all(finding.agrees for finding in self.findings)

    @property
    def explained(self) -> bool:
        return self.agrees or bool(self.reasons)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The scenario with the log's values in place."""

    scenario: Scenario
    settings: CacheSettings
    state_dtype: str

    def place(self) -> Sharding:
        s = self.scenario
        return Sharding(
            s.tp,
            s.dcp,
            ENGINES[s.engine],
            KV_FORMATS[s.kv_dtype],
            s.conv_dtype,
            self.state_dtype,
            conv_drafts(s),
            s.speculative_tokens > 0,
        )

    def changed(self, change: dict[str, Any]) -> _Inputs:
        other = dict(change)
        state = other.pop("state_dtype", self.state_dtype)
        return _Inputs(self.scenario, replace(self.settings, **other), state)


def reconcile(log: EngineLog, scenario: Scenario) -> Reconciliation:
    """Predict every figure that a log states; ``scenario`` gives the model and what it leaves."""
    taken, settings = _taken(log, scenario)
    given = replace(scenario, **taken)
    check_layout(given.model_spec, given.layout, given.engine_rules)
    inputs = _Inputs(given, _settings(given, settings), given.state_dtype)
    findings = _findings(log, inputs)
    reasons: tuple[str, ...] = ()
    explained: tuple[Finding, ...] = ()
    if not all(finding.agrees for finding in findings):
        reasons, explained = _explain(log, inputs)
    return Reconciliation(
        log, taken | settings, findings, reasons, explained, _missing(log, findings)
    )


def _taken(log: EngineLog, scenario: Scenario) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scenario fields, and cache settings beyond them, that the log states."""
    fields: dict[str, Any] = {"engine": log.engine}
    for name in ("tp", "pp", "dp", "dcp", "speculative_tokens"):
        value = log.whole(name)
        if value is not None:
            fields[name] = value
    if fields.get("pp", scenario.pp) != scenario.pp:
        fields["pp_layers"] = "even"
    length = log.whole("concurrency_length") or log.whole("max_model_len")
    if length:
        fields["context"] = length
        fields["shared_prefix"] = 0
        fields["prefill_tokens"] = 0
    fields["kv_dtype"] = _kv_dtype(log, scenario)
    if log.engine != scenario.engine:
        fields |= {"dcp_backend": "auto", "moe_backend": "auto", "query_replication": "auto"}
    settings: dict[str, Any] = {}
    if log.whole("batched_tokens"):
        settings["max_num_batched_tokens"] = log.whole("batched_tokens")
    block = log.whole("block_size") if log.engine == "vllm" else log.whole("page_size")
    if block and log.whole("attention_block") is None:
        settings["block_size"] = block
    if log.one("prefix_caching"):
        settings["prefix_caching"] = log.one("prefix_caching") == "True"
    return fields, settings


def _kv_dtype(log: EngineLog, scenario: Scenario) -> str:
    stated = log.one("kv_dtype")
    name = KV_NAMES.get(str(stated), str(stated)) if stated else None
    return name if name in KV_FORMATS else scenario.kv_dtype


def _settings(scenario: Scenario, stated: dict[str, Any]) -> CacheSettings:
    return replace(cache_settings(scenario), **stated)


def _missing(log: EngineLog, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """What would have allowed more to be predicted."""
    wanted = {"vllm": ("available_gib", "max_model_len"), "sglang": ("allocated_tokens",)}
    return tuple(name for name in wanted[log.engine] if log.one(name) is None and not findings)


def _findings(log: EngineLog, inputs: _Inputs) -> tuple[Finding, ...]:
    return tuple(_vllm(log, inputs) if log.engine == "vllm" else _sglang(log, inputs))


def _explain(log: EngineLog, inputs: _Inputs) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The fewest changes with which every line agrees."""
    for number in (1, 2):
        for chosen in combinations(ALTERNATIVES, number):
            change: dict[str, Any] = {}
            for _, part in chosen:
                change |= part
            if len(change) < number:
                continue
            try:
                findings = _findings(log, inputs.changed(change))
            except CalcError:
                continue
            if findings and all(finding.agrees for finding in findings):
                return tuple(code for code, _ in chosen), findings
    return (), ()


# ---------------------------------------------------------------- vLLM


def _vllm(log: EngineLog, inputs: _Inputs) -> Iterator[Finding]:
    scenario = inputs.scenario
    model, place = scenario.model_spec, inputs.place()
    sizes = scenario.layout.stage_layers or model.stage_sizes(scenario.pp)
    made = plan(model, place, inputs.settings, sizes)
    stages = stage_caches(model, scenario.layout, place, inputs.settings.max_model_len)
    yield from _aligned(log, made)
    if not made.grouping.groups:
        return
    low, middle, high = (
        _view(made, stages, blocks) for blocks in _blocks(log, made, scenario.budget_bytes)
    )
    known = log.number("available_gib") is not None or log.whole("gpu_blocks") is not None
    if known or _shared_out(log, made):
        yield from _pool(log, low, middle, high)
    needed = log.number("needed_gib")
    if needed is not None:
        value = middle.allocated.value / GIB
        yield Finding(
            "needed_gib", "GiB", needed, value, value - 0.006, value + 0.006, middle.allocated
        )
    estimated = log.whole("estimated_length")
    if estimated is not None and known and middle.max_context is not None:
        # the engine searched within its own length; a block more or less is left open
        slack = max((group.virtual_block for group in middle.groups), default=1)
        yield Finding(
            "estimated_length",
            "tokens",
            estimated,
            middle.max_context,
            (low.max_context or 0) - slack,
            (high.max_context or 0) + slack,
        )


def _aligned(log: EngineLog, made: Plan) -> Iterator[Finding]:
    block = log.whole("attention_block")
    if block is not None:
        item = made.alignment.block if made.alignment else None
        value = int(item.value) if item else made.settings.block_size
        yield Finding("attention_block", "tokens", block, value, value, value, item)
    padding = log.number("padding_percent")
    if padding is not None and made.alignment:
        share = float(made.alignment.padding.value)
        yield Finding(
            "padding_percent",
            "%",
            padding,
            share,
            share - 0.006,
            share + 0.006,
            made.alignment.padding,
        )


def _blocks(log: EngineLog, made: Plan, otherwise: int) -> tuple[int, int, int]:
    """Budgets in blocks of the fullest stage: the least, the likeliest and the most."""
    exact = log.whole("gpu_blocks")
    if exact is not None:
        return exact, exact, exact
    size = max(int(item.value) for item in made.block_bytes)
    gib = log.number("available_gib")
    if gib is None:
        return _shared_out(log, made) or (otherwise // size,) * 3
    low, high = int((gib - 0.0051) * GIB), int((gib + 0.0051) * GIB)
    return max(0, low) // size, int(gib * GIB) // size, high // size


def _shared_out(log: EngineLog, made: Plan) -> tuple[int, int, int] | None:
    """The blocks that a token line of the old definition stands for, where a concurrency is
    beside it to be checked; what the groups could not share out is left open."""
    tokens, groups = log.whole("cache_tokens"), made.grouping.groups
    if tokens is None or log.size_line not in ("by_group", "either"):
        return None
    context = made.settings.max_model_len
    block = smallest_block(groups, context) * max(group.lead.store.dcp for group in groups)
    least = tokens // block * len(groups)
    return least, least, least + len(groups) - 1


def _view(made: Plan, stages: Sequence[StageCache], blocks: int) -> BlockView:
    budgets = [blocks * max(int(item.value) for item in made.block_bytes)] * len(stages)
    view = block_view(made, budgets, [stage.per_request for stage in stages], CONTEXT_LIMIT)
    assert view is not None
    return view


def _pool(log: EngineLog, low: BlockView, middle: BlockView, high: BlockView) -> Iterator[Finding]:
    def between(
        name: str, unit: str, logged: float | int, views: list[Item], slack: float = 0
    ) -> Finding:
        least, likely, most = views
        return Finding(
            name, unit, logged, likely.value, least.value - slack, most.value + slack, likely
        )

    ordered = (low, middle, high)
    blocks, available = log.whole("gpu_blocks"), log.number("available_gib")
    if blocks is not None and available is not None:
        size = int(middle.stage.block_bytes.value)
        value = int(available * GIB) // size
        reach = int(0.0051 * GIB) // size + 1
        yield Finding("gpu_blocks", "blocks", blocks, value, value - reach, value + reach)
    tokens = log.whole("cache_tokens")
    if tokens is not None:
        if log.size_line == "product":
            views, name = [view.tokens for view in ordered], "tokens"
        else:
            views, name = [view.tokens_by_group for view in ordered], "tokens_by_group"
        yield between(name, "tokens", tokens, views, slack=1 if name == "tokens" else 0)
    concurrency = log.number("concurrency")
    if concurrency is not None:
        views = [view.concurrency for view in ordered]
        yield between("concurrency", "requests", concurrency, views, slack=0.0051)
    stored = log.whole("stored_tokens")
    if stored is not None:
        yield between("stored_tokens", "tokens", stored, [view.tokens_by_group for view in ordered])


# ---------------------------------------------------------------- SGLang


def _sglang(log: EngineLog, inputs: _Inputs) -> Iterator[Finding]:
    scenario = inputs.scenario
    # the pools of drafting layers are logged apart, behind the model's
    place = replace(inputs.place(), drafting=False)
    model, length = scenario.model_spec, inputs.settings.max_model_len
    stages = stage_caches(model, scenario.layout, place, length)
    tokens = log.whole("allocated_tokens") or log.whole("pool_tokens") or 0
    slots = log.whole("slots") or 0
    stage = max(stages, key=lambda one: int(one.per_request.value))
    sizes = printed_sizes(stage, slots, tokens // place.dcp)
    growing = [part for part in stage.components if part.growth is Growth.GROWING]
    whole = sum(
        part.store.bytes.value * part.layers / part.store.tokens_per_row * tokens / part.store.dcp
        for part in growing
    )
    for name, value, item in (
        ("state_gib", sizes["recurrent_gib"].value, sizes["recurrent_gib"]),
        ("k_gib", sizes["k_gib"].value, sizes["k_gib"]),
        ("pool_gib", whole, None),
    ):
        logged = log.number(name)
        needs = slots if name == "state_gib" else tokens
        if logged is not None and needs:
            gib = value / GIB
            yield Finding(name, "GiB", logged, gib, gib - 0.0061, gib + 0.0061, item)
    running = log.whole("running")
    if running is not None and slots:
        each = _slots_each(inputs.settings)
        yield Finding("running", "requests", running, slots // each, 1, slots // each)


def _slots_each(settings: CacheSettings) -> int:
    if not settings.prefix_caching:
        return 1
    return 5 if settings.async_scheduling else 3
