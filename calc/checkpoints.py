"""State snapshots: how often to save one, against what they weigh and what a miss costs.

A hit can end only where a snapshot was saved, so the tokens behind the last one are computed
again. Dense snapshots cost storage and writes, sparse ones recomputing; in between lies a best
interval for a given distribution of hits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calc.errors import CalcError
from calc.items import Item, Status, formula
from calc.units import Number

MOST_DRAWN = 200
Whole = npt.NDArray[np.int64]


@formula(unit="snapshots", source="one at the end of every interval")
def checkpoints_kept(prefix: int, interval: int) -> Number:
    """Snapshots along one prefix."""
    return prefix // interval


@formula(unit="B", source="every snapshot is a whole state")
def checkpoint_bytes(state_bytes: int, checkpoints: Number) -> Number:
    """Storage of one prefix's snapshots on a rank."""
    return state_bytes * checkpoints


@formula(unit="B/s", source="one state for every interval of tokens", status=Status.ESTIMATE)
def checkpoint_write_rate(state_bytes: int, tokens_per_second: float, interval: int) -> Number:
    """Write bandwidth of a rank that prefills so many tokens a second."""
    return state_bytes * tokens_per_second / interval


@formula(unit="tokens", source="hits end anywhere in the prefix with equal chance")
def mean_recompute(prefix: int, interval: int) -> Number:
    """Tokens computed again on average: those behind the last snapshot, over all of the prefix.

    Each whole interval counts 0 to I - 1, what is left behind the last one the same from 0.
    """
    return (
        (prefix // interval) * interval * (interval - 1)
        + (prefix % interval) * (prefix % interval - 1)
    ) / (2 * prefix)


@formula(unit="tokens", source="tokens behind the last snapshot, weighted by how often")
def weighted_recompute(tokens: Number, batch: int) -> Number:
    """Tokens computed again on average over hits of given lengths."""
    return tokens / batch


@formula(unit="µs", source="computing again and writing, of one request", status=Status.ESTIMATE)
def checkpoint_cost_us(
    hits: float, recomputed: Number, token_us: Number, written_bytes: Number, link_rate: float
) -> Number:
    """What an interval costs a rank for each prefix that is written and then hit."""
    return hits * recomputed * token_us + 1000000 * written_bytes / link_rate


@formula(unit="µs", source="a prefix's computing time, spread evenly", status=Status.ESTIMATE)
def each_token_us(recompute_us: Number, prefix: int) -> Number:
    """What computing one more token of the prefix takes."""
    return recompute_us / prefix


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval with its costs."""

    tokens: int
    kept: Item
    storage: Item
    write_rate: Item
    recompute: Item
    cost: Item


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the snapshots.

    A prefix of ``prefix`` tokens is written once and hit ``hits`` times, at the ``lengths``
    (tokens, how often), or anywhere where there are none. ``token_us`` is what computing one
    token takes, ``link_rate`` what storage takes in.
    """

    prefix: int
    hits: float
    token_us: Number | Item
    link_rate: float
    tokens_per_second: float
    lengths: tuple[tuple[int, int], ...] = ()


def interval_cost(state: Item, interval: int, unit: int, work: Workload) -> Interval:
    """One interval; it must be a multiple of ``unit``, where a state can be saved."""
    if interval < 1 or interval % unit:
        raise CalcError("reuse_interval", interval=interval, unit=unit)
    kept = checkpoints_kept.item("checkpoints.kept", prefix=work.prefix, interval=interval)
    storage = checkpoint_bytes.item("checkpoints.storage", state_bytes=state, checkpoints=kept)
    again = _recompute(interval, work)
    return Interval(
        interval,
        kept,
        storage,
        checkpoint_write_rate.item(
            "checkpoints.write_rate",
            state_bytes=state,
            tokens_per_second=work.tokens_per_second,
            interval=interval,
        ),
        again,
        checkpoint_cost_us.item(
            "checkpoints.cost",
            hits=work.hits,
            recomputed=again,
            token_us=work.token_us,
            written_bytes=storage,
            link_rate=work.link_rate,
        ),
    )


def _recompute(interval: int, work: Workload) -> Item:
    if not work.lengths:
        return mean_recompute.item("checkpoints.recompute", prefix=work.prefix, interval=interval)
    return weighted_recompute.item(
        "checkpoints.recompute", tokens=_behind(interval, work), batch=_hits(work)
    )


def _behind(interval: Number, work: Workload) -> Number:
    """Tokens behind the last snapshot, summed over the hits of known lengths."""
    return sum(tokens % interval * often for tokens, often in work.lengths)


def _hits(work: Workload) -> int:
    return sum(often for _, often in work.lengths)


def trade_off(state: Item, unit: int, work: Workload) -> tuple[Interval, ...]:
    """Intervals from ``unit`` to the whole prefix: all multiples, or an even choice of many."""
    most = _multiples(unit, work)
    chosen = range(1, most + 1)
    picked: Sequence[int] = chosen
    if most > MOST_DRAWN:
        picked = sorted({round(most ** (place / MOST_DRAWN)) for place in range(MOST_DRAWN + 1)})
    return tuple(interval_cost(state, multiple * unit, unit, work) for multiple in picked)


def best(state: Item, unit: int, work: Workload) -> Interval:
    """The cheapest of all multiples of ``unit``; the longer one where two cost the same."""
    _multiples(unit, work)
    sizes = _candidates(unit, work) * unit
    if work.lengths:
        again = weighted_recompute.value(tokens=_behind(sizes, work), batch=_hits(work))
    else:
        again = mean_recompute.value(prefix=work.prefix, interval=sizes)
    # as integers, bytes times microseconds of millions of snapshots would overflow 64 bits
    kept = checkpoints_kept.value(prefix=work.prefix, interval=sizes).astype(float)
    costs = checkpoint_cost_us.value(
        hits=work.hits,
        recomputed=again,
        token_us=work.token_us,
        written_bytes=checkpoint_bytes.value(state_bytes=state, checkpoints=kept),
        link_rate=work.link_rate,
    )
    cheapest = int(sizes[np.flatnonzero(costs == costs.min())[-1]])
    return interval_cost(state, cheapest, unit, work)


def _candidates(unit: int, work: Workload) -> Whole:
    """Multiples among which the cheapest is.

    While the whole intervals in the prefix, and in each hit, stay as many, the cost of a longer
    one only rises (hits anywhere: it is least at P / (k + 1) for k of them) or only falls (hits at
    known lengths). So it is at the first or at the last multiple of such a stretch.
    """
    known = [tokens // unit for tokens, _ in work.lengths]
    last = np.unique(np.concatenate([_last(count) for count in (work.prefix // unit, *known)]))
    return np.union1d(last, np.concatenate([[1], last[:-1] + 1]))


def _last(count: int) -> Whole:
    """The last m of each stretch in which ``count // m`` is the same, up to ``count``."""
    root = np.arange(1, math.isqrt(count) + 1)
    return np.union1d(root, count // root)


def _multiples(unit: int, work: Workload) -> int:
    """How many multiples of ``unit`` a prefix has room for; at least one."""
    if unit < 1:
        raise CalcError("out_of_range", "unit", given=unit, minimum=1, maximum=work.prefix)
    for tokens, _ in work.lengths:
        if tokens > work.prefix:
            raise CalcError("out_of_range", "lengths", given=tokens, minimum=1, maximum=work.prefix)
    if work.prefix < unit:
        raise CalcError("reuse_interval", interval=work.prefix, unit=unit)
    return work.prefix // unit
