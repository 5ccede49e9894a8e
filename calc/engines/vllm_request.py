"""vLLM 0.33: the blocks that one request takes in each group, and what they hold."""

from __future__ import annotations

from calc.engines.settings import CacheSettings
from calc.engines.vllm_groups import Group
from calc.items import Formula, Item, Status, formula
from calc.layers import Growth
from calc.units import Number, ceil_div, lesser

SPECS = "vLLM 0.33 v1/kv_cache_interface.py"


@formula(
    unit="blocks",
    source=f"{SPECS} FullAttentionSpec.max_memory_usage_bytes",
    status=Status.ENGINE,
)
def full_blocks(context: Number, dcp: int, block_size: int) -> Number:
    """Every token has a row, striped over dcp ranks; the last block may be part empty."""
    return ceil_div(ceil_div(context, dcp), block_size)


@formula(
    unit="blocks",
    source=f"{SPECS} SlidingWindowSpec.max_admission_blocks_per_request",
    status=Status.ENGINE,
)
def window_blocks(context: Number, window: int, in_flight: int, block_size: int) -> Number:
    """The window and what is in flight; one block more since it may begin inside one."""
    return ceil_div(lesser(window - 1 + in_flight, context), block_size) + 1


@formula(
    unit="blocks",
    source=f"{SPECS} ChunkedLocalAttentionSpec.max_admission_blocks_per_request",
    status=Status.ENGINE,
)
def chunk_blocks(context: Number, chunk: int, in_flight: int, block_size: int) -> Number:
    """A chunk and what is in flight."""
    return ceil_div(lesser(chunk + in_flight, context), block_size)


@formula(
    unit="blocks", source=f"{SPECS} MambaSpec.max_memory_usage_bytes (none)", status=Status.ENGINE
)
def state_slots(draft_tokens: int) -> int:
    """One state, and one more for each draft token."""
    return 1 + draft_tokens


@formula(
    unit="blocks", source=f"{SPECS} MambaSpec.max_memory_usage_bytes (align)", status=Status.ENGINE
)
def state_slots_cached(draft_tokens: int, checkpoints: int) -> int:
    """With prefix caching a second state is kept, and a checkpoint where the kernel exports one."""
    return 2 + draft_tokens + checkpoints


def group_blocks(
    group: Group, key: str, context: int, settings: CacheSettings, in_flight: Item | int
) -> Item:
    """Blocks of one request of ``context`` tokens in one group."""
    rule, arguments = blocks_rule(group, context, settings, in_flight)
    return rule.item(key, **arguments)


def blocks_rule(
    group: Group, context: int, settings: CacheSettings, in_flight: Item | int
) -> tuple[Formula[..., Number], dict[str, Number | Item]]:
    """The formula of a group's blocks with its arguments."""
    lead = group.lead
    common: dict[str, Number | Item] = {"context": context, "block_size": lead.block}
    match lead.growth:
        case Growth.STATE if settings.prefix_caching:
            checkpoints = settings.checkpoint_slots if lead.checkpoint else 0
            drafts = settings.speculative_tokens
            return state_slots_cached, {"draft_tokens": drafts, "checkpoints": checkpoints}
        case Growth.STATE:
            return state_slots, {"draft_tokens": settings.speculative_tokens}
        case Growth.WINDOW:
            return window_blocks, common | {"window": lead.limit, "in_flight": in_flight}
        case Growth.CHUNK:
            return chunk_blocks, common | {"chunk": lead.limit, "in_flight": in_flight}
        case _:
            return full_blocks, common | {"dcp": lead.store.dcp}


def growth(group: Group, in_flight: Item | int) -> tuple[int, int | None] | None:
    """(tokens that fill a block, tokens beyond which no block is added); None for states.

    The same rules as ``blocks_rule``, for searches.
    """
    lead = group.lead
    scheduled = int(in_flight.value) if isinstance(in_flight, Item) else in_flight
    match lead.growth:
        case Growth.STATE:
            return None
        case Growth.WINDOW:
            return lead.block_tokens, lead.limit - 1 + scheduled
        case Growth.CHUNK:
            return lead.block_tokens, lead.limit + scheduled
        case _:
            return lead.block_tokens * lead.store.dcp, None
