"""A scenario's choices for a step, checked against what engine and model have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calc.collectives import ALGORITHMS
from calc.errors import CalcError
from calc.model import ModelSpec
from calc.traffic.stage import Options
from calc.weight_formats import CHECKPOINT

if TYPE_CHECKING:
    from calc.scenario import Scenario


def step_options(scenario: Scenario) -> Options:
    """The Options of a scenario; raises CalcError for one that cannot be."""
    model = scenario.model_spec
    if scenario.query_dtype != "bf16":
        _check_query_dtype(scenario, model)
    if scenario.prefill_tokens > scenario.context:
        raise CalcError("prefill_tokens", given=scenario.prefill_tokens, context=scenario.context)
    stored = model.checkpoint.get("experts", "bf16")
    return Options(
        query_dtype=scenario.query_dtype,
        moe_backend=scenario.moe_backend,
        dispatch_dtype=scenario.dispatch_dtype,
        expert_format=stored if scenario.weight_format == CHECKPOINT else scenario.weight_format,
        speculative_tokens=scenario.speculative_tokens,
        sequence_parallel=scenario.sequence_parallel == "on",
        algorithm=next(name for name in ALGORITHMS if name == scenario.collective_algorithm),
        gpus_per_node=scenario.gpus_per_node,
    )


def _check_query_dtype(scenario: Scenario, model: ModelSpec) -> None:
    reason = None
    if not model.latent_mixers:
        reason = "only latent attention (MLA) gathers fp8 queries"
    elif any(mixer.sparse for mixer in model.latent_mixers):
        reason = "sparse attention keeps its queries in bf16"
    elif scenario.kv_dtype != "fp8":
        reason = "attention runs in fp8 only on a cache with kv_dtype fp8"
    if reason:
        raise CalcError("query_dtype", given=scenario.query_dtype, reason=reason)
