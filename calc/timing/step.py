"""An estimate of a step's time with its parts: products, attention, states, communication.

Parts are added: nothing overlaps. What is left out: norms, rotations, routing,
sampling, the host, and a pipeline's overlap of several batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from calc.capacity import mixer_counts
from calc.hardware import Hardware
from calc.items import Item, Status, formula, total
from calc.layers import Indexer, Sharding
from calc.model import Layer, ModelSpec
from calc.timing.collectives import Links
from calc.timing.kernels import Kernels
from calc.timing.matrices import Products
from calc.traffic import Stage, Step
from calc.traffic.stage import Work
from calc.units import Number
from calc.weight_formats import CHECKPOINT

Group = Literal["products", "attention", "state", "communication"]


@formula(unit="µs", source="a stage or kernel runs once in each of its layers")
def in_layers_us(each_us: Number, calls: int) -> Number:
    """Time of a stage or kernel over a step."""
    return each_us * calls


@formula(unit="tokens/s", source="one token of each request a step", status=Status.ESTIMATE)
def user_rate(step_us: Number) -> Number:
    """Tokens a second that one user sees."""
    return 1e6 / step_us


@formula(unit="tokens/s", source="all requests of a replica over its GPUs", status=Status.ESTIMATE)
def gpu_rate(batch: Number, step_us: Number, replica_ranks: int) -> Number:
    """Tokens a second that one GPU makes."""
    return batch * 1e6 / step_us / replica_ranks


@dataclass(frozen=True, slots=True)
class TimePart:
    """One part of a step: ``calls`` times ``each``; ``stage`` for a collective."""

    name: str
    kind: str
    group: Group
    calls: int
    each: Item
    total: Item
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step on one GPU kind; all of it an estimate."""

    gpu: Hardware
    parts: tuple[TimePart, ...]
    total: Item
    tokens_per_second_user: Item
    tokens_per_second_gpu: Item

    def group(self, group: Group) -> Number:
        """Microseconds of the parts of one group."""
        return sum((part.total.value for part in self.parts if part.group == group), 0.0)


def decode_time(
    model: ModelSpec,
    place: Sharding,
    step: Step,
    gpu: Hardware,
    batch: int,
    context: int,
    weight_format: str = CHECKPOINT,
) -> StepTime:
    """The time of a decode step for ``batch`` requests of ``context`` tokens on each replica."""
    work = step.work
    parts = products(model, work, gpu, weight_format)
    parts += mixers(model, place, work, gpu, batch, context)
    parts += communication(step, gpu)
    whole = total("step.us", "µs", [part.total for part in parts])
    return StepTime(
        gpu,
        tuple(parts),
        whole,
        user_rate.item("step.user", step_us=whole),
        gpu_rate.item(
            "step.gpu", batch=batch, step_us=whole, replica_ranks=work.layout.replica_ranks
        ),
    )


def products(model: ModelSpec, work: Work, gpu: Hardware, weight_format: str) -> list[TimePart]:
    """The matrix products of a step."""
    of = Products(gpu, model, work.layout, weight_format, work.query_replicated)
    return [
        time_part(item.key.split(".")[1], "model", "products", 1, item)
        for item in of.parts(work.tokens, work.sampled)
    ]


def mixers(
    model: ModelSpec, place: Sharding, work: Work, gpu: Hardware, batch: int, context: int
) -> list[TimePart]:
    """Attention and states of a step for ``batch`` requests of a replica."""
    own = -(-batch // work.layout.pcp)
    queries = 1 + work.options.speculative_tokens
    return list(_mixers(Kernels(gpu), model.stages(1)[0], place, own, context, queries))


def communication(step: Step, gpu: Hardware) -> list[TimePart]:
    """The collectives of a step, one part a stage."""
    work = step.work
    links = Links(gpu, work.options.gpus_per_node)
    nodes = work.placement.expert_nodes("ep") if work.layout.ep > 1 else 1
    parts = []
    for stage in step.stages:
        each = links.stage_us(stage, nodes)
        if each is not None:
            parts.append(
                time_part(stage.name, stage.kind, "communication", stage.calls, each, stage)
            )
    return parts


def _mixers(
    kernels: Kernels,
    layers: Iterable[Layer],
    place: Sharding,
    requests: int,
    context: int,
    query_tokens: int,
) -> Iterator[TimePart]:
    layers = tuple(layers)
    counts = mixer_counts(layers)
    chosen = next((mixer.top_k for mixer in counts if isinstance(mixer, Indexer)), 0)
    for mixer, count in counts.items():
        for item in kernels.mixer(mixer, place, requests, context, query_tokens, chosen):
            name = item.key.split(".")[1]
            group: Group = "attention" if name in ("attention", "scores") else "state"
            yield time_part(name, mixer.kind, group, count, item)


def time_part(
    name: str, kind: str, group: Group, calls: int, each: Item, stage: Stage | None = None
) -> TimePart:
    key = f"{kind}.{name}.{group}.us"
    return TimePart(
        name,
        kind,
        group,
        calls,
        each,
        in_layers_us.item(key, each_us=each, calls=calls),
        stage,
    )
