"""Prefix reuse: what a hit needs of each layer group, and how long a prefix is usable.

A *chunk* is the unit in which a group's cache is kept: a block, a page or a stored object.
Chunk ``i`` of size ``b`` holds tokens ``[i b, (i + 1) b)``; a state's chunk ``i`` is the
snapshot at token ``(i + 1) b``. A *boundary* is a token count from which computing can go
on. The rules below say which chunks a boundary needs; the usable prefix is the longest
boundary whose chunks are all there. ``calc.reference.prefix`` is a cache that searches as the
engines do, and finds the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from calc.chunks import Chunks
from calc.errors import CalcError, shown
from calc.items import Item, Status, formula
from calc.layers import Growth
from calc.units import Number, ceil_div, exact_div, greater, lesser

LMCACHE_CHUNK = 256
"""LMCache 0.5.6 v1/config.py: tokens of a chunk when nobody names one."""
TRACK_INTERVAL = 256
"""SGLang 0.5.23: tokens between tracked states (mamba_track_interval)."""
COORDINATOR = "vLLM 0.33 v1/core/kv_cache_coordinator.py HybridKVCacheCoordinator"
MANAGERS = "vLLM 0.33 v1/core/single_type_kv_cache_manager.py"
MOST_TOKENS = 2**24


class Rule(StrEnum):
    """Whose rule is applied. ``IDEAL`` is what the arithmetic of the layers needs."""

    IDEAL = "ideal"
    VLLM = "vllm"
    SGLANG = "sglang"
    LMCACHE = "lmcache"


class Cut(StrEnum):
    """Why a usable prefix ends where it ends."""

    COMPLETE = "complete"  # nothing is lost
    LAST_TOKEN = "last_token"  # noqa: S105 - the last token is computed again, for its logits
    PARTIAL = "partial"  # what is left fills no whole chunk
    MISSING = "missing"  # a chunk from the start on is not there
    WINDOW = "window"  # a chunk inside the window is not there
    CHUNK = "chunk"  # a chunk of the current attention chunk is not there
    SNAPSHOT = "snapshot"  # no state was saved there
    DRAFT = "draft"  # a drafting group gives its last chunk up
    LOOKAHEAD = "lookahead"  # the last chunk's key covers tokens behind it, which are not shared
    OFF = "off"  # the engine looks nothing up
    ALIGNMENT = "alignment"  # the end is no multiple of what all groups have in common


@formula(
    unit="tokens",
    source="the last token's logits are needed to go on; vLLM 0.33 get_request_block_hasher",
)
def longest_hit(prefix: int, new_tokens: int, lookahead: int) -> Number:
    """Tokens that a hit may skip: the prefix, less the tokens behind a block that its key covers
    (vLLM while drafting), and never the request's last token."""
    return greater(0, lesser(prefix - lookahead, prefix + new_tokens - 1))


@formula(unit="chunks", source=f"{MANAGERS} SlidingWindowManager", status=Status.ENGINE)
def window_chunks_vllm(window: int, block_size: int) -> Number:
    """Blocks before the boundary: the next token reads itself and w - 1 tokens before it."""
    return ceil_div(window - 1, block_size)


@formula(
    unit="chunks",
    source="SGLang 0.5.23 mem_cache/unified_cache/components/swa.py; LMCache 0.5.6 fold.py",
    status=Status.ENGINE,
)
def window_chunks_whole(window: int, block_size: int) -> Number:
    """Pages or chunks before the boundary that hold w tokens."""
    return ceil_div(window, block_size)


@formula(unit="tokens", source="engine-wide block of a striped group", status=Status.ENGINE)
def striped_block(block_size: int, dcp: int) -> int:
    """Tokens of a block over all the ranks that stripe it."""
    return block_size * dcp


@formula(unit="tokens", source=f"{COORDINATOR} (least common multiple)", status=Status.ENGINE)
def hit_alignment(block_size: int, other_block: int, common_divisor: int) -> int:
    """Tokens of which every hit is a multiple: the least that all groups' blocks divide."""
    return exact_div(block_size * other_block, common_divisor)


