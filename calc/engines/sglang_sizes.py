"""SGLang 0.5.23: the sizes of its pools, as formulas."""

from __future__ import annotations

from calc.items import Status, formula
from calc.units import Number, ceil_div, floor_of, lesser, round_up

POOLS = "SGLang 0.5.23 model_executor/pool_configurator.py"
STATES = "SGLang 0.5.23 mem_cache/kv_cache_configurator.py"


@formula(unit="B/token", source=f"{POOLS} _compute_cell_size", status=Status.ENGINE)
def cell_bytes(row_bytes: int, layers: int, copies: int) -> int:
    """One row of equal layers; what dcp does not stripe is there once for each of its ranks."""
    return row_bytes * layers * copies


@formula(unit="B/token", source=f"{POOLS} _compute_cell_size", status=Status.ENGINE)
def compressed_cell_bytes(row_bytes: int, layers: int, compress_ratio: int) -> Number:
    """A row that stands for several tokens, by the token."""
    return row_bytes * layers / compress_ratio


@formula(unit="B", source=f"{STATES} _handle_max_mamba_cache", status=Status.ENGINE)
def state_budget(budget_bytes: int, pool_ratio: float) -> Number:
    """The share of the memory that states get: r parts beside one part of tokens."""
    return floor_of(budget_bytes * pool_ratio / (1 + pool_ratio))


@formula(unit="slots", source=f"{STATES} _handle_max_mamba_cache", status=Status.ENGINE)
def slots_in_pool(
    budget_bytes: int, slot_bytes: int, draft_bytes: int, slots_per_request: int
) -> Number:
    """Slots beside one of padding; drafts keep states for each request that can run."""
    return floor_of((budget_bytes - slot_bytes) / (slot_bytes + draft_bytes / slots_per_request))


@formula(unit="B", source=f"{STATES}: intermediate states", status=Status.ENGINE)
def draft_states(
    draft_tokens: int, recurrent_elements: int, state_bytes: int, layers: int
) -> Number:
    """The states that a running request keeps, one for each draft token."""
    return draft_tokens * recurrent_elements * state_bytes * layers


@formula(unit="B", source=f"{STATES} _handle_max_mamba_cache", status=Status.ENGINE)
def slot_pool_bytes(
    slots: int, slot_bytes: int, draft_bytes: int, slots_per_request: int
) -> Number:
    """The state pool: its slots, one of padding, and what drafts keep."""
    return (slots + 1) * slot_bytes + slots // slots_per_request * draft_bytes


@formula(unit="B", source=f"{STATES} _profile_available_bytes", status=Status.ENGINE)
def available(budget_bytes: int) -> int:
    """Memory for all pools of one rank."""
    return budget_bytes


@formula(unit="B", source=f"{STATES} _profile_available_bytes", status=Status.ENGINE)
def token_budget(budget_bytes: int, held_bytes: int) -> Number:
    """What the state pool leaves."""
    return budget_bytes - held_bytes


@formula(unit="tokens", source=f"{POOLS} DefaultPoolConfigurator", status=Status.ENGINE)
def pool_rows(budget_bytes: int, cell_bytes: Number, page_size: int) -> Number:
    """Rows on one rank, in whole pages."""
    return floor_of(budget_bytes // (cell_bytes * page_size)) * page_size


@formula(unit="tokens", source=f"{POOLS}, two pools", status=Status.ENGINE)
def full_pool_rows(
    budget_bytes: int,
    full_cell_bytes: Number,
    window_cell_bytes: Number,
    pool_ratio: float,
    page_size: int,
) -> Number:
    """Rows of full attention where windows have a pool of their own."""
    return (
        floor_of(budget_bytes / (full_cell_bytes + window_cell_bytes * pool_ratio) / page_size)
        * page_size
    )


@formula(unit="tokens", source=f"{POOLS} swa_full_tokens_ratio", status=Status.ENGINE)
def window_pool_rows(pool_tokens: int, pool_ratio: float, page_size: int) -> Number:
    """Rows of the windows' pool."""
    return floor_of(pool_tokens * pool_ratio / page_size) * page_size


@formula(unit="tokens", source="SGLang 0.5.23 layers/dcp/layout.py", status=Status.ENGINE)
def tokens_over_ranks(pool_tokens: int, dcp: int) -> Number:
    """Tokens that the ranks of a DCP group hold together."""
    return pool_tokens * dcp


@formula(unit="tokens", source="SGLang 0.5.23 mem_cache/allocation_sizing.py", status=Status.ENGINE)
def tokens_in_pages(context: Number, page_size: int, dcp: int) -> Number:
    """A request in whole pages, each of which spans the DCP group."""
    return round_up(context, page_size * dcp)


@formula(
    unit="tokens",
    source="a window in whole pages and the page it moves into",
    status=Status.ESTIMATE,
)
def window_in_pages(context: Number, window: int, page_size: int) -> Number:
    """Rows that one decoding request keeps in the windows' pool."""
    return lesser(
        round_up(lesser(context, window), page_size) + page_size, round_up(context, page_size)
    )


@formula(unit="requests", source="whole requests that a pool holds", status=Status.ENGINE)
def requests_in_tokens(pool_tokens: int, held_tokens: Number) -> Number:
    """Requests that fit side by side into a pool of tokens."""
    return pool_tokens // held_tokens


@formula(unit="requests", source=f"{STATES}: max_running_requests", status=Status.ENGINE)
def requests_in_slots(slots: int, slots_per_request: int) -> Number:
    """Requests that the state pool lets run."""
    return slots // slots_per_request


@formula(unit="slots", source=f"{STATES} _calculate_mamba_ratio", status=Status.ENGINE)
def slots_without_cache() -> int:
    """One state a request where no prefix is cached."""
    return 1


@formula(unit="slots", source=f"{STATES} _calculate_mamba_ratio", status=Status.ENGINE)
def slots_with_cache(tracking_slots: int) -> int:
    """Three a request with the radix cache, and those in which states are tracked."""
    return 3 + tracking_slots


@formula(unit="B", source="allocated but not used", status=Status.ENGINE)
def token_waste(pool_tokens: Number, held_tokens: Number, cell_bytes: Number, dcp: int) -> Number:
    """Rows on one rank that the request's pages hold beyond its tokens."""
    return (ceil_div(pool_tokens, dcp) - ceil_div(held_tokens, dcp)) * cell_bytes


@formula(unit="B", source="states kept beside the working one", status=Status.ENGINE)
def slot_surplus(slots_per_request: int, slot_bytes: int, draft_bytes: int) -> Number:
    """States of one request beyond the one it needs, and those of its drafts."""
    return (slots_per_request - 1) * slot_bytes + draft_bytes


@formula(unit="B", source="SGLang 0.5.23 mem_cache/memory_pool.py, as logged", status=Status.ENGINE)
def printed_states(slots: int, elements: int, element_bytes: int, layers: int) -> int:
    """One part of the states of a pool, with its slot of padding."""
    return (slots + 1) * elements * element_bytes * layers


@formula(unit="B", source="SGLang 0.5.23 mem_cache/memory_pool.py, as logged", status=Status.ENGINE)
def printed_keys(pool_tokens: int, row_bytes: int, layers: int) -> Number:
    """K alone, where V is as wide: half of the rows."""
    return pool_tokens * row_bytes * layers / 2
