"""Fields that may affect the cache and that nobody read."""

from __future__ import annotations

from calc.hf_config.fields import Fields

TELLING = (
    "attn",
    "attention",
    "block",
    "cache",
    "chunk",
    "cla",
    "compress",
    "conv",
    "group",
    "head",
    "hybrid",
    "index",
    "kv",
    "latent",
    "layer",
    "linear",
    "lora",
    "mamba",
    "pattern",
    "query",
    "recurrent",
    "share",
    "sliding",
    "sparse",
    "ssm",
    "state",
    "window",
)
"""Parts of names of fields that describe layers or what they keep."""

HARMLESS = frozenset(
    {
        "_attn_implementation",
        "activation_situ_linear_beta",
        "add_cross_attention",
        "attention_bias",
        "attention_dropout",
        "attention_dropout_prob",
        "attention_in_multiplier",
        "attention_logit_cap",
        "attention_out_multiplier",
        "attention_value_scale",
        "attn_logit_softcapping",
        "attn_res_block_size",
        "attn_scale",
        "attn_temperature_tuning",
        "audio_config",
        "bias",
        "cache_implementation",
        "chunk_size",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "full_attn_mod",
        "head_dtype",
        "hidden_size_per_layer_input",
        "index_share_for_mtp_iteration",
        "indexer_rope_interleave",
        "initializer_range",
        "key_multiplier",
        "kv_cache_dtype",
        "kv_cache_scheme",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "layernorm_epsilon",
        "layernorm_full_attention_alpha",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_alpha",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_alpha",
        "layernorm_mlp_beta",
        "lm_head_multiplier",
        "mamba_cache_dtype",
        "mamba_chunk_size",
        "mamba_hidden_act",
        "mamba_inner_layernorms",
        "mamba_norm_before_gate",
        "mamba_proj_bias",
        "mamba_use_mlp",
        "moe_latent_norm",
        "moe_layers_enum",
        "num_beam_groups",
        "num_hash_layers",
        "num_logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "pruned_heads",
        "query_pre_attn_scalar",
        "residual_in_fp32",
        "rope_interleave",
        "shared_moe_mode",
        "ssm_in_multiplier",
        "ssm_multipliers",
        "ssm_out_multiplier",
        "tie_word_embeddings",
        "use_bidirectional_attention",
        "use_cache",
        "use_grouped_topk",
        "use_head_wise_attn_gate",
        "use_mamba_kernels",
        "vision_config",
        "vocab_size_per_layer_input",
    }
)
"""Names that match by accident: numerics, dropout, kernels and the like."""


def not_understood(fields: Fields) -> list[str]:
    """The unread fields with a telling name and a value that is not off, sorted."""
    return sorted(
        f"{fields.path}{name}"[:80]
        for name, value in fields.data.items()
        if name not in fields.read | HARMLESS
        and not _is_off(value)
        and any(part in name.lower() for part in TELLING)
    )


def _is_off(value: object) -> bool:
    """None, false, zero, -1, and empty lists and mappings switch nothing on."""
    return value in (None, False, 0, -1, "", "auto") or value in ([], {})