@formula(unit="tokens", source="whole alignments only", status=Status.ENGINE)
def aligned_length(tokens: int, alignment: int) -> Number:
    """The longest hit that the alignment allows, with nothing missing."""
    return tokens // alignment * alignment


@formula(unit="tokens", source="what is not skipped is computed")
def recomputed_tokens(prefix: int, new_tokens: int, hit_tokens: int) -> Number:
    """Tokens of the request that still go through a prefill."""
    return prefix + new_tokens - hit_tokens


@dataclass(frozen=True, slots=True)
class ReuseGroup:
    """Layers that are looked up together.

    ``chunk`` tokens make one chunk; ``limit`` is the window or attention chunk; ``drafted``
    groups hold a draft's layer too (EAGLE, MTP) and give up the last chunk of a match.
    """

    id: str
    kind: str
    growth: Growth
    layers: int
    chunk: int
    limit: int = 0
    drafted: bool = False
    block: Item | None = None

    def chunks(self, tokens: int) -> int:
        """Whole chunks in so many tokens."""
        return tokens // self.chunk


@dataclass(frozen=True, slots=True)
class GroupHit:
    """One group: how far it alone would go, and what the common boundary needs of it.

    ``usable`` ignores the other groups; ``cut`` says why it is not longer and ``blocking`` is
    the chunk that is not there. ``needed`` are the chunks that the common boundary needs.
    """

    group: ReuseGroup
    usable: int
    cut: Cut
    blocking: int | None
    needed: range
    missing: Chunks


@dataclass(frozen=True, slots=True)
class Hit:
    """The usable prefix. ``binding`` is the group that stops the next boundary, if one does."""

    rule: Rule
    prefix: int
    new_tokens: int
    longest: Item
    alignment: Item | int
    groups: tuple[GroupHit, ...]
    tokens: int
    recomputed: Item
    cut: Cut
    binding: str | None
    blocking: int | None

    @property
    def align(self) -> int:
        return int(self.alignment.value) if isinstance(self.alignment, Item) else self.alignment


def window_chunks(group: ReuseGroup, rule: Rule) -> Item:
    """Chunks of its window that a group needs before a boundary, by the rule of an engine."""
    made = window_chunks_vllm if rule is Rule.VLLM else window_chunks_whole
    return made.item(f"{group.kind}.window_chunks", window=group.limit, block_size=group.chunk)


def needs(group: ReuseGroup, boundary: int, rule: Rule) -> range:
    """The chunks that going on from a boundary needs of a group, itself a multiple of chunks."""
    end = boundary // group.chunk
    match group.growth:
        case Growth.WINDOW if rule is Rule.IDEAL:
            first = max(0, boundary - group.limit) // group.chunk
        case Growth.WINDOW:
            first = max(0, end - int(window_chunks(group, rule).value))
        case Growth.CHUNK:
            first = boundary // group.limit * group.limit // group.chunk
        case Growth.STATE:
            first = max(0, end - 1)
        case _:
            first = 0
    return range(first, end)


def _lacking(
    group: ReuseGroup, boundary: int, missing: Chunks, rule: Rule, reach: int
) -> tuple[Cut, int | None] | None:
    """Why a group cannot go on from a boundary, and the chunk it lacks; None where it can."""
    if boundary % group.chunk:
        return Cut.PARTIAL, None
    needed = needs(group, boundary, rule)
    # a drafting group has to find one chunk more than it uses; states never give one up
    drop = rule is Rule.VLLM and group.drafted and group.growth is not Growth.STATE
    place = bisect_left(missing, needed.start)
    if place < len(missing) and missing[place] < needed.stop:
        return REASON[group.growth], missing[place]
    if drop and boundary:
        if (needed.stop + 1) * group.chunk > reach:
            return Cut.DRAFT, None
        if needed.stop in missing:
            return Cut.DRAFT, needed.stop
    return None


