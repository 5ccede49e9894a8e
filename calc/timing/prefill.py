"""An estimate of a prefill chunk's time: matrix products, attention over prefix and chunk, and
communication. Nothing overlaps; arithmetic reaches a fixed share of the data sheet's rate."""

from __future__ import annotations

from collections.abc import Iterator

from calc.capacity import mixer_counts
from calc.hardware import Hardware
from calc.items import Item, Status, formula, total
from calc.layers import Attention, Growth, LatentAttention, Mixer, Sharding, StateMixer
from calc.model import ModelSpec
from calc.timing.matrices import MEMORY_SHARE, Products, compute_share
from calc.timing.step import (
    Group,
    StepTime,
    TimePart,
    communication,
    gpu_rate,
    time_part,
    user_rate,
)
from calc.traffic import Step
from calc.units import Number, exact_div, greater, lesser
from calc.weight_formats import CHECKPOINT


@formula(unit="pairs", source="token i of the chunk attends to the prefix and to i + 1 tokens")
def attended_pairs(tokens: Number, prefix: Number) -> Number:
    """Pairs of a query token and a token it attends to."""
    return tokens * prefix + tokens * (tokens + 1) / 2


@formula(unit="pairs", source="a window bounds what a token attends to")
def windowed_pairs(tokens: Number, prefix: Number, window: int) -> Number:
    """Pairs under a window (a bound where the window is not full yet)."""
    return lesser(tokens * prefix + tokens * (tokens + 1) / 2, tokens * window)


@formula(unit="FLOP", source="scores and outputs: two operations for an element and head")
def chunk_attention_flop(
    pairs: Number, heads_per_rank: int, k_dim: int, v_dim: int, ranks: int
) -> Number:
    """Attention of a chunk on one rank; under pcp the pairs are divided."""
    return 2 * pairs * heads_per_rank * (k_dim + v_dim) / ranks


@formula(unit="FLOP", source="W_UK and W_UV applied to every cached latent")
def latent_expansion_flop(
    tokens: Number, kv_lora_rank: int, heads_per_rank: int, k_dim: int, v_dim: int
) -> Number:
    """K and V of the local heads, written out from latent rows."""
    return 2 * tokens * kv_lora_rank * heads_per_rank * (k_dim + v_dim)


@formula(unit="FLOP", source="update and read-out of a state: four operations for an element")
def chunk_state_flop(tokens: Number, elements: int) -> Number:
    """A recurrence over a chunk."""
    return 4 * tokens * elements


@formula(
    unit="µs", source="arithmetic or the rows read, whichever takes longer", status=Status.ESTIMATE
)
def chunk_us(flop: Number, flop_rate: float, read_bytes: Number, memory_rate: float) -> Number:
    """One layer's attention or recurrence over a chunk."""
    return greater(flop / flop_rate, read_bytes / memory_rate)


def prefill_time(
    model: ModelSpec,
    place: Sharding,
    step: Step,
    gpu: Hardware,
    weight_format: str = CHECKPOINT,
) -> StepTime:
    """The time of the chunk that ``calc.traffic.prefill_step`` describes."""
    work, tokens = step.work, step.tokens
    prefix = work.prefix or 0
    products = Products(gpu, model, work.layout, weight_format, work.query_replicated)
    parts = [
        time_part(item.key.split(".")[1], "model", "products", 1, item)
        for item in products.parts(work.tokens, work.sampled)
    ]
    for mixer, count in mixer_counts(model.stages(1)[0]).items():
        for item in _mixer(mixer, place, gpu, tokens, prefix, work.layout.pcp):
            group: Group = "state" if isinstance(mixer, StateMixer) else "attention"
            parts.append(time_part("chunk", mixer.kind, group, count, item))
    parts += communication(step, gpu)
    return _whole(gpu, parts, tokens, work.layout.replica_ranks)


def _whole(gpu: Hardware, parts: list[TimePart], tokens: Number, ranks: int) -> StepTime:
    whole = total("prefill.us", "µs", [part.total for part in parts])
    return StepTime(
        gpu,
        tuple(parts),
        whole,
        user_rate.item("prefill.user", step_us=whole),
        gpu_rate.item("prefill.gpu", batch=tokens, step_us=whole, replica_ranks=ranks),
    )


def _mixer(
    mixer: Mixer, place: Sharding, gpu: Hardware, tokens: Number, prefix: Number, pcp: int
) -> Iterator[Item]:
    key = f"{mixer.kind}.chunk"
    rate = gpu.flops["bf16"].value * compute_share(gpu) / 1e6
    memory = gpu.memory_rate.value * MEMORY_SHARE / 1e6

    def timed(flop: Item, read: Number) -> Item:
        return chunk_us.item(
            f"{key}.us", flop=flop, flop_rate=rate, read_bytes=read, memory_rate=memory
        )

    if isinstance(mixer, LatentAttention):
        heads = exact_div(mixer.heads, place.tp)
        pairs = attended_pairs.item(f"{key}.pairs", tokens=tokens, prefix=prefix)
        attending = chunk_attention_flop.item(
            f"{key}.flop",
            pairs=pairs,
            heads_per_rank=heads,
            k_dim=mixer.nope_dim + mixer.rope_dim,
            v_dim=mixer.v_dim,
            ranks=pcp,
        )
        writing = latent_expansion_flop.item(
            f"{key}.expansion",
            tokens=prefix + tokens,
            kv_lora_rank=mixer.kv_lora_rank,
            heads_per_rank=heads,
            k_dim=mixer.nope_dim,
            v_dim=mixer.v_dim,
        )
        read = (prefix + tokens) * mixer.row(place).value
        yield timed(total(f"{key}.all", "FLOP", [attending, writing]), read)
    elif isinstance(mixer, Attention):
        seen = prefix
        if mixer.growth is Growth.GROWING:
            pairs = attended_pairs.item(f"{key}.pairs", tokens=tokens, prefix=prefix)
        else:
            seen = lesser(prefix, mixer.limit)
            pairs = windowed_pairs.item(
                f"{key}.pairs", tokens=tokens, prefix=prefix, window=mixer.limit
            )
        held = place.engine.kv_heads_per_rank(mixer.kv_heads, place.tp, place.dcp)
        row = place.kv_format.dense_row(mixer.kind, held, mixer.k_dim, mixer.v_dim)
        flop = chunk_attention_flop.item(
            f"{key}.flop",
            pairs=pairs,
            heads_per_rank=exact_div(mixer.heads, place.tp),
            k_dim=mixer.k_dim,
            v_dim=mixer.v_dim,
            ranks=pcp,
        )
        yield timed(flop, (seen + tokens) * row.value)
    elif isinstance(mixer, StateMixer):
        elements = mixer.recurrent_elements(place.tp).value
        flop = chunk_state_flop.item(f"{key}.flop", tokens=tokens, elements=elements)
        yield timed(flop, 2 * elements)
