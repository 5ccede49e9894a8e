"""vLLM 0.33: layers in groups that draw blocks from one pool.

A block belongs to one group at a time and gives a page to each of its layers,
so that a block weighs what the largest group's pages weigh. The groups are
made for the whole model; each pipeline stage then holds its part of each.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from calc.engines.vllm_pages import Pages
from calc.layers import Growth
from calc.units import ceil_div

PLANNING = "vLLM 0.33 v1/core/kv_cache_planning.py"


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table: ``members`` are (layer, index of its pages)."""

    members: tuple[tuple[int, int], ...]
    lead: Pages

    def on_stage(self, start: int, end: int) -> Counter[int]:
        """How many layers of each pages index this group has on a pipeline stage."""
        return Counter(page for layer, page in self.members if start <= layer < end)


@dataclass(frozen=True, slots=True)
class Grouping:
    """``pages`` after they were made equal (or not); ``path`` names the engine's way.

    ``padding_layers``: places in the groups that no layer takes.
    """

    pages: list[Pages]
    groups: tuple[Group, ...]
    path: str
    padding_layers: int


def make_groups(
    asked: list[Pages], by_layer: list[tuple[int, ...]], equal: list[Pages] | None, packed: bool
) -> Grouping:
    """The engine's choice; ``equal`` are the pages made equal, where that is possible."""
    members = [(layer, page) for layer, kept in enumerate(by_layer) for page in kept]
    if not members:
        return Grouping(asked, (), "none", 0)
    if _uniform([asked[page] for page in {page for _, page in members}]):
        return Grouping(asked, (Group(tuple(members), asked[members[0][1]]),), "uniform", 0)
    mixed = len({one.page_bytes for one in asked}) > 1
    if equal is None or (packed and mixed):
        return _packed(asked, members)
    return _equal(equal, members)


def _uniform(pages: list[Pages]) -> bool:
    """Whether one block table serves all: the same kind, limit and block everywhere."""
    return len({(one.growth, one.limit, one.block_tokens, one.store.dcp) for one in pages}) == 1


def _equal(pages: list[Pages], members: list[tuple[int, int]]) -> Grouping:
    """Groups of equally many layers; a type that does not divide leaves places empty."""
    buckets: dict[object, list[tuple[int, int]]] = {}
    for layer, page in members:
        buckets.setdefault(_merge_key(pages[page]), []).append((layer, page))
    size = group_size([len(bucket) for bucket in buckets.values()])
    groups: list[Group] = []
    padding = 0
    for bucket in buckets.values():
        count = int(ceil_div(len(bucket), size))
        padding += count * size - len(bucket)
        groups += [
            Group(tuple(bucket[first::count]), pages[bucket[first][1]]) for first in range(count)
        ]
    return Grouping(pages, tuple(groups), "equal", padding)


def group_size(counts: list[int]) -> int:
    """Layers in a group: the rarest type's, or the commonest's where they are close.

    >>> group_size([24, 69]), group_size([13, 12])
    (24, 13)
    """
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def _merge_key(one: Pages) -> object:
    return (
        one.growth,
        one.limit,
        one.block_tokens,
        one.store.bytes.value,
        one.latent,
        one.page_bytes,
    )


def _packed(pages: list[Pages], members: list[tuple[int, int]]) -> Grouping:
    """Pages of different size side by side in a block, as the block-outermost layouts allow."""
    buckets: dict[object, list[tuple[int, int]]] = {}
    for layer, page in members:
        one = pages[page]
        key = (one.growth, one.limit, one.block_tokens, one.store.dcp)
        buckets.setdefault(key, []).append((layer, page))
    shapes = [_shape(bucket, pages) for bucket in buckets.values()]
    floor = max((max(s.values()) for s in shapes if _balanced(s) and len(s) > 1), default=0)
    repeats = (
        approximate_gcd([max(s.values()) for s in shapes if _balanced(s)], floor) if floor else None
    )
    counts = [
        int(ceil_div(max(s.values()), repeats)) if repeats and _balanced(s) else 1 for s in shapes
    ]
    kinds = [pages[bucket[0][1]].growth for bucket in buckets.values()]
    anchor = max(
        _widest(shape, len(bucket) if kind is Growth.STATE else count)
        for shape, count, kind, bucket in zip(shapes, counts, kinds, buckets.values(), strict=True)
    )
    groups: list[Group] = []
    for shape, count, kind, bucket in zip(shapes, counts, kinds, buckets.values(), strict=True):
        ways = count
        if kind is Growth.STATE:
            held = max(anchor // max(shape), 1)
            ways = max(ways, int(ceil_div(len(bucket), held)))
        groups += _split(bucket, pages, ways)
    return Grouping(pages, tuple(groups), "packed", 0)


def _split(bucket: list[tuple[int, int]], pages: list[Pages], ways: int) -> list[Group]:
    """A bucket in ``ways`` groups, each with its share of the layers of every page size."""
    by_size: dict[int, list[tuple[int, int]]] = {}
    for layer, page in bucket:
        by_size.setdefault(pages[page].page_bytes, []).append((layer, page))
    shares = [
        [member for layers in by_size.values() for member in layers[first::ways]]
        for first in range(ways)
    ]
    return [Group(tuple(share), pages[share[0][1]]) for share in shares if share]


def _shape(bucket: list[tuple[int, int]], pages: list[Pages]) -> Counter[int]:
    """How many layers a bucket has of each page size."""
    return Counter(pages[page].page_bytes for _, page in bucket)


def _balanced(shape: Counter[int]) -> bool:
    return len(set(shape.values())) == 1


def _widest(shape: Counter[int], ways: int) -> int:
    return sum(int(ceil_div(count, ways)) * page for page, count in shape.items())


def approximate_gcd(counts: list[int], least: int) -> int:
    """The chunk that pads these counts least; the larger one of equals.

    >>> approximate_gcd([11, 21, 11, 10], 11)
    11
    """
    return min(
        range(max(1, least), max(*counts, least) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
    )
