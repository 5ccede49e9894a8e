"""The engine's own account of a scenario's cache: the budget, then blocks or pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.answers import Mix, SharedPrefix, in_deployment, mixed_lengths, shared_prefix
from calc.budget import Allowances, Budget, sglang_budget, typed_budget, vllm_budget
from calc.capacity import CONTEXT_LIMIT, Cache, Fit
from calc.engine_json import budget_json, engine_json, mix_json, prefix_json
from calc.engines import ENGINES, Engine
from calc.engines.settings import CacheSettings
from calc.engines.sglang_pool import PoolView, pool_view
from calc.engines.vllm_blocks import BlockView, Plan, block_view, plan
from calc.formats import KV_FORMATS
from calc.hardware import CUSTOM_GPU, NO_GPU, load_hardware
from calc.items import Item
from calc.layers import Sharding
from calc.layers.base import HOPPER
from calc.scenario import Scenario
from calc.units import GIB
from calc.weights import RankWeights, rank_bytes


def cache_settings(scenario: Scenario, engine: Engine | None = None) -> CacheSettings:
    """The cache options of a scenario in its engine (or another), for requests of its context."""
    rules = engine or scenario.engine_rules
    place = place_of(scenario)
    if rules is not place.engine:
        place = replace(place, engine=rules)
    return CacheSettings(
        max_model_len=scenario.context,
        max_num_batched_tokens=scenario.max_num_batched_tokens,
        async_scheduling=scenario.async_scheduling == "on",
        block_size=scenario.block_size or rules.default_block(scenario.model_spec, place),
        prefix_caching=scenario.prefix_caching == "on",
        speculative_tokens=scenario.speculative_tokens,
        hybrid_manager=scenario.hybrid_kv_manager == "on",
        swa_full_tokens_ratio=scenario.swa_full_tokens_ratio,
        mamba_full_memory_ratio=scenario.mamba_full_memory_ratio,
    )


def conv_drafts(scenario: Scenario) -> int:
    """Draft tokens by which the engine widens convolution windows (vLLM does, SGLang does not)."""
    return scenario.speculative_tokens if scenario.engine == "vllm" else 0


def place_of(scenario: Scenario) -> Sharding:
    """One rank of a scenario: how layout, engine and formats divide what a layer keeps."""
    return Sharding(
        scenario.tp,
        scenario.dcp,
        scenario.engine_rules,
        KV_FORMATS[scenario.kv_dtype],
        scenario.conv_dtype,
        scenario.state_dtype,
        conv_drafts(scenario),
        scenario.speculative_tokens > 0,
        cuda_of(scenario),
    )


def cuda_of(scenario: Scenario) -> int:
    """The GPU's CUDA capability without its fraction; Hopper's where none is named."""
    if scenario.gpu in (NO_GPU, CUSTOM_GPU):
        return HOPPER
    capability = load_hardware(scenario.gpu).cuda_capability
    return int(capability.value) if capability else 0


def gpu_memory(scenario: Scenario) -> int | None:
    """Bytes of the chosen GPU; None where the cache memory is typed."""
    if scenario.cache_memory == "typed" or scenario.gpu == NO_GPU:
        return None
    if scenario.gpu == CUSTOM_GPU:
        return int(scenario.gpu_memory_gib * GIB)
    return load_hardware(scenario.gpu).memory_bytes.value


def scenario_budget(scenario: Scenario, weights: RankWeights) -> Budget:
    """The cache memory of one rank on each pipeline stage."""
    held: list[Item | int] = list(weights.stage_bytes)
    held[weights.stage] = weights.total
    return budget_beside(scenario, held)


def budget_beside(scenario: Scenario, held: Sequence[Item | int]) -> Budget:
    """The cache memory beside the weights that the ranks of each pipeline stage hold."""
    memory = gpu_memory(scenario)
    if memory is None:
        return typed_budget(scenario.kv_cache_memory_gib, scenario.pp)
    allowances = Allowances(
        scenario.activation_gib, scenario.cuda_graph_gib, scenario.communication_gib
    )
    if scenario.engine == "sglang":
        return sglang_budget(
            memory,
            scenario.mem_fraction_static,
            held,
            allowances,
            scenario.max_num_batched_tokens,
            scenario.tp,
        )
    return vllm_budget(memory, scenario.gpu_memory_utilization, held, allowances)


def vllm_plan(scenario: Scenario, place: Sharding) -> Plan:
    """Pages and groups; kept with the model, as they depend on no budget."""
    model, settings = scenario.model_spec, cache_settings(scenario, ENGINES["vllm"])
    sizes = scenario.layout.stage_layers or model.stage_sizes(scenario.pp)
    key = (
        "vllm.plan",
        settings,
        sizes,
        place.tp,
        place.dcp,
        place.kv_format.id,
        place.conv_dtype,
        place.state_dtype,
        place.conv_drafts,
        place.drafting,
        place.cuda,
    )
    return model.kept(key, lambda: plan(model, place, settings, sizes))


def pages_of(scenario: Scenario) -> Plan | None:
    """vLLM's pages; raises CalcError where it has none for this cache. None for other engines."""
    return vllm_plan(scenario, place_of(scenario)) if scenario.engine == "vllm" else None


