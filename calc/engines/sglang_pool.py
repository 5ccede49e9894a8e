"""SGLang 0.5.23: pools of tokens and of states instead of blocks.

Full attention has a pool of token rows, sliding windows a second, smaller one,
and states a pool of slots whose memory is set aside first. A page is a run of
tokens within a pool; with dcp it spans all ranks of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.capacity import Component, StageCache
from calc.engines.settings import CacheSettings
from calc.engines.sglang_sizes import (
    available,
    cell_bytes,
    compressed_cell_bytes,
    draft_states,
    full_pool_rows,
    pool_rows,
    printed_keys,
    printed_states,
    requests_in_slots,
    requests_in_tokens,
    slot_pool_bytes,
    slot_surplus,
    slots_in_pool,
    slots_with_cache,
    slots_without_cache,
    state_budget,
    token_budget,
    token_waste,
    tokens_in_pages,
    tokens_over_ranks,
    window_in_pages,
    window_pool_rows,
)
from calc.items import Item, total
from calc.layers import Growth, Sharding


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool: ``size`` tokens or slots over the DCP group, ``request`` what one request takes."""

    kind: str
    budget: Item
    size: Item
    request: Item
    requests: Item


@dataclass(frozen=True, slots=True)
class PoolView:
    """SGLang's own account of its cache, on one rank of the binding stage.

    ``formula`` + ``wastes`` = ``allocated`` for one request; ``pools`` each say
    how many requests they hold, ``limiting`` is the kind of the smallest.
    """

    settings: CacheSettings
    stage: int
    page: int
    pools: tuple[Pool, ...]
    limiting: str
    max_requests: Item
    allocated: Item
    formula: Item
    wastes: tuple[Item, ...]
    fits: bool
    short_bytes: int
    max_context: int | None

    def pool(self, kind: str) -> Pool | None:
        """The pool of a kind: tokens, window or state."""
        return next((pool for pool in self.pools if pool.kind == kind), None)


def pool_view(
    stages: Sequence[StageCache],
    place: Sharding,
    settings: CacheSettings,
    budgets: Sequence[int],
    longest: int,
    batch: int = 1,
) -> PoolView | None:
    """The view for a budget per stage; None for a model that keeps no cache."""
    made = [
        _Stage(number, stage, place, settings, budget)
        for number, (stage, budget) in enumerate(zip(stages, budgets, strict=True))
        if stage.components
    ]
    if not made:
        return None
    least = min(made, key=lambda one: int(one.limiting.requests.value))
    return least.view(longest, batch)


