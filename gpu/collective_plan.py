"""The collectives of a scenario's decode step, each size once. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.collectives import Collective, bus_factor
from calc.report import evaluate
from calc.scenario import Scenario

ELEMENT_BYTES = {"fp8": 1, "bf16": 2, "float32": 4}
MEASURED = (
    Collective.ALL_GATHER,
    Collective.ALL_TO_ALL,
    Collective.REDUCE_SCATTER,
    Collective.ALL_REDUCE,
)
STEP = 512
"""Elements of a payload are a multiple of this for any number of ranks up to it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective; ``payload_bytes`` is nccl-tests' size."""

    name: str
    collective: Collective
    ranks: int
    payload_bytes: int
    dtype: str

    @property
    def elements(self) -> int:
        return self.payload_bytes // ELEMENT_BYTES[self.dtype]

    def bus_rate(self, seconds: float) -> float:
        """Bytes a second over the links, by nccl-tests' conventions."""
        factor = bus_factor(self.collective, self.ranks, "ring")
        return self.payload_bytes / seconds * factor

    def over(self, ranks: int) -> Call:
        """The same payload among another number of ranks, cut to equal parts."""
        elements = self.elements // ranks * ranks or ranks
        return replace(self, ranks=ranks, payload_bytes=elements * ELEMENT_BYTES[self.dtype])


def scenario_calls(scenario: Scenario) -> list[Call]:
    """The step's collectives in its order; stages that move the same are named by the first."""
    seen: dict[tuple[object, ...], Call] = {}
    for stage in evaluate(scenario).step.stages:
        if stage.collective not in MEASURED or stage.payload is None:
            continue
        name = f"{stage.kind}.{stage.name}"
        size = round(stage.payload.value)
        call = Call(name, stage.collective, stage.group_size, size, stage.dtype)
        seen.setdefault((call.collective, call.ranks, size, call.dtype), call)
    return list(seen.values())


def calls_for(scenario: Scenario, ranks: int) -> list[Call]:
    """The calls among as many ranks as there are here."""
    return [call.over(ranks) for call in scenario_calls(scenario)]


def expert_payload(scenario: Scenario, ranks: int) -> int:
    """What one rank sends in the expert all-to-all: its share of the tokens, once an expert, bf16.

    0 for a model without experts.

    >>> expert_payload(Scenario("deepseek-v3", tp=8, batch=64), 8) == 8 * 8 * 7168 * 2
    True
    """
    model = scenario.model_spec
    if not model.moe_ffns:
        return 0
    ffn = model.moe_ffns[0]
    tokens = -(-scenario.batch // ranks)
    return tokens * ffn.top_k * (ffn.latent_size or model.hidden_size) * ELEMENT_BYTES["bf16"]
