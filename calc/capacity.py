"""Cache bytes: per token, per request, per rank and per replica, and what fits.

All per-rank figures are those of the fullest rank on the pipeline stage that
holds most. Growing, window and state bytes are kept apart throughout.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calc.items import Item, formula, total
from calc.layers import Growth, Mixer, Sharding, Store
from calc.layout import Layout
from calc.model import Layer, ModelSpec
from calc.units import Number, exact_div, greater

CONTEXT_LIMIT = 2**40
"""A context beyond which a cache counts as not growing at all, tokens."""


@formula(unit="B", source="each of the tp/dcp DCP groups of a stage holds every token once")
def rows_per_replica(
    row_bytes: int, layers: int, held_tokens: Number, tp: int, dcp: int, pcp: int
) -> Number:
    """Rows of one request on all ranks of a pipeline stage, copies included."""
    return row_bytes * layers * held_tokens * exact_div(tp, dcp) * pcp


@formula(unit="B", source="each TP rank holds its part of the state")
def states_per_replica(bytes_per_layer: int, layers: int, tp: int) -> int:
    """States of one request on all ranks of a pipeline stage."""
    return bytes_per_layer * layers * tp


@formula(unit="requests", source="whole requests that fit")
def requests_that_fit(budget_bytes: int, request_bytes: Number) -> Number:
    """Requests of one replica at this context, each of the same length."""
    return budget_bytes // request_bytes


@formula(unit="B", source="all requests of one replica at this context")
def batch_bytes(request_bytes: Number, batch: Number) -> Number:
    """Cache of a whole batch on the fullest rank."""
    return request_bytes * batch


@formula(unit="B", source="every replica holds its own requests in full")
def deployment_bytes(request_bytes: Number, batch: Number, dp: int) -> Number:
    """Cache of all requests of all replicas; ``request_bytes`` is a request on a whole replica."""
    return request_bytes * batch * dp


@dataclass(frozen=True, slots=True)
class Component:
    """One store of one kind over the layers of a stage that have it.

    ``drafts``: of the MTP layers, which keep it while they draft.
    """

    store: Store
    layers: int
    per_token: Item | None
    per_request: Item
    drafts: bool = False

    @property
    def growth(self) -> Growth:
        return self.store.growth


@dataclass(frozen=True, slots=True)
class StageCache:
    """What one rank of one pipeline stage keeps for one request."""

    components: tuple[Component, ...]
    growing_per_token: Item
    window_per_request: Item
    state_per_request: Item
    per_request: Item


@dataclass(frozen=True, slots=True)
class Cache:
    """The stage that binds, and the whole replica."""

    stages: tuple[StageCache, ...]
    binding: int
    per_replica: Item
    batch: Item

    @property
    def stage(self) -> StageCache:
        """The stage whose ranks hold most."""
        return self.stages[self.binding]


@dataclass(frozen=True, slots=True)
class Fit:
    """What a cache budget holds; ``max_context`` is None when nothing grows.

    ``stage`` is the pipeline stage that sets the largest batch; ``short_bytes`` what the batch
    misses on the stage that misses most, with what the weights alone miss there.
    """

    budget_bytes: int
    max_requests: Item
    max_context: int | None
    fits: bool
    short_bytes: int
    stage: int = 0


def cache(model: ModelSpec, layout: Layout, place: Sharding, context: int, batch: int) -> Cache:
    """Cache of one request of ``context`` tokens, and of ``batch`` of them."""
    stages = stage_caches(model, layout, place, context)
    binding = max(range(len(stages)), key=lambda index: stages[index].per_request.value)
    replica = total(
        "cache.replica",
        "B",
        (
            _on_replica(component, place, layout.pcp, context, f"stage{index}.")
            for index, stage in enumerate(stages)
            for component in stage.components
        ),
    )
    whole_batch = batch_bytes.item(
        "cache.batch", request_bytes=stages[binding].per_request, batch=batch
    )
    return Cache(stages, binding, replica, whole_batch)


def stage_caches(
    model: ModelSpec, layout: Layout, place: Sharding, context: int
) -> tuple[StageCache, ...]:
    """Cache of one request on a rank of each pipeline stage; equal stages are one object.

    The MTP layers are on the last stage, where they draft.
    """
    cut = model.stages(layout.pp, layout.stage_layers)
    made = {layers: stage_cache(layers, place, context) for layers in set(cut)}
    stages = tuple(made[layers] for layers in cut)
    if place.drafting and model.mtp_layers:
        last = stage_cache(cut[-1], place, context, model.mtp_layers)
        return (*stages[:-1], last)
    return stages


def stage_cache(
    layers: tuple[Layer, ...], place: Sharding, context: int, drafts: tuple[Layer, ...] = ()
) -> StageCache:
    """Cache of one request on one rank that holds these layers, and these that draft."""
    components = (
        *_components(layers, place, context),
        *_components(drafts, place.of_drafts(), context, drafts=True),
    )
    growing = [part for part in components if part.growth is Growth.GROWING]
    capped = [part for part in components if part.growth in (Growth.WINDOW, Growth.CHUNK)]
    fixed = [part for part in components if part.growth is Growth.STATE]
    return StageCache(
        components,
        total("cache.growing", "B/token", (p.per_token for p in growing if p.per_token)),
        total("cache.window", "B", (part.per_request for part in capped)),
        total("cache.state", "B", (part.per_request for part in fixed)),
        total("cache.request", "B", (part.per_request for part in components)),
    )


def _components(
    layers: tuple[Layer, ...], place: Sharding, context: int, drafts: bool = False
) -> Iterator[Component]:
    for mixer, count in mixer_counts(layers).items():
        for store in mixer.stores(place):
            per_token = None if store.growth is Growth.STATE else store.per_token(count)
            yield Component(store, count, per_token, store.per_request(count, context), drafts)


def mixer_counts(layers: tuple[Layer, ...]) -> Counter[Mixer]:
    """How many layers have each distinct mixer."""
    counts: Counter[Mixer] = Counter()
    for layer in layers:
        for mixer in layer.mixers:
            counts[mixer] += layer.count
    return counts


def fit(held: Cache, budget: int | Sequence[int], batch: int) -> Fit:
    """The largest batch at this context, and the largest context at this batch.

    ``budget``: bytes of one rank, the same on every pipeline stage or one for each; below zero
    where the weights alone are too much.
    """
    return fit_stages(held.stages, _by_stage(held, budget), batch)


def fit_stages(stages: Sequence[StageCache], budgets: Sequence[int], batch: int) -> Fit:
    """The same for stages with a budget each."""
    short = max(
        batch * int(stage.per_request.value) - left
        for stage, left in zip(stages, budgets, strict=True)
    )
    budgets = [max(0, left) for left in budgets]
    full = [number for number, stage in enumerate(stages) if stage.per_request.value]
    binding = min(full, key=lambda number: budgets[number] / int(stages[number].per_request.value))
    most = requests_that_fit.item(
        "fit.requests",
        budget_bytes=budgets[binding],
        request_bytes=stages[binding].per_request,
    )
    return Fit(
        budgets[binding],
        most,
        _longest(stages, budgets, batch),
        short <= 0,
        max(0, short),
        binding,
    )


def _by_stage(held: Cache, budget: int | Sequence[int]) -> tuple[int, ...]:
    return (budget,) * len(held.stages) if isinstance(budget, int) else tuple(budget)


def request_bytes(held: Cache, context: int) -> Number:
    """Bytes of one request of another length on the fullest rank."""
    return functools.reduce(greater, (stage_request_bytes(stage, context) for stage in held.stages))


def stage_request_bytes(stage: StageCache, context: int) -> Number:
    """The same on the ranks of one pipeline stage."""
    return sum(part.store.request_bytes(part.layers, context) for part in stage.components)


def longest_context(held: Cache, budget: int | Sequence[int], batch: int) -> int | None:
    """Most tokens of each of ``batch`` requests that fit; None if the cache does not grow.

    The bytes never fall with the context, so the answer is found by halving
    and is exact: one token more does not fit.
    """
    return _longest(held.stages, _by_stage(held, budget), batch)


def _longest(stages: Sequence[StageCache], budgets: Sequence[int], batch: int) -> int | None:
    def fits(context: int) -> bool:
        return all(
            batch * stage_request_bytes(stage, context) <= left
            for stage, left in zip(stages, budgets, strict=True)
        )

    if fits(CONTEXT_LIMIT):
        return None
    held_by, too_long = 0, CONTEXT_LIMIT
    # from a guess outwards in growing strides, until one end fits and the other does not
    guess, stride = _guess(stages, budgets, batch), 1
    while held_by < guess < too_long:
        if fits(guess):
            held_by, guess = guess, guess + stride
        else:
            too_long, guess = guess, guess - stride
        stride *= 8
    while too_long - held_by > 1:
        middle = (held_by + too_long) // 2
        held_by, too_long = (middle, too_long) if fits(middle) else (held_by, middle)
    return held_by


def _guess(stages: Sequence[StageCache], budgets: Sequence[int], batch: int) -> int:
    """About the longest context: the growing rows fill what the rest leaves of a budget."""
    found = CONTEXT_LIMIT
    for stage, left in zip(stages, budgets, strict=True):
        slope = batch * float(stage.growing_per_token.value)
        if slope:
            rest = batch * (stage.window_per_request.value + stage.state_per_request.value)
            found = min(found, int((left - rest) / slope))
    return max(found, 0)


def _on_replica(component: Component, place: Sharding, pcp: int, context: int, prefix: str) -> Item:
    """All ranks of one pipeline stage, copies included (pcp ranks all cache every token)."""
    store = component.store
    key = f"{prefix}{store.kind}.{store.name}.replica"
    if store.growth is Growth.STATE:
        return states_per_replica.item(
            key, bytes_per_layer=store.bytes, layers=component.layers, tp=place.tp
        )
    return rows_per_replica.item(
        key,
        row_bytes=store.bytes,
        layers=component.layers,
        held_tokens=store.rows(context),
        tp=place.tp,
        dcp=store.dcp,
        pcp=pcp,
    )
