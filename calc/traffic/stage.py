"""A stage of a step: what is computed or moved, in which shape, by which group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from calc.collectives import Algorithm, Collective, bus_factor, received, sent
from calc.engines import DcpBackend, Engine
from calc.items import Item, formula
from calc.layers import LatentAttention, Sharding
from calc.layout import Layout
from calc.placement import Group, Placement
from calc.units import Number, exact_div, round_up

BF16 = 2
DTYPES = {1: "fp8", 2: "bf16", 4: "float32"}

Per = Literal["layer", "step"]


@formula(unit="B", source="a tensor of tokens x width elements")
def activation_bytes(tokens: Number, width: int, element_bytes: int) -> Number:
    """A hidden, latent or residual tensor."""
    return tokens * width * element_bytes


@formula(unit="B", source="a stage runs once in each of its layers")
def over_layers(sent_bytes: Number, calls: int) -> Number:
    """Bytes that one rank sends in a stage per step."""
    return sent_bytes * calls


@dataclass(frozen=True, slots=True)
class Options:
    """What a scenario says about a step beyond model, layout, engine and DCP backend.

    ``expert_format`` is the format in which the experts' weights are stored: an
    engine quantises what it sends to them accordingly. ``sequence_parallel``
    replaces the all-reduces inside layers by reduce-scatter and all-gather.
    """

    query_dtype: str = "bf16"
    moe_backend: str = "auto"
    dispatch_dtype: str = "auto"
    expert_format: str = "bf16"
    speculative_tokens: int = 0
    sequence_parallel: bool = False
    algorithm: Algorithm = "ring"
    gpus_per_node: int = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of a step; bytes are per call and per rank.

    ``kind`` is the layer kind or "model"; ``layers`` the layers it is for (per
    step: how often it runs). ``number`` is the place in the eight-stage
    description of latent attention under DCP (0 elsewhere). ``drafts``: part of
    the forwards that propose tokens, not of the one that verifies them. A stage
    without a collective computes, or would communicate in a larger group.
    """

    name: str
    kind: str
    layers: int
    per: Per
    shape: tuple[int, ...]
    dtype: str
    number: int = 0
    collective: Collective | None = None
    group: Group | None = None
    group_size: int = 1
    payload: Item | None = None
    sent: Item | None = None
    received: Item | None = None
    algorithm: Algorithm = "ring"
    crosses_nodes: bool = False
    drafts: bool = False

    @property
    def calls(self) -> int:
        """Collective calls of one rank per step."""
        return 0 if self.collective is None else self.layers

    @property
    def per_step(self) -> Item | None:
        """Bytes one rank sends in this stage per step."""
        if self.sent is None:
            return None
        key = f"{self.kind}.{self.name}.step"
        return over_layers.item(key, sent_bytes=self.sent, calls=self.calls)

    @property
    def bus_factor(self) -> float | None:
        """busbw over algbw in the sense of nccl-tests."""
        if self.collective is None:
            return None
        return bus_factor(self.collective, self.group_size, self.algorithm)


