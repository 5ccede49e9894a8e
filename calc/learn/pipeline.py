"""One decode step of an attention layer under DCP, stage by stage, with what does it in an engine.

Shapes and bytes are those of the step's own stages; only the names of the components stand here.
Sources: vLLM 0.33 (model_executor/layers/attention/mla_attention.py, v1/attention/ops/dcp.py);
SGLang 0.5.23 (models/deepseek_v2.py, layers/dcp/comm.py, mem_cache/memory_pool.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.layers import Attention, LatentAttention
from calc.report import Report
from calc.traffic import Stage

COMPONENTS: dict[str, dict[str, str]] = {
    "down_projection": {
        "vllm": "fused_qkv_a_proj, q_a_layernorm, kv_a_layernorm",
        "sglang": "fused_qkv_a_proj_with_mqa, q_a_layernorm, kv_a_layernorm",
    },
    "cache_write": {
        "vllm": "concat_and_cache_mla; the slot mapping leaves other ranks' tokens out",
        "sglang": "set_mla_kv_buffer_dcp_sharded",
    },
    "query_up_projection": {"vllm": "q_b_proj", "sglang": "q_b_proj"},
    "query_absorption": {"vllm": "bmm with W_UK_T", "sglang": "bmm of q_nope with w_kc"},
    "query_projection": {"vllm": "qkv_proj", "sglang": "qkv_proj"},
    "gather_query": {
        "vllm": "all_gather of the DCP group, dim = heads",
        "sglang": "all-gather in layers/dcp/comm.py; none with dcp_replicate_q_proj",
    },
    "attention": {
        "vllm": "MLA backend that returns the LSE (FlashMLA, FlashInfer MLA, CUTLASS MLA)",
        "sglang": "attention backend with return_lse (Kimi K3: cutedsl_mla or aiter)",
    },
    "gather_lse": {"vllm": "cp_lse_ag_out_rs: all-gather", "sglang": "ag_rs: all-gather"},
    "reduce_partials": {
        "vllm": "cp_lse_ag_out_rs: reduce-scatter in bf16",
        "sglang": "ag_rs: reduction in float32",
    },
    "exchange_partials": {
        "vllm": "dcp_a2a_lse_reduce: bf16 output and float32 LSE packed",
        "sglang": "a2a or fi_a2a of layers/dcp/comm.py",
    },
    "value_up_projection": {"vllm": "_v_up_proj (W_UV)", "sglang": "bmm with w_vc"},
    "o_proj": {
        "vllm": "o_proj (RowParallelLinear), all-reduce over TP",
        "sglang": "o_proj (RowParallelLinear), all-reduce over TP",
    },
}
"""By stage of the step, then engine."""


@dataclass(frozen=True, slots=True)
class Box:
    """One stage of the pipeline: its number (parts of one step share it), what does it where."""

    number: int
    stage: Stage
    components: dict[str, str]


def pipeline(report: Report) -> tuple[Box, ...]:
    """The stages of the first latent layer, else of the first K/V attention; may be empty."""
    mixers = [mixer for layer in report.model.layers for mixer in layer.mixers]
    chosen = next((m for m in mixers if isinstance(m, LatentAttention)), None) or next(
        (m for m in mixers if type(m) is Attention), None
    )
    if chosen is None:
        return ()
    stages: dict[str, Stage] = {}
    for stage in report.step.stages:
        if stage.kind == chosen.kind and stage.name in COMPONENTS and not stage.drafts:
            stages.setdefault(stage.name, stage)
    latent = isinstance(chosen, LatentAttention)
    return tuple(
        Box(stage.number if latent else place, stage, COMPONENTS[name])
        for place, (name, stage) in enumerate(stages.items(), start=1)
    )
