"""A stage of a step: what is computed or moved, in which shape, by which group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from calc.collectives import Collective, sent
from calc.engines import DcpBackend, Engine
from calc.items import Item, formula
from calc.layout import Layout
from calc.units import Number, exact_div

BF16 = 2
DTYPES = {2: "bf16", 4: "float32"}

Group = Literal["tp", "dcp", "pp"]
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
class Stage:
    """One row of a step; bytes are per call and per rank.

    ``kind`` is the layer kind or "model"; ``layers`` the layers it is for (per
    step: how often it runs). ``number`` is the place in the eight-stage
    description of latent attention under DCP (0 elsewhere). A stage without a
    collective computes, or would communicate in a larger group.
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

    def moved_by(
        self, collective: Collective, group: Group, group_size: int, payload: Item
    ) -> Stage:
        """This stage with its collective; a group of one rank has none."""
        if group_size == 1:
            return self
        key = f"{self.kind}.{self.name}.sent"
        return replace(
            self,
            collective=collective,
            group=group,
            group_size=group_size,
            payload=payload,
            sent=sent(key, collective, payload, group_size),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What every stage needs: the tokens of the step and how they are computed."""

    tokens: int
    hidden_size: int
    layout: Layout
    engine: Engine
    backend: DcpBackend
    query_replicated: bool

    def all_reduce(
        self, name: str, kind: str, layers: int, width: int, per: Per = "layer", number: int = 0
    ) -> Stage:
        """A [tokens, width] bf16 tensor summed over the tp group."""
        payload = activation_bytes.item(
            f"{kind}.{name}.payload", tokens=self.tokens, width=width, element_bytes=BF16
        )
        stage = Stage(name, kind, layers, per, (self.tokens, width), "bf16", number)
        return stage.moved_by(Collective.ALL_REDUCE, "tp", self.layout.tp, payload)

    def heads_per_rank(self, heads: int) -> int:
        """Query heads that one rank owns."""
        return exact_div(heads, self.layout.tp)