@dataclass(frozen=True)
class Work:
    """What every stage needs: the tokens of the step and how they are computed.

    ``tokens`` are those of one rank (a replica's tokens are divided over pcp),
    ``sampled`` the rows of them that need logits. ``prefix`` is the cached part
    of the request of a prefill step (and ``place`` how it is cached), None in a
    decode step.
    """

    tokens: int
    hidden_size: int
    layout: Layout
    engine: Engine
    backend: DcpBackend
    query_replicated: bool
    options: Options = Options()
    sampled: int = 0
    prefix: int | None = None
    place: Sharding | None = None
    drafts: bool = False
    boundary_tensors: int = 2
    """Tensors of hidden width that pass from one pipeline stage to the next."""
    splits_before_experts: bool = False
    """Whether o_proj ends in a reduce-scatter where the experts take divided rows."""

    @cached_property
    def placement(self) -> Placement:
        return Placement(self.layout, self.engine, self.options.gpus_per_node)

    @property
    def query_bytes(self) -> int:
        """Bytes of one element of a gathered query."""
        return 1 if self.options.query_dtype == "fp8" else BF16

    @property
    def divided_tokens(self) -> int:
        """This rank's rows where the tokens are divided over tp, padded to equal parts."""
        return int(round_up(self.tokens, self.layout.tp)) // self.layout.tp

    @property
    def kv_format(self) -> str:
        """The format of cached rows that a prefill step reads."""
        return self.place.kv_format.id if self.place else "bf16"

    def latent_row(self, mixer: LatentAttention) -> Item:
        """Bytes of one cached row."""
        assert self.place is not None
        return mixer.row(self.place)

    def heads_per_rank(self, heads: int) -> int:
        """Query heads that one rank owns."""
        return exact_div(heads, self.layout.tp)

    def moved(
        self,
        stage: Stage,
        collective: Collective,
        group: Group,
        group_size: int,
        payload: Item,
    ) -> Stage:
        """A stage with its collective; a group of one rank has none."""
        if group_size == 1:
            return replace(stage, drafts=self.drafts)
        crosses = self.placement.crosses(group)
        algorithm: Algorithm = "ring" if crosses else self.options.algorithm
        key = f"{stage.kind}.{stage.name}"
        goes = sent(f"{key}.sent", collective, payload, group_size, algorithm)
        comes = goes
        if algorithm == "nvls":
            comes = received(f"{key}.received", collective, payload, group_size, algorithm)
        return replace(
            stage,
            collective=collective,
            group=group,
            group_size=group_size,
            payload=payload,
            sent=goes,
            received=comes,
            algorithm=algorithm,
            crosses_nodes=crosses,
            drafts=self.drafts,
        )

    def forwarded(self, stage: Stage, group: Group, group_size: int, moves: Item) -> Stage:
        """Messages passed on between the ranks of one node; ``moves`` is all that leaves a rank."""
        return replace(
            stage,
            collective=Collective.ALL_TO_ALL,
            group=group,
            group_size=group_size,
            payload=moves,
            sent=moves,
            received=moves,
            drafts=self.drafts,
        )

    def hidden_rows(
        self,
        name: str,
        kind: str,
        layers: int,
        collective: Collective,
        *,
        width: int = 0,
        rows: int = 0,
        group: Group = "tp",
        group_size: int = 0,
        per: Per = "layer",
        number: int = 0,
    ) -> Stage:
        """A collective on a [rows, width] bf16 tensor; hidden width and tp group unless told."""
        rows, width = rows or self.tokens, width or self.hidden_size
        payload = activation_bytes.item(
            f"{kind}.{name}.payload", tokens=rows, width=width, element_bytes=BF16
        )
        stage = Stage(name, kind, layers, per, (rows, width), "bf16", number)
        return self.moved(stage, collective, group, group_size or self.layout.tp, payload)

    def all_reduce(
        self, name: str, kind: str, layers: int, width: int, per: Per = "layer", number: int = 0
    ) -> Stage:
        """A [tokens, width] bf16 tensor summed over the tp group."""
        return self.hidden_rows(
            name, kind, layers, Collective.ALL_REDUCE, width=width, per=per, number=number
        )

    def summed(
        self, name: str, kind: str, layers: int, width: int = 0, number: int = 0
    ) -> Iterator[Stage]:
        """The sum over tp at the end of a part: an all-reduce, or with sequence parallelism the
        two halves of one (the norm between them works on divided rows)."""
        if not self.options.sequence_parallel or self.layout.tp == 1:
            yield self.all_reduce(name, kind, layers, width or self.hidden_size, number=number)
            return
        rows = self.divided_tokens * self.layout.tp
        yield self.hidden_rows(
            name, kind, layers, Collective.REDUCE_SCATTER, width=width, rows=rows, number=number
        )
        yield self.hidden_rows(
            f"{name}_gather", kind, layers, Collective.ALL_GATHER, width=width, rows=rows
        )