REASON = {
    Growth.GROWING: Cut.MISSING,
    Growth.WINDOW: Cut.WINDOW,
    Growth.CHUNK: Cut.CHUNK,
    Growth.STATE: Cut.SNAPSHOT,
}


def usable(
    groups: Sequence[ReuseGroup],
    prefix: int,
    missing: Mapping[str, Iterable[int]],
    rule: Rule,
    new_tokens: int = 1,
    enabled: bool = True,
    lookahead: int = 0,
) -> Hit:
    """The usable prefix of a request that shares ``prefix`` tokens with an earlier one.

    ``missing`` names the chunks of each group that are not in the cache; whole chunks of the
    prefix that it does not name are there. ``enabled`` False: prefix caching is off.
    ``lookahead``: tokens behind a chunk that its key covers.
    """
    gone = {name: Chunks.of(chunks) for name, chunks in missing.items()}
    _check(groups, prefix, gone, new_tokens)
    gone = {group.id: gone.get(group.id, Chunks()) for group in groups}
    longest = longest_hit.item(
        "reuse.longest", prefix=prefix, new_tokens=new_tokens, lookahead=lookahead
    )
    # LMCache matches whole chunks of the request and lets the engine compute the last token,
    # unless there are states, which cannot step back one token
    states = any(group.growth is Growth.STATE for group in groups)
    most = prefix if rule is Rule.LMCACHE and not states else int(longest.value)
    most = most if enabled else 0
    alignment = _alignment(groups, rule)
    align = int(alignment.value) if isinstance(alignment, Item) else alignment
    # nothing behind the first chunk that full attention lacks can be used
    first = min(
        (gone[g.id][0] * g.chunk for g in groups if g.growth is Growth.GROWING and gone[g.id]),
        default=most,
    )
    # vLLM's hybrid coordinator looks one chunk further for a group that gives one up
    reach = prefix if len(groups) > 1 else most
    common = _common(groups, gone, rule, align, min(first, most), reach)
    cut, binding, blocking = _why(groups, gone, rule, common + align, most, reach)
    tokens = min(common, int(longest.value))
    shortened = Cut.LOOKAHEAD if lookahead else Cut.LAST_TOKEN
    if tokens == prefix:
        cut = Cut.COMPLETE
    elif cut in (Cut.PARTIAL, Cut.ALIGNMENT) and most < common + align <= prefix:
        cut = shortened
    elif common == prefix:
        cut = Cut.LAST_TOKEN
    cut = cut if enabled else Cut.OFF
    alone = tuple(
        _alone(group, gone[group.id], rule, most, common, prefix, reach) for group in groups
    )
    alone = tuple(
        replace(one, cut=shortened) if one.cut is Cut.LAST_TOKEN else one for one in alone
    )
    return Hit(
        rule,
        prefix,
        new_tokens,
        longest,
        alignment,
        alone if enabled else tuple(replace(one, cut=Cut.OFF) for one in alone),
        tokens,
        recomputed_tokens.item(
            "reuse.recomputed", prefix=prefix, new_tokens=new_tokens, hit_tokens=tokens
        ),
        cut,
        binding,
        blocking,
    )


def _common(
    groups: Sequence[ReuseGroup],
    gone: Mapping[str, Chunks],
    rule: Rule,
    align: int,
    start: int,
    reach: int,
) -> int:
    """The longest boundary that suits all groups.

    What a group lacks, it lacks at further boundaries too; the search goes behind all of them at
    once, so that its steps are as many as the runs of missing chunks.
    """
    boundary = start // align * align
    while boundary > 0:
        lacks = ((g, _lacking(g, boundary, gone[g.id], rule, reach)) for g in groups)
        found = next(((group, lack[1]) for group, lack in lacks if lack is not None), None)
        if found is None:
            return boundary
        group, chunk = found
        before = boundary - align
        if chunk is not None:
            before = min(before, _behind(group, boundary, chunk, gone[group.id], align))
        boundary = before
    return 0


