"""What a model type's classes decide when the file does not: defaults and traits.

``defaults`` are fields that the configuration class fills in. The other traits
are built into the model's code and appear in no file. Read from transformers
(5.x) unless noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from calc.model import EngineDefaults


@dataclass(frozen=True, slots=True)
class Family:
    """One model type; most traits change weights, ``side_by_side`` and ``states`` the cache."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    qk_norm: Literal["none", "head", "width"] = "none"
    qkv_bias: bool = False
    o_bias: bool = False
    sinks: bool = False
    output_gate: Literal["none", "head", "element"] = "none"
    norms_per_part: int = 1
    gated: bool = True
    parallel_block: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    shared_experts: int = 0
    inner_norms: bool = False
    gated_norm: bool = True
    side_by_side: bool = False  # attention and a state in every layer
    states: Literal["", "mamba1", "mamba2"] = ""  # layers called "mamba", or all of a pure model
    pure_state: bool = False
    state_dtype: Literal["bf16", "float32"] | None = None
    window_everywhere: bool = False  # sliding_window without a pattern is meant for all layers
    readers_have_kv: bool = (
        False  # layers that read another's K and V have projections all the same
    )
    weightless_norms: bool = False  # q and k are normalised without weights
    plain_index_keys: bool = False
    exports_checkpoint: bool = False
    heads_over_dcp: bool = False
    query_replication: tuple[Literal["vllm", "sglang"], ...] = ("vllm", "sglang")
    engine_defaults: Mapping[Literal["vllm", "sglang"], EngineDefaults] = field(
        default_factory=dict
    )


TIED: dict[str, Any] = {"tie_word_embeddings": True}
MLA = Family(router_bias=True)
GEMMA = Family(TIED, norms_per_part=2)
QWEN3 = Family(qk_norm="head")
QWEN_HYBRID = Family(qk_norm="head", output_gate="element", shared_gate=True)
QWEN_3_5 = replace(QWEN_HYBRID, heads_over_dcp=True)  # SGLang 0.5.23 models/qwen3_5.py
BAMBA = Family(states="mamba2")

FAMILIES: dict[str, Family] = {
    "llama": Family(o_bias=True),
    "mistral": Family(window_everywhere=True),
    "mixtral": Family(window_everywhere=True),
    "phi3": Family(window_everywhere=True),
    "llama4": Family({"no_rope_layer_interval": 4}, shared_experts=1, weightless_norms=True),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True, shared_gate=True),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_next": QWEN_HYBRID,
    "qwen3_5": QWEN_3_5,
    "qwen3_5_moe": QWEN_3_5,
    "gpt_oss": Family(expert_bias=True, sinks=True, qkv_bias=True, o_bias=True),
    "gemma2": replace(GEMMA, defaults=TIED | {"sliding_window_pattern": 2}),
    "gemma3": replace(
        GEMMA,
        qk_norm="head",
        defaults=TIED
        | {
            "sliding_window_pattern": 6,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
        },
    ),
    "gemma3n": replace(GEMMA, qk_norm="head", readers_have_kv=True),
    "gemma4": replace(GEMMA, qk_norm="head"),
    "cohere": Family(TIED, parallel_block=True),
    "cohere2": Family(TIED | {"sliding_window_pattern": 4}, parallel_block=True),
    "falcon": Family(TIED, gated=False, norms_per_part=2, parallel_block=True),
    "deepseek_v2": Family(),
    "deepseek_v3": MLA,
    "deepseek_v32": MLA,
    "deepseek_v4": MLA,
    "kimi_k2": MLA,
    "kimi_linear": MLA,
    # vLLM 0.33 models/kimi_k3/nvidia: mla.py always gathers the query, kda.py saves states
    # and SGLang 0.5.23 arg_groups/model_overrides/kimi_k3.py replicates its projection
    "kimi_k3": replace(
        MLA,
        query_replication=("sglang",),
        exports_checkpoint=True,
        engine_defaults={"sglang": EngineDefaults(query_replication=True)},
    ),
    "glm4_moe": Family(router_bias=True),
    # vLLM 0.33 model_executor/models/config.py
    "glm_moe_dsa": replace(
        MLA,
        engine_defaults={"vllm": EngineDefaults(dcp_backend="a2a", query_replication=True)},
    ),
    "mimo_v2_flash": Family(),
    "step3p5": Family(output_gate="head", qk_norm="head"),
    "step3p7": Family(output_gate="head", qk_norm="head"),
    "minimax_text_01": Family(),
    "minimax_m1": Family(),
    "minimax": Family(),
    "minimax_m2": Family(),
    "minimax_m3": Family(plain_index_keys=True),
    "jamba": Family(
        {"num_experts": 16, "num_experts_per_tok": 2}, states="mamba1", inner_norms=True
    ),
    "mamba": Family({"conv_kernel": 4}, states="mamba1", pure_state=True),
    "falcon_mamba": Family({"conv_kernel": 4}, states="mamba1", pure_state=True),
    "mamba2": Family({"conv_kernel": 4}, states="mamba2", pure_state=True),
    # vLLM 0.33 keeps float32 states for this type unless the config says otherwise
    "nemotron_h": Family(
        {"conv_kernel": 4}, states="mamba2", router_bias=True, state_dtype="float32"
    ),
    "bamba": BAMBA,
    "granitemoehybrid": BAMBA,
    "falcon_h1": Family(states="mamba2", side_by_side=True, gated_norm=False),
    "zamba2": Family(TIED | {"num_mem_blocks": 2, "adapter_rank": 128}, states="mamba2"),
    "hunyuan_v1_moe": Family(TIED, qk_norm="head"),
    "hunyuan": Family(TIED, qk_norm="head"),
    "lfm2": Family(TIED, qk_norm="head"),
}


def family_of(model_type: str) -> Family | None:
    """The family of a model type; a text part has that of the whole (``gemma3_text``)."""
    for name in (model_type, model_type.removesuffix("_text")):
        if name in FAMILIES:
            return FAMILIES[name]
    return None
