"""One rank's stages around latent attention under DCP: what is computed, and its time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from calc.layers import LatentAttention
from calc.scenario import Scenario

if TYPE_CHECKING:
    from gpu.timing import Clock

BF16 = 2
COPIES = 8
"""Weights that take turns, so that each call reads its own from memory."""
COPIES_LIMIT = 3 * 10**9


@dataclass(frozen=True, slots=True)
class Product:
    """``count`` products [rows, inner] x [inner, columns], as one projection has them."""

    name: str
    count: int
    rows: int
    inner: int
    columns: int

    @property
    def weight_bytes(self) -> int:
        return self.count * self.inner * self.columns * BF16

    @property
    def moved_bytes(self) -> int:
        return self.weight_bytes + self.count * self.rows * (self.inner + self.columns) * BF16


@dataclass(frozen=True, slots=True)
class Copy:
    """A tensor written once from another of its size: what a collective leaves to this rank."""

    name: str
    elements: int

    @property
    def moved_bytes(self) -> int:
        return 2 * self.elements * BF16


Stage = Product | Copy


def latent_stages(scenario: Scenario) -> list[Stage]:
    """Stages of the model's first latent layer on one rank, attention and merge left out."""
    latent = scenario.model_spec.latent_mixers
    return _stages(latent[0], scenario) if latent else []


def _stages(mixer: LatentAttention, scenario: Scenario) -> list[Stage]:
    layout, batch = scenario.layout, scenario.batch
    hidden = scenario.model_spec.hidden_size
    own = mixer.heads // layout.tp
    group = own * layout.dcp
    query = mixer.nope_dim + mixer.rope_dim
    low = mixer.q_lora_rank
    down = mixer.row_elements + (low or own * query)
    stages: list[Stage] = [
        Product("down_projection", 1, batch, hidden, down),
        Copy("cache_write", batch * mixer.row_elements),
    ]
    if low:
        stages.append(Product("query_up_projection", 1, batch, low, own * query))
    stages.append(Product("query_absorption", own, batch, mixer.nope_dim, mixer.kv_lora_rank))
    if layout.dcp > 1:
        stages.append(Copy("gather_query", batch * group * mixer.row_elements))
        stages.append(Copy("exchange_partials", batch * group * mixer.kv_lora_rank))
    stages.append(Product("value_up_projection", own, batch, mixer.kv_lora_rank, mixer.v_dim))
    stages.append(Product("o_proj", 1, batch, own * mixer.v_dim, hidden))
    return stages


def time_stage(stage: Stage, clock: Clock, device: Any) -> Any:
    """The time of one stage: weights take turns within a graph."""
    from gpu.timing import SHORT

    calls = _copies(stage, device) if isinstance(stage, Copy) else _products(stage, device)
    return clock.time(lambda: [call() for call in calls], len(calls), SHORT)


def _products(stage: Product, device: Any) -> list[Callable[[], Any]]:
    import torch

    options = {"device": device, "dtype": torch.bfloat16}
    copies = max(2, min(COPIES, COPIES_LIMIT // stage.weight_bytes))
    x = torch.randn(stage.count, stage.rows, stage.inner, **options)
    size = (stage.count, stage.inner, stage.columns)
    scale = 1 / math.sqrt(stage.inner)
    weights = [torch.randn(size, **options) * scale for _ in range(copies)]
    return [partial(torch.bmm, x, weight) for weight in weights]


def _copies(stage: Copy, device: Any) -> list[Callable[[], Any]]:
    import torch

    options = {"device": device, "dtype": torch.bfloat16}
    pairs = [
        (torch.randn(stage.elements, **options), torch.empty(stage.elements, **options))
        for _ in range(2)
    ]
    return [partial(target.copy_, source) for source, target in pairs]
