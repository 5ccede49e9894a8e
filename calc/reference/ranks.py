"""A simulated group of ranks whose collectives move numpy arrays and count the bytes they send.

Every collective is built from one point-to-point `Ranks.send`, which is the only place that writes
the ledger. Values are float64; the bytes are those of the element type said to be on the wire.

A collective takes one array per rank (a list in rank order) and returns the same. `group_size`
cuts the ranks into groups that each run the collective on their own: consecutive ranks, as
decode-context-parallel groups inside a tensor-parallel group, or with a `stride` ranks that far
apart, as the ranks of equal place in several replicas. Without it all ranks are one group.
Algorithms: ring for all-gather, reduce-scatter and all-reduce, pairwise for all-to-all (NVIDIA
nccl-tests, doc/PERFORMANCE.md). A rank's own block stays where it is and is not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Ledger:
    """Bytes that crossed between ranks: `sent[stage][rank]` and `received[stage][rank]` [bytes].

    A stage is there from its first byte on, so one that never sent is absent.
    """

    size: int
    sent: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)

    def record(self, stage: str, src: int, dst: int, nbytes: int) -> None:
        """Book `nbytes` [bytes] from rank `src` to rank `dst`."""
        self.sent.setdefault(stage, [0] * self.size)[src] += nbytes
        self.received.setdefault(stage, [0] * self.size)[dst] += nbytes

    def sent_by(self, rank: int) -> int:
        """Bytes that `rank` sent over all stages [bytes]."""
        return sum(per_rank[rank] for per_rank in self.sent.values())

    def received_by(self, rank: int) -> int:
        """Bytes that `rank` received over all stages [bytes]."""
        return sum(per_rank[rank] for per_rank in self.received.values())


class Ranks:
    """`size` simulated ranks and the ledger of what they sent to each other."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a group needs at least one rank, got {size}")
        self.size = size
        self.ledger = Ledger(size)

    def groups(self, group_size: int | None = None, stride: int = 1) -> list[range]:
        """Groups of `group_size` ranks, `stride` apart; one of all ranks when not given."""
        step = self.size if group_size is None else group_size
        block = step * stride
        if block < 1 or self.size % block:
            raise ValueError(f"groups of {step} do not divide {self.size} ranks")
        return [
            range(first + offset, first + block, stride)
            for first in range(0, self.size, block)
            for offset in range(stride)
        ]

    def send(self, src: int, dst: int, array: Array, wire_itemsize: int, *, stage: str) -> Array:
        """Move `array` from `src` to `dst`: books elements x `wire_itemsize`, returns the copy."""
        if src == dst:
            raise ValueError(f"rank {src} has no link to itself")
        self.ledger.record(stage, src, dst, array.size * wire_itemsize)
        return array.copy()

    def all_gather(
        self,
        shards: Sequence[Array],
        wire_itemsize: int,
        *,
        stage: str,
        axis: int = 0,
        group_size: int | None = None,
        stride: int = 1,
    ) -> list[Array]:
        """Every rank ends with its group's shards, in rank order, joined along `axis`."""
        results: dict[int, Array] = {}
        for group in self._groups_of(shards, group_size, stride):
            own = [shards[rank] for rank in group]
            blocks = self._ring_gather(own, group, wire_itemsize, stage)
            joined = [np.concatenate(held, axis=axis) for held in blocks]
            results |= zip(group, joined, strict=True)
        return self._in_order(results)

    def reduce_scatter(
        self,
        addends: Sequence[Array],
        wire_itemsize: int,
        *,
        stage: str,
        axis: int = 0,
        group_size: int | None = None,
        stride: int = 1,
    ) -> list[Array]:
        """Rank i of each group ends with the i-th equal part along `axis` of the group's sum."""
        results: dict[int, Array] = {}
        for group in self._groups_of(addends, group_size, stride):
            parts = [np.split(addends[rank], len(group), axis=axis) for rank in group]
            sums = self._ring_reduce(parts, group, wire_itemsize, stage)
            results |= zip(group, sums, strict=True)
        return self._in_order(results)

    def all_reduce(
        self,
        addends: Sequence[Array],
        wire_itemsize: int,
        *,
        stage: str,
        group_size: int | None = None,
        stride: int = 1,
    ) -> list[Array]:
        """Every rank ends with the sum: ring reduce-scatter of flat chunks, then ring all-gather.

        When the group does not divide the number of elements the chunks differ by one element.
        """
        results: dict[int, Array] = {}
        for group in self._groups_of(addends, group_size, stride):
            parts = [np.array_split(addends[rank].ravel(), len(group)) for rank in group]
            reduced = self._ring_reduce(parts, group, wire_itemsize, stage)
            blocks = self._ring_gather(reduced, group, wire_itemsize, stage)
            shape = addends[group[0]].shape
            joined = [np.concatenate(held).reshape(shape) for held in blocks]
            results |= zip(group, joined, strict=True)
        return self._in_order(results)

    def all_to_all(
        self,
        buffers: Sequence[Array],
        wire_itemsize: int,
        *,
        stage: str,
        group_size: int | None = None,
        stride: int = 1,
    ) -> list[Array]:
        """Transpose blocks: `buffers[rank][j]` goes to member j, who files it under the sender.

        Each buffer is [group, ...]; so is each result, its first axis being the sender.
        """
        results: dict[int, Array] = {}
        for group in self._groups_of(buffers, group_size, stride):
            if any(len(buffers[rank]) != len(group) for rank in group):
                raise ValueError(f"all-to-all needs one block for each of {len(group)} ranks")
            for me, dst in enumerate(group):
                blocks = [
                    buffers[src][me]
                    if src == dst
                    else self.send(src, dst, buffers[src][me], wire_itemsize, stage=stage)
                    for src in group
                ]
                results[dst] = np.stack(blocks)
        return self._in_order(results)

    def _groups_of(
        self, arrays: Sequence[Array], group_size: int | None, stride: int
    ) -> list[range]:
        if len(arrays) != self.size:
            raise ValueError(f"{len(arrays)} arrays for {self.size} ranks")
        return self.groups(group_size, stride)

    def _in_order(self, results: dict[int, Array]) -> list[Array]:
        return [results[rank] for rank in range(self.size)]

    def _ring_gather(
        self, own: Sequence[Array], group: range, wire_itemsize: int, stage: str
    ) -> list[list[Array]]:
        """Each of n - 1 steps passes on, to the right, the block that came from the left."""
        n = len(group)
        held = [{me: own[me]} for me in range(n)]
        for step in range(n - 1):
            for me in range(n):
                right, block = (me + 1) % n, (me - step) % n
                held[right][block] = self.send(
                    group[me], group[right], held[me][block], wire_itemsize, stage=stage
                )
        return [[blocks[i] for i in range(n)] for blocks in held]

    def _ring_reduce(
        self, parts: Sequence[Sequence[Array]], group: range, wire_itemsize: int, stage: str
    ) -> list[Array]:
        """Part i travels the ring from member i + 1 to member i, who ends with its sum."""
        n = len(group)
        sums = [list(mine) for mine in parts]
        for step in range(n - 1):
            for me in range(n):
                right, part = (me + 1) % n, (me - step - 1) % n
                arrived = self.send(
                    group[me], group[right], sums[me][part], wire_itemsize, stage=stage
                )
                sums[right][part] = sums[right][part] + arrived
        return [sums[me][me] for me in range(n)]
