"""What a user sets of an engine's cache management, with the engines' own defaults."""

from __future__ import annotations

from dataclasses import dataclass

from calc.engines.base import Engine
from calc.items import Item, Status, formula

VLLM_BLOCK = 16
"""vLLM's block of attention tokens when nobody names one (config/cache.py)."""


@formula(
    unit="tokens",
    source="vLLM 0.33 config/vllm.py max_in_flight_tokens",
    status=Status.ENGINE,
)
def tokens_in_flight(concurrent_batches: int, batched_tokens: int) -> int:
    """Tokens scheduled and not yet settled: their blocks cannot be freed."""
    return concurrent_batches * batched_tokens


@formula(unit="batches", source="vLLM 0.33 config/vllm.py max_concurrent_batches")
def batches_overlapped(pp: int) -> int:
    """Asynchronous scheduling prepares one batch beyond those in the pipeline."""
    return pp + 1


@formula(unit="batches", source="vLLM 0.33 config/vllm.py max_concurrent_batches")
def batches_in_turn(pp: int) -> int:
    """Without it there is one batch on each pipeline stage."""
    return pp


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Cache options of either engine; ``block_size`` 0 leaves the choice to the engine.

    ``kernel_block`` is the smallest block of the attention kernel (0: 16, and
    128 beside latent attention), ``checkpoint_slots`` the slots that state
    layers able to export a prefill checkpoint keep for it (older engines: 0),
    ``hybrid_manager`` off allocates windows and chunks as full attention,
    ``packed`` stands for a cache layout with the block outermost.
    ``in_flight`` overrides the tokens in flight.
    """

    max_model_len: int
    max_num_batched_tokens: int = 8192
    async_scheduling: bool = True
    in_flight: int = 0
    block_size: int = 0
    kernel_block: int = 0
    prefix_caching: bool = True
    speculative_tokens: int = 0
    checkpoint_slots: int = 1
    hybrid_manager: bool = True
    packed: bool = False
    blocks_override: int = 0
    swa_full_tokens_ratio: float = 0.8
    mamba_full_memory_ratio: float = 0.9

    def tokens_in_flight(self, pp: int) -> Item | int:
        """Tokens scheduled but not settled."""
        if self.in_flight:
            return self.in_flight
        batches = batches_overlapped if self.async_scheduling else batches_in_turn
        return tokens_in_flight.item(
            "tokens_in_flight",
            concurrent_batches=batches.item("concurrent_batches", pp=pp),
            batched_tokens=self.max_num_batched_tokens,
        )


def engine_id(engine: Engine) -> str:
    """The engine with its version, as a page names it."""
    return f"{engine.name} {engine.version}"
