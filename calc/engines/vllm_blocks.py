"""vLLM 0.33: one pool of blocks, how many there are and how many requests they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import gcd

from calc.engines.settings import CacheSettings
from calc.engines.vllm_groups import PLANNING, Group, Grouping, make_groups
from calc.engines.vllm_pages import Alignment, drafting_layers, make_pages, unify
from calc.engines.vllm_request import blocks_rule, group_blocks, growth
from calc.engines.vllm_waste import Request, request_wastes
from calc.items import Item, Status, formula, total
from calc.layers import Growth, Sharding
from calc.model import ModelSpec
from calc.units import Number, greater

CAPACITY = "vLLM 0.33 v1/core/kv_cache_utils.py"


@formula(unit="B", source=f"{PLANNING} _get_kv_cache_bytes_per_block", status=Status.ENGINE)
def group_block_bytes(page_bytes: int, layers: int) -> int:
    """The pages of equal layers in one block of a group."""
    return page_bytes * layers


@formula(unit="blocks", source=f"{PLANNING} get_kv_cache_config_from_groups", status=Status.ENGINE)
def blocks_in_pool(budget_bytes: int, block_bytes: int) -> Number:
    """Whole blocks that the memory of one rank holds."""
    return budget_bytes // block_bytes


@formula(unit="blocks", source="num_gpu_blocks_override", status=Status.ENGINE)
def blocks_set(blocks: int) -> int:
    """The number of blocks that was set instead."""
    return blocks


@formula(
    unit="requests",
    source=f"{CAPACITY} get_max_concurrency_for_kv_cache_config",
    status=Status.ENGINE,
)
def concurrency(pool_blocks: int, request_blocks: int) -> float:
    """Requests of the full length, as the log prints it; the null block is not taken off."""
    return pool_blocks / request_blocks


@formula(unit="tokens", source=f"{CAPACITY} get_kv_cache_capacity", status=Status.ENGINE)
def capacity_tokens(pool_blocks: int, request_blocks: int, context: int) -> Number:
    """ "GPU KV cache size" since 2026: the concurrency times the length it is for."""
    return pool_blocks * context // request_blocks


@formula(unit="tokens", source="vLLM before 2026 _report_kv_cache_config", status=Status.ENGINE)
def capacity_tokens_by_group(pool_blocks: int, groups: int, block_size: int, dcp: int) -> Number:
    """ "GPU KV cache size" before: the blocks shared out to the groups, times a block's tokens."""
    return pool_blocks // groups * block_size * dcp


@formula(unit="requests", source=f"{PLANNING}: block 0 is the null block", status=Status.ENGINE)
def requests_in_pool(pool_blocks: int, request_blocks: int) -> Number:
    """Whole requests that are admitted side by side; block 0 is never given out."""
    return greater(pool_blocks - 1, 0) // request_blocks


@formula(unit="B", source=f"{PLANNING} _max_memory_usage_bytes_from_groups", status=Status.ENGINE)
def allocated_bytes(request_blocks: int, block_bytes: int) -> Number:
    """What one request takes of the pool on one rank."""
    return request_blocks * block_bytes


@formula(unit="B", source=f"{PLANNING} get_kv_cache_configs", status=Status.ENGINE)
def needed_bytes(request_blocks: int, block_bytes: int) -> Number:
    """The least cache memory with which the engine starts: one request and the null block."""
    return (request_blocks + 1) * block_bytes


@formula(unit="B", source="memory that no whole block fills, or that a smaller stage leaves")
def unused_bytes(budget_bytes: int, pool_blocks: int, block_bytes: int) -> Number:
    """Cache memory of a rank outside the pool."""
    return budget_bytes - pool_blocks * block_bytes


