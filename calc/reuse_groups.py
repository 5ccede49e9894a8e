"""The groups in which a scenario's cache is looked up, with their chunks, rule by rule."""

from __future__ import annotations

import math
from dataclasses import replace

from calc.capacity import stage_caches
from calc.engine_cache import cache_settings, place_of, vllm_plan
from calc.engines import ENGINES
from calc.engines.vllm_pages import base_block
from calc.errors import CalcError
from calc.items import Item
from calc.layers import Growth, Store
from calc.reuse import LMCACHE_CHUNK, TRACK_INTERVAL, ReuseGroup, Rule, striped_block
from calc.scenario import Scenario
from calc.units import ceil_div

ORDER = (Growth.GROWING, Growth.WINDOW, Growth.CHUNK, Growth.STATE)
"""Full attention is asked first: it can only shorten what the others are asked for."""


def reuse_groups(
    scenario: Scenario, rule: Rule, chunk: int = 0, interval: int = 0, drops: bool = False
) -> tuple[ReuseGroup, ...]:
    """Layers that are looked up together.

    ``chunk`` is LMCache's chunk, or that of the ideal rule; ``interval`` the tokens between
    SGLang's tracked states. 0 leaves either to its default: the least multiple of the
    engine's blocks from its usual 256 on. ``drops``: vLLM's groups with a
    draft's layer give up a block, because its hashes do not look ahead.
    """
    for name, value in (("chunk", chunk), ("interval", interval)):
        if value < 0 or value > 2**30:
            raise CalcError("out_of_range", name, given=value, minimum=0, maximum=2**30)
    if rule is Rule.VLLM:
        made = _vllm(scenario, drops)
    elif rule is Rule.SGLANG:
        made = _sglang(scenario, interval or usual_interval(scenario))
    elif rule is Rule.LMCACHE:
        made = _lmcache(scenario, chunk or usual_chunk(scenario, rule))
    else:
        made = _stored(scenario, chunk or LMCACHE_CHUNK)
    return tuple(sorted(made, key=lambda group: ORDER.index(group.growth)))


def hash_lookahead(scenario: Scenario) -> int:
    """Tokens behind a block that vLLM 0.33 hashes with it while drafting (config/vllm.py
    num_hash_lookahead_tokens): as many as several MTP modules draft, else one."""
    drafted = scenario.speculative_tokens
    modules = sum(layer.count for layer in scenario.model_spec.mtp_layers)
    return drafted if min(modules, drafted) > 1 else min(drafted, 1)


def _vllm(scenario: Scenario, drops: bool = False) -> list[ReuseGroup]:
    layers = scenario.model_spec.layer_count
    drafting = drops and scenario.speculative_tokens > 0
    plan = vllm_plan(scenario, place_of(scenario))
    found: dict[tuple[object, ...], ReuseGroup] = {}
    for group in plan.grouping.groups:
        lead = group.lead
        if lead.growth is Growth.STATE:
            # states are saved where attention's blocks end; alone, at the block asked for
            block = plan.alignment.block if plan.alignment else base_block(plan.settings)
            size = striped_block.item("state.block", block_size=block, dcp=1)
        else:
            size = striped_block.item(
                f"{lead.store.kind}.block", block_size=lead.block, dcp=lead.store.dcp
            )
        drafted = drafting and any(layer >= layers for layer, _ in group.members)
        _add(found, lead.store, lead.growth, lead.limit, len(group.members), size, drafted)
    if drafting and not any(one.drafted for one in found.values()):
        # a draft model of its own: kv_cache_coordinator.py then flags all groups
        return [replace(one, drafted=True) for one in found.values()]
    return list(found.values())


def _sglang(scenario: Scenario, interval: int) -> list[ReuseGroup]:
    widened = _page(scenario)
    unit = int(widened.value)
    found: dict[tuple[object, ...], ReuseGroup] = {}
    for store, layers in _stores(scenario):
        _whole_rows(store, unit)
        if store.growth is Growth.STATE and interval % unit:
            raise CalcError("reuse_interval", interval=interval, unit=unit)
        # attention in chunks is cached as a window of that size there
        growth = Growth.WINDOW if store.growth is Growth.CHUNK else store.growth
        size: Item | int = interval if growth is Growth.STATE else widened
        _add(found, store, growth, store.limit, layers, size)
    return list(found.values())


