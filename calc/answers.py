"""Questions about a budget beyond equal requests: a shared prefix, mixed lengths, all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.capacity import Cache, request_bytes
from calc.engines.vllm_blocks import BlockView, Plan
from calc.items import Item, Status, formula, total
from calc.layers import Growth
from calc.units import Number, greater


@formula(unit="tokens", source="the prefix is kept once, what follows for each request")
def tokens_with_prefix(prefix: int, context: int, batch: int) -> Number:
    """Distinct tokens that requests with a common prefix keep."""
    return prefix + batch * (context - prefix)


@formula(unit="B", source="rows of the prefix, windows and states apart")
def prefix_rows(bytes_per_token: Number, prefix: int) -> Number:
    """Growing rows of the prefix on one rank."""
    return bytes_per_token * prefix


@formula(unit="B", source="a request less the rows it shares")
def own_bytes(request_bytes: Number, prefix_bytes: Number) -> Number:
    """What each request keeps for itself: its own rows, its windows and its states."""
    return request_bytes - prefix_bytes


@formula(unit="B", source="the prefix once, the rest for each request")
def batch_with_prefix(prefix_bytes: Number, own_bytes: Number, batch: int) -> Number:
    """Cache of a batch whose requests share a prefix, on the fullest rank."""
    return prefix_bytes + own_bytes * batch


@formula(unit="requests", source="whole requests that fit behind the prefix")
def requests_behind_prefix(budget_bytes: int, prefix_bytes: Number, own_bytes: Number) -> Number:
    """Requests of one replica that share the prefix."""
    return greater(budget_bytes - prefix_bytes, 0) // own_bytes


@formula(unit="requests", source="shared blocks are counted once", status=Status.ENGINE)
def requests_behind_blocks(pool_blocks: int, shared_blocks: int, request_blocks: int) -> Number:
    """Requests that the engine's pool holds when they share whole blocks of a prefix."""
    return greater(pool_blocks - 1 - shared_blocks, 0) // (request_blocks - shared_blocks)


@formula(unit="blocks", source="a prefix is shared in whole blocks only", status=Status.ENGINE)
def whole_blocks(prefix: int, block_size: int, dcp: int) -> Number:
    """Blocks of one group that hold nothing but the prefix."""
    return prefix // (block_size * dcp)


@formula(unit="B", source="requests of one length")
def bytes_of_length(request_bytes: Number, batch: int) -> Number:
    """Cache of all requests of one length, on the fullest rank."""
    return request_bytes * batch


@formula(unit="blocks", source="requests of one length", status=Status.ENGINE)
def blocks_of_length(request_blocks: int, batch: int) -> Number:
    """Blocks of all requests of one length."""
    return request_blocks * batch


@formula(unit="requests", source="requests in this mix", status=Status.ESTIMATE)
def requests_in_mix(budget_bytes: int, mixed_bytes: Number, batch: int) -> Number:
    """Requests of the mix that fit, in proportion."""
    return budget_bytes * batch // mixed_bytes


@formula(unit="requests", source="each replica serves its own requests")
def in_deployment(requests: int, dp: int) -> Number:
    """Requests of all replicas together."""
    return requests * dp


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A batch whose requests begin with the same ``prefix`` tokens; engine figures may be None."""

    prefix: int
    tokens: Item
    prefix_bytes: Item
    own: Item
    batch: Item
    max_requests: Item | None
    shared_blocks: Item | None
    max_requests_engine: Item | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Mix:
    """Requests of several lengths; ``short_bytes`` is by how much they miss the budget."""

    requests: int
    tokens: int
    bytes: Item
    blocks: Item | None
    max_requests: Item
    fits: bool
    short_bytes: int
    fits_engine: bool | None


def shared_prefix(
    held: Cache,
    budget: int,
    prefix: int,
    context: int,
    batch: int,
    engine: tuple[Plan, BlockView] | None,
) -> SharedPrefix:
    """``batch`` requests of ``context`` tokens that share their first ``prefix`` tokens."""
    stage = held.stage
    common = prefix_rows.item(
        "prefix.bytes", bytes_per_token=stage.growing_per_token, prefix=prefix
    )
    own = own_bytes.item("prefix.own", request_bytes=stage.per_request, prefix_bytes=common)
    whole = batch_with_prefix.item("prefix.batch", prefix_bytes=common, own_bytes=own, batch=batch)
    most = (
        requests_behind_prefix.item(
            "prefix.requests", budget_bytes=budget, prefix_bytes=common, own_bytes=own
        )
        if own.value > 0
        else None
    )
    shared, engine_most = _shared_in_blocks(engine, prefix) if engine else (None, None)
    return SharedPrefix(
        prefix,
        tokens_with_prefix.item("prefix.tokens", prefix=prefix, context=context, batch=batch),
        common,
        own,
        whole,
        most,
        shared,
        engine_most,
        bool(whole.value <= budget),
    )


def _shared_in_blocks(
    engine: tuple[Plan, BlockView], prefix: int
) -> tuple[Item | None, Item | None]:
    plan, view = engine
    if not plan.settings.prefix_caching:
        return None, None
    shared = total(
        "prefix.blocks",
        "blocks",
        [
            whole_blocks.item(
                f"group{number}.prefix_blocks",
                prefix=prefix,
                block_size=group.lead.block,
                dcp=group.lead.store.dcp,
            )
            for number, group in enumerate(plan.grouping.groups)
            if group.lead.growth is Growth.GROWING
        ],
    )
    if shared.value >= view.request_blocks.value:
        return shared, None
    most = requests_behind_blocks.item(
        "prefix.requests_engine",
        pool_blocks=view.pool_blocks,
        shared_blocks=shared,
        request_blocks=view.request_blocks,
    )
    return shared, most


def mixed_lengths(
    held: Cache,
    budget: int,
    lengths: Sequence[tuple[int, int]],
    engine: tuple[Plan, BlockView] | None,
) -> Mix:
    """Requests as (tokens, how many); such as a median and a tail."""
    whole = total(
        "mix.bytes",
        "B",
        [
            bytes_of_length.item(
                f"mix.{tokens}", request_bytes=request_bytes(held, tokens), batch=count
            )
            for tokens, count in lengths
        ],
    )
    blocks = None
    fits_engine = None
    if engine:
        plan, view = engine
        blocks = total(
            "mix.blocks",
            "blocks",
            [
                blocks_of_length.item(
                    f"mix.{tokens}.blocks",
                    request_blocks=plan.request_blocks(tokens),
                    batch=count,
                )
                for tokens, count in lengths
            ],
        )
        fits_engine = bool(blocks.value <= view.pool_blocks.value - 1)
    requests = sum(count for _, count in lengths)
    return Mix(
        requests,
        sum(tokens * count for tokens, count in lengths),
        whole,
        blocks,
        requests_in_mix.item(
            "mix.requests", budget_bytes=budget, mixed_bytes=whole, batch=requests
        ),
        bool(whole.value <= budget),
        max(0, int(whole.value) - budget),
        fits_engine,
    )
