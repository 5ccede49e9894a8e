"""From a GPU's memory to the bytes left for cache, on each pipeline stage.

What an engine measures when it starts (activations, CUDA graphs, communication
buffers) cannot be computed from a model; those are inputs with stated defaults,
and a figure made of them is an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.items import Item, Status, formula
from calc.units import GIB, Number, ceil_of, floor_of, greater

REQUEST = "vLLM 0.33 v1/worker/utils.py request_memory"
PROFILE = "vLLM 0.33 v1/worker/gpu_worker.py determine_available_memory"
STATIC = "SGLang 0.5.23 arg_groups/memory_hook.py"

ACTIVATION_GIB = 2.0
"""vLLM logs 1.26 GiB for Llama-3-8B and 8,192 tokens (vllm-project/vllm pull 10511)."""
CUDA_GRAPH_GIB = 1.0
"""vLLM logs 0.5 to a few GiB after capturing graphs; it sets the estimate aside beforehand."""
COMMUNICATION_GIB = 0.5
"""Memory outside PyTorch, NCCL above all: 0.16 GiB on one GPU (vllm pull 12126)."""
GRAPH_BATCH = 256
"""The largest batch of a CUDA graph that SGLang reckons with on a large GPU."""


@formula(unit="B", source=REQUEST, status=Status.ENGINE)
def requested_memory(memory_bytes: int, utilization: float) -> int:
    """What the engine claims of a GPU."""
    return ceil_of(memory_bytes * utilization)  # type: ignore[no-any-return]


@formula(unit="B", source=PROFILE, status=Status.ESTIMATE)
def memory_for_cache(
    requested_bytes: int,
    weight_bytes: int,
    activation_bytes: int,
    graph_bytes: int,
    communication_bytes: int,
) -> Number:
    """What weights, the profile run, graphs and communication leave of it."""
    return requested_bytes - weight_bytes - activation_bytes - graph_bytes - communication_bytes


@formula(unit="B", source=STATIC, status=Status.ESTIMATE)
def sglang_reserve(
    batched_tokens: int, graph_batch: int, tp: int, pp: int, least_bytes: int
) -> int:
    """Memory that SGLang keeps free: 0.5 GiB, 1.5 MiB a token of a prefill, 2 MiB a request of a
    graph, an eighth of a GiB for each rank; a large GPU keeps at least 10 GiB."""
    return floor_of(  # type: ignore[no-any-return]
        greater(
            536870912
            + greater(batched_tokens, 2048) * 1572864
            + graph_batch * 2097152
            + tp * pp * 134217728,
            least_bytes,
        )
    )


@formula(unit="B", source=STATIC, status=Status.ESTIMATE)
def static_memory(memory_bytes: int, reserved_bytes: int) -> Number:
    """What SGLang gives to weights and pools when no fraction is set."""
    return memory_bytes - reserved_bytes


@formula(unit="B", source="SGLang 0.5.23 mem_fraction_static", status=Status.ENGINE)
def static_fraction(memory_bytes: int, utilization: float) -> Number:
    """The share of the GPU that was set for weights and pools."""
    return floor_of(memory_bytes * utilization)


@formula(
    unit="B",
    source="SGLang 0.5.23 mem_cache/kv_cache_configurator.py _profile_available_bytes",
    status=Status.ESTIMATE,
)
def memory_for_pools(requested_bytes: int, weight_bytes: int, communication_bytes: int) -> Number:
    """What weights and the buffers made before them leave; activations lie outside the share."""
    return requested_bytes - weight_bytes - communication_bytes


@formula(unit="B", source="typed: it overrides every estimate")
def typed_memory(gibibytes: float) -> int:
    """The cache memory of one rank as it was typed."""
    return floor_of(gibibytes * 1073741824)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Allowances:
    """Memory that a model's description does not tell, in GiB."""

    activation_gib: float = ACTIVATION_GIB
    cuda_graph_gib: float = CUDA_GRAPH_GIB
    communication_gib: float = COMMUNICATION_GIB


@dataclass(frozen=True, slots=True)
class Budget:
    """Cache memory of one rank on each stage; ``stages`` are Items, the parts are in them.

    ``short_bytes``: how much more memory the fullest rank would need to have any left.
    """

    stages: tuple[Item, ...]
    typed: bool
    short_bytes: int

    @property
    def left(self) -> tuple[int, ...]:
        """What the weights leave of each stage's memory, below zero where they are too much."""
        return tuple(int(stage.value) for stage in self.stages)

    @property
    def bytes(self) -> tuple[int, ...]:
        """Bytes of each stage, none below zero."""
        return tuple(max(0, left) for left in self.left)


def typed_budget(gib: float, stages: int) -> Budget:
    """The same typed memory on every stage."""
    item = typed_memory.item("budget", gibibytes=gib)
    return Budget((item,) * stages, typed=True, short_bytes=0)


def vllm_budget(
    memory_bytes: int, utilization: float, weights: Sequence[Item | int], allowances: Allowances
) -> Budget:
    """vLLM's way: a fraction of the GPU less everything that is not cache."""
    requested = requested_memory.item(
        "budget.requested", memory_bytes=memory_bytes, utilization=utilization
    )
    return _made(
        [
            memory_for_cache.item(
                f"stage{stage}.budget",
                requested_bytes=requested,
                weight_bytes=held,
                activation_bytes=int(allowances.activation_gib * GIB),
                graph_bytes=int(allowances.cuda_graph_gib * GIB),
                communication_bytes=int(allowances.communication_gib * GIB),
            )
            for stage, held in enumerate(weights)
        ]
    )


def sglang_budget(
    memory_bytes: int,
    fraction: float,
    weights: Sequence[Item | int],
    allowances: Allowances,
    batched_tokens: int,
    tp: int,
) -> Budget:
    """SGLang's way: a static share for weights and pools; ``fraction`` 0 is its own estimate."""
    if fraction:
        share = static_fraction.item(
            "budget.static", memory_bytes=memory_bytes, utilization=fraction
        )
    else:
        reserved = sglang_reserve.item(
            "budget.reserved",
            batched_tokens=batched_tokens,
            graph_batch=GRAPH_BATCH,
            tp=tp,
            pp=len(weights),
            least_bytes=10 * GIB if memory_bytes > 60 * GIB else 0,
        )
        share = static_memory.item(
            "budget.static", memory_bytes=memory_bytes, reserved_bytes=reserved
        )
    return _made(
        [
            memory_for_pools.item(
                f"stage{stage}.budget",
                requested_bytes=share,
                weight_bytes=held,
                communication_bytes=int(allowances.communication_gib * GIB),
            )
            for stage, held in enumerate(weights)
        ]
    )


def _made(stages: list[Item]) -> Budget:
    least = min(int(stage.value) for stage in stages)
    return Budget(tuple(stages), typed=False, short_bytes=max(0, -least))