@dataclass(frozen=True, slots=True)
class StagePool:
    """The pool of one rank of a pipeline stage; ``asked`` is what its memory would hold."""

    stage: int
    layers: tuple[int, int]
    budget_bytes: int
    block_bytes: Item
    asked: Item


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group for display; ``block`` is 0 for states, ``virtual_block`` spans the dcp ranks."""

    kind: str
    growth: str
    layers: int
    block: int
    virtual_block: int
    page_bytes: int
    blocks: Item


@dataclass(frozen=True, slots=True)
class BlockView:
    """The engine's own account of its cache, per rank.

    ``pool_blocks`` is the least over the stages, ``stages[binding]`` the one
    that sets it. ``formula`` + ``wastes`` = ``allocated``, on that stage, for
    one request. ``tokens`` and ``tokens_by_group`` are the new and the old
    definition of the log's "GPU KV cache size". ``max_context`` is for a whole
    batch of equal requests, ``fits`` for one.
    """

    settings: CacheSettings
    path: str
    alignment: Alignment | None
    padding_layers: int
    groups: tuple[GroupView, ...]
    stages: tuple[StagePool, ...]
    binding: int
    pool_blocks: Item
    request_blocks: Item
    concurrency: Item
    tokens: Item
    tokens_by_group: Item
    max_requests: Item
    allocated: Item
    needed: Item
    formula: Item
    wastes: tuple[Item, ...]
    null_block: Item
    unused: Item
    fits: bool
    short_bytes: int
    max_context: int | None

    @property
    def stage(self) -> StagePool:
        return self.stages[self.binding]


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups and stages: everything that does not depend on a length or a budget."""

    grouping: Grouping
    alignment: Alignment | None
    settings: CacheSettings
    in_flight: Item | int
    stages: tuple[tuple[int, int], ...]
    block_bytes: tuple[Item, ...]

    def request_blocks(self, context: int) -> int:
        """Blocks of one request of ``context`` tokens, over all groups."""
        found = 0
        for group in self.grouping.groups:
            rule, arguments = blocks_rule(group, context, self.settings, self.in_flight)
            found += int(rule.value(**arguments))
        return found


def plan(
    model: ModelSpec, place: Sharding, settings: CacheSettings, stage_layers: Sequence[int]
) -> Plan:
    """Pages and groups of the whole model, and a block's bytes on each pipeline stage."""
    asked, by_layer, alignment = make_pages(model, place, settings)
    equal = unify(asked) if asked else []
    compressed = any(one.store.tokens_per_row > 1 for one in asked)
    grouping = make_groups(asked, by_layer, equal, settings.packed or compressed)
    drafts = sum(layer.count for layer in drafting_layers(model, place))
    ends = list(accumulate((*stage_layers[:-1], stage_layers[-1] + drafts)))
    stages = tuple(zip([0, *ends[:-1]], ends, strict=True))
    weights = tuple(_block_bytes(grouping, stage) for stage in stages)
    in_flight = settings.tokens_in_flight(len(stages))
    return Plan(grouping, alignment, settings, in_flight, stages, weights)


def block_view(
    made: Plan,
    budgets: Sequence[int],
    formula_request: Sequence[Item],
    longest: int,
    batch: int = 1,
) -> BlockView | None:
    """The view for a budget per stage; None for a model that keeps no cache.

    ``formula_request`` is what the layer formulas count for one request on each
    stage; ``longest`` bounds the search for the longest requests of a batch.
    """
    if not made.grouping.groups:
        return None
    context, settings = made.settings.max_model_len, made.settings
    pools = tuple(
        StagePool(
            stage,
            layers,
            budget,
            size,
            blocks_in_pool.item(f"stage{stage}.blocks", budget_bytes=budget, block_bytes=size),
        )
        for stage, (layers, budget, size) in enumerate(
            zip(made.stages, budgets, made.block_bytes, strict=True)
        )
        if size.value
    )
    least = min(pools, key=lambda pool: int(pool.asked.value))
    pool_blocks = (
        blocks_set.item("pool_blocks", blocks=settings.blocks_override)
        if settings.blocks_override
        else least.asked
    )
    taken = [
        group_blocks(group, f"group{number}.blocks", context, settings, made.in_flight)
        for number, group in enumerate(made.grouping.groups)
    ]
    request = total("request_blocks", "blocks", taken)
    needed = needed_bytes.item("needed", request_blocks=request, block_bytes=least.block_bytes)
    pooled = {"pool_blocks": pool_blocks, "request_blocks": request}
    short = max(0, int(request.value) + 1 - int(pool_blocks.value)) * int(least.block_bytes.value)
    return BlockView(
        settings,
        made.grouping.path,
        made.alignment,
        made.grouping.padding_layers,
        tuple(
            _group_view(group, blocks)
            for group, blocks in zip(made.grouping.groups, taken, strict=True)
        ),
        pools,
        pools.index(least),
        pool_blocks,
        request,
        concurrency.item("concurrency", **pooled),
        capacity_tokens.item("tokens", **pooled, context=context),
        capacity_tokens_by_group.item(
            "tokens_by_group",
            pool_blocks=pool_blocks,
            groups=len(made.grouping.groups),
            block_size=smallest_block(made.grouping.groups, context),
            dcp=max(group.lead.store.dcp for group in made.grouping.groups),
        ),
        requests_in_pool.item("requests", **pooled),
        allocated_bytes.item("allocated", request_blocks=request, block_bytes=least.block_bytes),
        needed,
        formula_request[least.stage],
        request_wastes(
            made.grouping, taken, least.layers, least.block_bytes, Request(context, made.in_flight)
        ),
        allocated_bytes.item("null_block", request_blocks=1, block_bytes=least.block_bytes),
        unused_bytes.item(
            "unused",
            budget_bytes=least.budget_bytes,
            pool_blocks=pool_blocks,
            block_bytes=least.block_bytes,
        ),
        short == 0,
        short,
        longest_request(made, int(pool_blocks.value), longest, batch),
    )