def _behind(group: ReuseGroup, boundary: int, chunk: int, gone: Chunks, align: int) -> int:
    """The first boundary before one that lacks a chunk at which the group may lack nothing.

    A boundary behind the start of the chunk's run lacks the chunk itself or the run's last one
    before the boundary; only where an attention chunk begins, nothing before it is needed.
    """
    run = gone.run(chunk)
    assert run is not None
    start = run.start * group.chunk // align * align
    if group.growth is not Growth.CHUNK:
        return start
    begins = math.lcm(align, group.limit)
    return max(start, (boundary - 1) // begins * begins)


def _why(
    groups: Sequence[ReuseGroup],
    gone: Mapping[str, Chunks],
    rule: Rule,
    boundary: int,
    most: int,
    reach: int,
) -> tuple[Cut, str | None, int | None]:
    """What stops the next boundary, in the order in which the engine asks the groups."""
    if boundary > most:
        whole = all(group.chunk == groups[0].chunk for group in groups)
        return (Cut.PARTIAL if whole else Cut.ALIGNMENT), None, None
    for group in groups:
        if (lacks := _lacking(group, boundary, gone[group.id], rule, reach)) is not None:
            return lacks[0], group.id, lacks[1]
    raise AssertionError("the next boundary would have been found")


def _alone(
    group: ReuseGroup,
    gone: Chunks,
    rule: Rule,
    most: int,
    common: int,
    prefix: int,
    reach: int,
) -> GroupHit:
    best = group.chunks(most) * group.chunk
    if group.growth is Growth.GROWING and gone:
        best = min(best, gone[0] * group.chunk)
    best = _common([group], {group.id: gone}, rule, group.chunk, best, reach)
    following = best + group.chunk
    cut: Cut
    blocking: int | None = None
    if best == prefix:
        cut = Cut.COMPLETE
    elif following > most:
        cut = Cut.LAST_TOKEN if following <= prefix else Cut.PARTIAL
    else:
        found = _lacking(group, following, gone, rule, reach)
        assert found is not None
        cut, blocking = found
    return GroupHit(group, best, cut, blocking, needs(group, common, rule), gone)


def _alignment(groups: Sequence[ReuseGroup], rule: Rule) -> Item | int:
    """Tokens of which a hit is a multiple; what all groups' chunks divide."""
    found: Item | int = groups[0].block or groups[0].chunk
    size = groups[0].chunk
    for group in groups[1:]:
        if size % group.chunk == 0:
            continue
        found = hit_alignment.item(
            "reuse.alignment",
            block_size=found,
            other_block=group.block or group.chunk,
            common_divisor=math.gcd(size, group.chunk),
        )
        size = int(found.value)
    return found


def _check(
    groups: Sequence[ReuseGroup],
    prefix: int,
    missing: Mapping[str, Chunks],
    new_tokens: int,
) -> None:
    for name, value, least in (("prefix", prefix, 1), ("new_tokens", new_tokens, 0)):
        if type(value) is not int or not least <= value <= MOST_TOKENS:
            raise CalcError(
                "out_of_range", name, given=shown(value), minimum=least, maximum=MOST_TOKENS
            )
    if not groups:
        raise CalcError("reuse_nothing")
    known = {group.id for group in groups}
    for name in missing:
        if name not in known:
            raise CalcError("reuse_group", given=shown(name), allowed=", ".join(sorted(known)))
    for group in groups:
        if group.chunk < 1:
            raise CalcError("reuse_block", group=group.id, given=group.chunk)
        if group.growth is Growth.WINDOW and group.limit > prefix:
            raise CalcError("reuse_window", window=group.limit, prefix=prefix)
        count = group.chunks(prefix)
        for run in missing.get(group.id, Chunks()).runs:
            if run.start < 0 or run.stop > count:
                outside = run.start if run.start < 0 else max(run.start, count)
                raise CalcError("reuse_range", group=group.id, given=outside, count=count)