class _Stage:
    """One rank of one pipeline stage: its pools are sized one after the other."""

    def __init__(
        self, number: int, cache: StageCache, place: Sharding, settings: CacheSettings, budget: int
    ) -> None:
        self.number, self.cache, self.place, self.settings = number, cache, place, settings
        self.budget = budget
        self.context = settings.max_model_len
        self.page = settings.block_size or 1
        parts = cache.components
        self.states = [part for part in parts if part.growth is Growth.STATE]
        growing = [part for part in parts if part.growth is Growth.GROWING]
        local = [part for part in parts if part.growth in (Growth.WINDOW, Growth.CHUNK)]
        # windows have a pool of their own only beside full attention
        self.split = bool(growing and local) and settings.hybrid_manager
        self.local = local if self.split else []
        self.full = growing if self.split else [*growing, *local]
        self.pools = tuple(self._make())
        self.limiting = min(self.pools, key=lambda pool: int(pool.requests.value))

    def _make(self) -> list[Pool]:
        made: list[Pool] = []
        left = available.item("pool.budget", budget_bytes=self.budget)
        if self.states:
            pool = self._state_pool(left)
            made.append(pool)
            held = slot_pool_bytes.item(
                "state.pool_bytes",
                slots=pool.size,
                slot_bytes=self._slot(),
                draft_bytes=self._drafts(),
                slots_per_request=pool.request,
            )
            left = token_budget.item("tokens.budget", budget_bytes=left, held_bytes=held)
        if self.full:
            made += self._token_pools(left)
        return made

    def _state_pool(self, budget: Item) -> Pool:
        ratio = self.settings.mamba_full_memory_ratio
        share = budget
        if self.full:
            share = state_budget.item("state.budget", budget_bytes=budget, pool_ratio=ratio)
        tracking = 2 if self.settings.async_scheduling else 0
        each = (
            slots_with_cache.item("slots_per_request", tracking_slots=tracking)
            if self.settings.prefix_caching
            else slots_without_cache.item("slots_per_request")
        )
        size = slots_in_pool.item(
            "state.slots",
            budget_bytes=share,
            slot_bytes=self._slot(),
            draft_bytes=self._drafts(),
            slots_per_request=each,
        )
        running = requests_in_slots.item("state.requests", slots=size, slots_per_request=each)
        return Pool("state", share, size, each, running)

    def _token_pools(self, budget: Item) -> list[Pool]:
        page, ratio, dcp = self.page, self.settings.swa_full_tokens_ratio, self.place.dcp
        full = self._cell(self.full, "tokens.cell")
        if self.split:
            rows = full_pool_rows.item(
                "tokens.rows",
                budget_bytes=budget,
                full_cell_bytes=full,
                window_cell_bytes=self._cell(self.local, "window.cell"),
                pool_ratio=ratio,
                page_size=page,
            )
        else:
            rows = pool_rows.item(
                "tokens.rows", budget_bytes=budget, cell_bytes=full, page_size=page
            )
        size = tokens_over_ranks.item("tokens.size", pool_tokens=rows, dcp=dcp)
        each = tokens_in_pages.item("tokens.request", context=self.context, page_size=page, dcp=dcp)
        pools = [Pool("tokens", budget, size, each, _fit("tokens", size, each))]
        if self.split:
            window = window_pool_rows.item(
                "window.size", pool_tokens=rows, pool_ratio=ratio, page_size=page
            )
            taken = window_in_pages.item(
                "window.request", context=self.context, window=self._limit(), page_size=page
            )
            pools.append(Pool("window", budget, window, taken, _fit("window", window, taken)))
        return pools

    def _cell(self, parts: list[Component], key: str) -> Item:
        cells = []
        for part in parts:
            store = part.store
            name = f"{key}.{store.kind}.{store.name}"
            if store.tokens_per_row > 1:
                cells.append(
                    compressed_cell_bytes.item(
                        name,
                        row_bytes=store.bytes,
                        layers=part.layers,
                        compress_ratio=store.tokens_per_row,
                    )
                )
                continue
            copies = self.place.dcp // store.dcp if part.growth is Growth.GROWING else 1
            cells.append(
                cell_bytes.item(name, row_bytes=store.bytes, layers=part.layers, copies=copies)
            )
        return total(key, "B/token", cells)

    def _limit(self) -> int:
        return max(part.store.limit for part in self.local)

    def _slot(self) -> Item:
        return total("state.slot", "B", [part.per_request for part in self.states])

    def _drafts(self) -> Item:
        made = []
        for part in self.states if self.settings.speculative_tokens else []:
            kept = part.store.bytes.arguments
            made.append(
                draft_states.item(
                    f"{part.store.kind}.drafts",
                    draft_tokens=self.settings.speculative_tokens,
                    recurrent_elements=kept["recurrent_elements"],
                    state_bytes=kept["state_bytes"],
                    layers=part.layers,
                )
            )
        return total("state.drafts", "B", made)

    def view(self, longest: int, batch: int) -> PoolView:
        wastes = self._wastes()
        allocated = total("allocated", "B", [self.cache.per_request, *wastes])
        most = self.limiting.requests
        return PoolView(
            self.settings,
            self.number,
            self.page * self.place.dcp,
            self.pools,
            self.limiting.kind,
            most,
            allocated,
            self.cache.per_request,
            wastes,
            int(most.value) >= 1,
            self._short(),
            self._max_context(longest, batch),
        )

    def _wastes(self) -> tuple[Item, ...]:
        dcp = self.place.dcp
        made = []
        for pool in self.pools:
            if pool.kind == "state":
                surplus = slot_surplus.item(
                    "waste.extra_state_slots",
                    slots_per_request=pool.request,
                    slot_bytes=self._slot(),
                    draft_bytes=self._drafts(),
                )
                made.append(surplus)
        grown = [part for part in self.full if part.growth is Growth.GROWING]
        whole = [part for part in self.full if part.growth is not Growth.GROWING]
        made += self._token_wastes(grown, "tokens", "waste.last_page", dcp)
        made += self._token_wastes(whole, "tokens", "waste.kept_whole", dcp)
        made += self._token_wastes(self.local, "window", "waste.window_page", 1)
        return tuple(made)

    def _token_wastes(self, parts: list[Component], kind: str, key: str, dcp: int) -> list[Item]:
        """Rows beyond the formulas', apart for windows that are kept whole."""
        pool = next((pool for pool in self.pools if pool.kind == kind), None)
        if pool is None or not parts:
            return []
        made = []
        for part in parts:
            held = self.context
            if part.growth is not Growth.GROWING:
                held = min(self.context, part.store.limit)
            made.append(
                token_waste.item(
                    f"{key}.{part.store.kind}.{part.store.name}",
                    pool_tokens=pool.request,
                    held_tokens=held,
                    cell_bytes=self._cell([part], f"{part.store.kind}.cell"),
                    dcp=dcp,
                )
            )
        return [total(key, "B", made)]

    def _short(self) -> int:
        """Bytes by which the least pool misses one request, as if it alone were short."""
        if int(self.limiting.requests.value) >= 1:
            return 0
        pool = self.limiting
        if pool.kind == "state":
            need = int(pool.request.value) * int(self._slot().value)
            return max(1, need + int(self._slot().value) - int(pool.budget.value))
        cell = self._cell(self.full if pool.kind == "tokens" else self.local, "cell").value
        missing = (int(pool.request.value) - int(pool.size.value)) / self.place.dcp
        return max(1, int(missing * cell))

    def _max_context(self, longest: int, batch: int) -> int | None:
        """The longest requests of a batch; windows and states do not limit a length."""
        others = [pool for pool in self.pools if pool.kind != "tokens"]
        if any(int(pool.requests.value) < batch for pool in others):
            return 0
        tokens = next((pool for pool in self.pools if pool.kind == "tokens"), None)
        if tokens is None:
            return None
        page = self.page * self.place.dcp
        most = int(tokens.size.value) // batch // page * page
        return None if most >= longest else most