def longest_request(made: Plan, pool_blocks: int, longest: int, batch: int = 1) -> int | None:
    """Most tokens of each of ``batch`` requests; None where ``longest`` still fits, 0 for none.

    Blocks are added only where a group's last one is full, so the answer is a
    multiple of what all groups' blocks have in common. Rounding up costs each
    group less than a block, which leaves a short piece to search.
    """
    most = (pool_blocks - 1) // batch
    steps = [step for group in made.grouping.groups if (step := growth(group, made.in_flight))]

    def fits(context: int) -> bool:
        return made.request_blocks(context) <= most

    if not fits(1):
        return 0
    if fits(longest):
        return None
    left = most - made.request_blocks(0)
    unit = gcd(*(tokens for tokens, _ in steps))
    low = filled_by(steps, left - len(steps)) // unit
    high = min(filled_by(steps, left) // unit + 1, longest // unit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * unit) else (low, middle)
    return low * unit


def filled_by(steps: Sequence[tuple[int, int | None]], blocks: int) -> int:
    """Tokens, rounded down, of a request that fills so many blocks: (tokens a block, their limit).

    >>> filled_by([(16, None)], 3), filled_by([(16, None), (16, 32)], 6)
    (48, 64)
    """
    held = Fraction(max(blocks, 0))
    slope = sum((Fraction(1, tokens) for tokens, _ in steps), Fraction(0))
    start = 0
    for limit, tokens in sorted((limit, tokens) for tokens, limit in steps if limit is not None):
        if held <= slope * (limit - start):
            break
        held -= slope * (limit - start)
        slope -= Fraction(1, tokens)
        start = limit
    return start + int(held / slope) if slope else start


def smallest_block(groups: Sequence[Group], context: int) -> int:
    """The least block of any group; states without prefix caching have one for a whole request."""
    blocks = [g.lead.block_tokens for g in groups if g.lead.growth is not Growth.STATE]
    return min(blocks, default=context)


def _block_bytes(grouping: Grouping, stage: tuple[int, int]) -> Item:
    """The largest group's pages on one stage."""
    sums = []
    for number, group in enumerate(grouping.groups):
        parts = [
            group_block_bytes.item(
                f"group{number}.{grouping.pages[index].store.kind}.{grouping.pages[index].store.name}",
                page_bytes=grouping.pages[index].page,
                layers=layers,
            )
            for index, layers in group.on_stage(*stage).items()
        ]
        sums.append(total(f"group{number}.block", "B", parts))
    return max(sums, key=lambda item: int(item.value)) if sums else total("block", "B", [])


def _group_view(group: Group, blocks: Item) -> GroupView:
    lead = group.lead
    return GroupView(
        lead.store.kind,
        lead.growth.value,
        len(group.members),
        lead.block_tokens,
        lead.block_tokens * lead.store.dcp,
        lead.page_bytes,
        blocks,
    )
