"""One collective: what each rank sends and receives, from the tensor it works on.

*payload* is nccl-tests' size: the gathered result of an all-gather, the input
of a reduce-scatter, one rank's send buffer of an all-to-all, the tensor of an
all-reduce. Bytes are averaged over the ranks (a fraction where the payload is
not divisible by them), for one of two algorithms:

- ``ring``: ring and pairwise exchange between ranks; a rank receives as much
  as it sends.
- ``nvls``: the NVLink switch adds and multiplies packets. A rank gives its
  addends once and gets the sum once; what it gathers comes to it from the
  switch, its own part included. All-to-all and point-to-point gain nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from calc.items import Formula, Item, formula
from calc.units import Number, ratio

NCCL_TESTS = "nccl-tests doc/PERFORMANCE.md (ring and pairwise algorithms)"
IN_NETWORK = "derived: multimem reduce and multicast in the NVLink switch (NVLS)"

Algorithm = Literal["ring", "nvls"]
ALGORITHMS: tuple[Algorithm, ...] = ("ring", "nvls")


class Collective(StrEnum):
    """The collectives of a step."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    SEND = "send"
    BROADCAST = "broadcast"


@formula(unit="B", source=NCCL_TESTS)
def one_pass_sent(payload_bytes: Number, ranks: int) -> Number:
    """All-gather, reduce-scatter, all-to-all: everything but a rank's own share goes out once."""
    return ratio((ranks - 1) * payload_bytes, ranks)


@formula(unit="B", source=NCCL_TESTS)
def all_reduce_sent(payload_bytes: Number, ranks: int) -> Number:
    """All-reduce: a reduce-scatter and then an all-gather."""
    return ratio(2 * (ranks - 1) * payload_bytes, ranks)


@formula(unit="B", source=IN_NETWORK)
def nvls_all_reduce_sent(payload_bytes: Number, ranks: int) -> Number:
    """In the switch: every addend goes out once, and the own share of the sum once more."""
    return ratio((ranks + 1) * payload_bytes, ranks)


@formula(unit="B", source=IN_NETWORK)
def nvls_whole(payload_bytes: Number) -> Number:
    """In the switch: the addends of a reduce-scatter go out once, a gathered tensor comes once."""
    return payload_bytes


@formula(unit="B", source=IN_NETWORK)
def nvls_share(payload_bytes: Number, ranks: int) -> Number:
    """In the switch: one share of a tensor, for the switch to multiply or already added up."""
    return ratio(payload_bytes, ranks)


def sent(
    key: str, collective: Collective, payload: Item, ranks: int, algorithm: Algorithm = "ring"
) -> Item:
    """Bytes that leave one rank."""
    if algorithm == "nvls":
        match collective:
            case Collective.ALL_REDUCE:
                return nvls_all_reduce_sent.item(key, payload_bytes=payload, ranks=ranks)
            case Collective.REDUCE_SCATTER:
                return nvls_whole.item(key, payload_bytes=payload)
            case Collective.ALL_GATHER:
                return nvls_share.item(key, payload_bytes=payload, ranks=ranks)
            case _:
                pass
    if collective is Collective.SEND:
        return payload
    rule: Formula[Any, Any] = (
        all_reduce_sent if collective is Collective.ALL_REDUCE else one_pass_sent
    )
    return rule.item(key, payload_bytes=payload, ranks=ranks)


def received(
    key: str, collective: Collective, payload: Item, ranks: int, algorithm: Algorithm = "ring"
) -> Item:
    """Bytes that enter one rank."""
    if algorithm == "nvls" and collective is Collective.REDUCE_SCATTER:
        return nvls_share.item(key, payload_bytes=payload, ranks=ranks)
    if algorithm == "nvls" and collective is Collective.ALL_GATHER:
        return nvls_whole.item(key, payload_bytes=payload)
    return sent(key, collective, payload, ranks, algorithm)


def bus_factor(collective: Collective, ranks: int, algorithm: Algorithm = "ring") -> float:
    """busbw / algbw of nccl-tests: payload / time x factor is the rate on the busiest link."""
    match collective:
        case Collective.ALL_REDUCE:
            if algorithm == "nvls":
                return (ranks - 1) / (ranks + 1)
            return 2 * (ranks - 1) / ranks
        case Collective.SEND | Collective.BROADCAST:
            return 1.0
        case _:
            return (ranks - 1) / ranks
