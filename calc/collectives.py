"""One collective: what each rank sends, from the size of the tensor it works on.

*payload* is nccl-tests' size: the gathered result of an all-gather, the input
of a reduce-scatter, one rank's send buffer of an all-to-all, the tensor of an
all-reduce. Bytes are those of the ring and pairwise algorithms, averaged over
the ranks (a fraction where the payload is not divisible by the ranks).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from calc.items import Formula, Item, formula
from calc.units import Number, ratio

NCCL_TESTS = "nccl-tests doc/PERFORMANCE.md (ring and pairwise algorithms)"


class Collective(StrEnum):
    """The collectives of a decode step."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    SEND = "send"


@formula(unit="B", source=NCCL_TESTS)
def one_pass_sent(payload_bytes: Number, ranks: int) -> Number:
    """All-gather, reduce-scatter, all-to-all: everything but a rank's own share goes out once."""
    return ratio((ranks - 1) * payload_bytes, ranks)


@formula(unit="B", source=NCCL_TESTS)
def all_reduce_sent(payload_bytes: Number, ranks: int) -> Number:
    """All-reduce: a reduce-scatter and then an all-gather."""
    return ratio(2 * (ranks - 1) * payload_bytes, ranks)


def sent(key: str, collective: Collective, payload: Item, ranks: int) -> Item:
    """Bytes that one rank sends; it receives as many."""
    if collective is Collective.SEND:
        return payload
    rule: Formula[Any, Any] = (
        all_reduce_sent if collective is Collective.ALL_REDUCE else one_pass_sent
    )
    return rule.item(key, payload_bytes=payload, ranks=ranks)