def _page(scenario: Scenario) -> Item:
    """SGLang's page over the ranks that stripe it, as its tree allocates it."""
    page = cache_settings(scenario, ENGINES["sglang"]).block_size or 1
    return striped_block.item("page", block_size=page, dcp=scenario.dcp)


def usual_interval(scenario: Scenario) -> int:
    """Tokens between SGLang's tracked states where nobody names them: a whole number of pages
    (mem_cache pages over all DCP ranks, runtime_context.py mamba_track_grid)."""
    page = int(_page(scenario).value)
    return int(ceil_div(TRACK_INTERVAL, page)) * page


def _lmcache(scenario: Scenario, chunk: int) -> list[ReuseGroup]:
    """LMCache 0.5.6 integration/vllm: a chunk is a multiple of every group's block, and only
    windows and states are looked up as such (kv_cache_groups.py): chunked attention is full."""
    _lmcache_starts(scenario)
    block = engine_block(scenario)
    if chunk % block:
        raise CalcError("reuse_chunk", "chunk", given=chunk, unit=block)
    return _stored(scenario, chunk, chunked=Growth.GROWING)


def _lmcache_starts(scenario: Scenario) -> None:
    """LMCache 0.5.6 integration/vllm refuses states that no snapshot is kept of
    (kv_cache_group_edits.py) and steps shorter than their block (lmcache_mp_connector.py)."""
    if scenario.engine != "vllm":
        return
    states = [group.chunk for group in _vllm(scenario) if group.growth is Growth.STATE]
    if states and scenario.prefix_caching == "off":
        raise CalcError("lmcache_states", engine=scenario.engine_rules.name)
    if scenario.max_num_batched_tokens < max(states, default=0):
        given = scenario.max_num_batched_tokens
        raise CalcError("lmcache_batched", given=given, minimum=max(states))


def usual_chunk(scenario: Scenario, rule: Rule) -> int:
    """The chunk where nobody names one; LMCache's has to be one that its engine's blocks divide."""
    block = engine_block(scenario) if rule is Rule.LMCACHE else 1
    return int(ceil_div(LMCACHE_CHUNK, block)) * block


def engine_block(scenario: Scenario) -> int:
    """Tokens that every block of vLLM divides; 1 beside an engine that LMCache does not ask."""
    if scenario.engine != "vllm":
        return 1
    return math.lcm(*(group.chunk for group in _vllm(scenario)))


def _stored(scenario: Scenario, chunk: int, chunked: Growth = Growth.CHUNK) -> list[ReuseGroup]:
    found: dict[tuple[object, ...], ReuseGroup] = {}
    for store, layers in _stores(scenario):
        _whole_rows(store, chunk)
        whole = store.growth is Growth.CHUNK and chunked is Growth.GROWING
        growth, limit = (chunked, 0) if whole else (store.growth, store.limit)
        _add(found, store, growth, limit, layers, chunk)
    return list(found.values())


def _whole_rows(store: Store, chunk: int) -> None:
    """A boundary inside a group of tokens that share a row has no such row yet."""
    if chunk % store.tokens_per_row:
        raise CalcError("storage_chunk", chunk=chunk, unit=store.tokens_per_row)


def _stores(scenario: Scenario) -> list[tuple[Store, int]]:
    """Every store of the cache, those of drafting MTP layers too, and its layers."""
    stages = stage_caches(scenario.model_spec, scenario.layout, place_of(scenario), 1)
    return [(part.store, part.layers) for stage in stages for part in stage.components]


def _add(
    found: dict[tuple[object, ...], ReuseGroup],
    store: Store,
    growth: Growth,
    limit: int,
    layers: int,
    size: Item | int,
    drafted: bool = False,
) -> None:
    """Layers with the same rule and chunk are found or missed together."""
    tokens = int(size.value) if isinstance(size, Item) else size
    key = (growth, limit, tokens)
    before = found.get(key)
    number = sum(group.growth is growth for group in found.values()) + 1
    name = growth.value if number == 1 else f"{growth.value}{number}"
    found[key] = ReuseGroup(
        before.id if before else name,
        before.kind if before else store.kind,
        growth,
        layers + (before.layers if before else 0),
        tokens,
        limit,
        drafted=drafted or bool(before and before.drafted),
        block=size if isinstance(size, Item) else None,
    )