def vllm_view(made: Plan, held: Cache, budget: Budget, batch: int) -> BlockView | None:
    """vLLM's blocks for a budget."""
    formulas = [stage.per_request for stage in held.stages]
    return block_view(made, budget.bytes, formulas, CONTEXT_LIMIT, batch)


def sglang_view(
    scenario: Scenario, place: Sharding, held: Cache, budget: Budget
) -> PoolView | None:
    """SGLang's pools for a budget."""
    settings = cache_settings(scenario)
    return pool_view(held.stages, place, settings, budget.bytes, CONTEXT_LIMIT, scenario.batch)


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Weights, budget and the engine's view of one scenario.

    ``view`` is vLLM's blocks or SGLang's pools; ``plan`` is kept for vLLM, to ask
    for the blocks of other lengths. ``prefix`` and ``mix`` are there when the
    scenario names a shared prefix or several lengths.
    """

    weights: RankWeights
    budget: Budget
    view: BlockView | PoolView | None
    plan: Plan | None
    prefix: SharedPrefix | None
    mix: Mix | None

    def to_json(self, scenario: Scenario, fitted: Fit) -> dict[str, Any]:
        """The engine's part of ``capacity``."""
        requests = int(fitted.max_requests.value)
        return {
            "max_requests_deployment": in_deployment(requests, scenario.dp),
            "budget": budget_json(self.budget, fitted.stage),
            "blocks": engine_json(scenario.engine_rules, self.view),
            "shared_prefix": prefix_json(self.prefix),
            "mix": mix_json(self.mix),
        }


def engine_report(
    scenario: Scenario, place: Sharding, held: Cache, query_replicated: bool
) -> EngineReport:
    """Everything the engine allocates, and what a budget holds besides equal requests."""
    weights = rank_bytes(
        scenario.model_spec,
        scenario.layout,
        scenario.weight_format,
        query_replicated,
        drafting=scenario.speculative_tokens > 0,
    )
    budget = scenario_budget(scenario, weights)
    made: Plan | None = None
    view: BlockView | PoolView | None
    if scenario.engine == "vllm":
        made = vllm_plan(scenario, place)
        view = vllm_view(made, held, budget, scenario.batch)
    else:
        view = sglang_view(scenario, place, held, budget)
    engine = (made, view) if made and isinstance(view, BlockView) else None
    least = min(budget.bytes)
    lengths = scenario.pairs("lengths")
    return EngineReport(
        weights,
        budget,
        view,
        made,
        shared_prefix(held, least, scenario.shared_prefix, scenario.context, scenario.batch, engine)
        if scenario.shared_prefix
        else None,
        mixed_lengths(held, least, lengths, engine) if lengths else None,
    )