def _fit(kind: str, size: Item, each: Item) -> Item:
    return requests_in_tokens.item(f"{kind}.requests", pool_tokens=size, held_tokens=each)


def printed_sizes(stage: StageCache, slots: int, pool_tokens: int) -> dict[str, Item]:
    """The sizes that SGLang logs when it allocates: conv and recurrent states, and K."""
    states = [part for part in stage.components if part.growth is Growth.STATE]
    rows = [part for part in stage.components if part.growth is Growth.GROWING]
    parts = {"conv_gib": ("conv_elements", "conv_bytes")}
    parts["recurrent_gib"] = ("recurrent_elements", "state_bytes")
    made = {
        name: total(
            f"printed.{name}",
            "B",
            [
                printed_states.item(
                    f"printed.{part.store.kind}.{name}",
                    slots=slots,
                    elements=part.store.bytes.arguments[elements],
                    element_bytes=part.store.bytes.arguments[width],
                    layers=part.layers,
                )
                for part in states
            ],
        )
        for name, (elements, width) in parts.items()
    }
    made["k_gib"] = total(
        "printed.k_gib",
        "B",
        [
            printed_keys.item(
                f"printed.{part.store.kind}.k",
                pool_tokens=pool_tokens,
                row_bytes=part.store.bytes,
                layers=part.layers,
            )
            for part in rows
            if part.store.name == "kv"
        ],
    )
    return made
