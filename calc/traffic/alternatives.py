"""What latent attention under DCP could send instead, and what it costs in its place.

The step sends what the engine sends; these are the choices it did not make, for
one layer. Bytes are sent per rank; ``weight_bytes`` what each rank holds more
(below zero: less) in bf16, ``flops`` what it computes more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calc.collectives import Collective
from calc.items import Item, formula, total
from calc.layers import LatentAttention
from calc.traffic.attention import Exchange, per_head_bytes
from calc.traffic.stage import BF16, Stage, Work
from calc.units import Number


@formula(unit="B", source="extra rows of W_UQ and W_UK, or of a down-projection, in bf16")
def repeated_weight_bytes(rows: int, columns: int, element_bytes: int) -> int:
    """Weights that a rank holds although another rank of its group has them."""
    return rows * columns * element_bytes


@formula(unit="FLOP", source="two operations for a weight and a token")
def repeated_flops(rows: int, columns: int, tokens: Number) -> Number:
    """Arithmetic that a rank repeats."""
    return 2 * rows * columns * tokens


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to the same result, against ``instead_of``."""

    name: str
    instead_of: str
    stage: Stage
    weight_bytes: Item
    flops: Item


def alternatives(mixer: LatentAttention, layers: int, work: Work) -> Iterator[Alternative]:
    """The ways not taken, where there is something to send at all."""
    if work.layout.tp > 1 and mixer.q_lora_rank:
        yield _gathered_down_projection(mixer, mixer.q_lora_rank, layers, work)
    if work.layout.dcp > 1:
        yield _unabsorbed_query(mixer, layers, work)
        yield _replicated_query(mixer, layers, work)


def _gathered_down_projection(
    mixer: LatentAttention, q_lora_rank: int, layers: int, work: Work
) -> Alternative:
    """Each rank makes a part of the latents and gathers the rest, instead of making all."""
    width, tp = mixer.row_elements + q_lora_rank, work.layout.tp
    stage = work.hidden_rows(
        "gather_down_projection", mixer.kind, layers, Collective.ALL_GATHER, width=width
    )
    saved = width - width // tp
    less = (-saved, work.hidden_size)
    return _made("gather_down_projection", "down_projection", stage, work, less)


def _unabsorbed_query(mixer: LatentAttention, layers: int, work: Work) -> Alternative:
    """Queries are gathered before absorption; then each rank needs W_UK of the whole group."""
    exchange = Exchange(
        mixer.kind, layers, mixer.heads, mixer.nope_dim + mixer.rope_dim, mixer.kv_lora_rank
    )
    group = exchange.group_heads(work)
    name = "gather_unabsorbed_query"
    payload = per_head_bytes.item(
        f"{mixer.kind}.{name}.payload",
        tokens=work.tokens,
        group_heads=group,
        width=exchange.query_width,
        element_bytes=BF16,
    )
    shape = (work.tokens, group.value, exchange.query_width)
    stage = work.moved(
        Stage(name, mixer.kind, layers, "layer", shape, "bf16"),
        Collective.ALL_GATHER,
        "dcp",
        work.layout.dcp,
        payload,
    )
    more = (group.value - work.heads_per_rank(mixer.heads)) * mixer.nope_dim
    return _made(name, "gather_query", stage, work, (more, mixer.kv_lora_rank))


def _replicated_query(mixer: LatentAttention, layers: int, work: Work) -> Alternative:
    """Each rank makes the queries of the whole group itself; nothing is gathered."""
    group = Exchange(mixer.kind, layers, mixer.heads, 0, 0).group_heads(work).value
    more = group - work.heads_per_rank(mixer.heads)
    shape = (work.tokens, group, mixer.row_elements)
    stage = Stage("replicate_query", mixer.kind, layers, "layer", shape, "bf16")
    read = mixer.q_lora_rank or work.hidden_size
    query = (more * (mixer.nope_dim + mixer.rope_dim), read)
    absorbing = (more * mixer.nope_dim, mixer.kv_lora_rank)
    return _made("replicate_query", "gather_query", stage, work, query, absorbing)


def _made(
    name: str, instead_of: str, stage: Stage, work: Work, *matrices: tuple[int, int]
) -> Alternative:
    """Matrices (rows, columns) that a rank holds and uses more, or with negative rows less."""
    weights, flops = [], []
    for index, (rows, columns) in enumerate(matrices):
        weights.append(
            repeated_weight_bytes.item(
                f"{name}.weights{index}", rows=rows, columns=columns, element_bytes=BF16
            )
        )
        flops.append(
            repeated_flops.item(
                f"{name}.flops{index}", rows=rows, columns=columns, tokens=work.tokens
            )
        )
    return Alternative(
        name,
        instead_of,
        stage,
        total(f"{name}.weights", "B", weights),
        total(f"{name}.flops", "FLOP", flops),
    )
