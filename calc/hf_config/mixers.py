"""The mixers of each layer: from the pattern's words and the widths in the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from calc.errors import CalcError
from calc.hf_config.families import Family
from calc.hf_config.fields import Fields
from calc.hf_config.patterns import (
    BOTH,
    CHUNK,
    COMPRESSED,
    CONV,
    FULL,
    KDA,
    LINEAR,
    STATE,
    WINDOW,
    Pattern,
)
from calc.layers import (
    Attention,
    ChunkedAttention,
    CompressedLatentAttention,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    ShortConvolution,
    SlidingWindowAttention,
)
from calc.units import ceil_div

StateDtype = Literal["bf16", "float32"]
DTYPES: dict[str, StateDtype] = {"float32": "float32", "bfloat16": "bf16", "float16": "bf16"}
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_head_kv",
    "num_attention_groups",
    "num_query_groups",
)
SHARED_BLOCKS = "block-{}"


@dataclass(frozen=True, slots=True)
class Source:
    """A config, its family and its hidden size."""

    fields: Fields
    family: Family
    hidden_size: int


def layer_mixers(source: Source, pattern: Pattern) -> list[tuple[Mixer, ...]]:
    """The mixers of every layer, in order."""
    made = {word: mixers_of(source, word) for word in dict.fromkeys(pattern.words)}
    mixers = [made[word] for word in pattern.words]
    mixers = _share_blocks(source, pattern, mixers)
    mixers = _reuse_indexers(source, mixers)
    return _read_others(source, mixers)


def mixers_of(source: Source, word: str) -> tuple[Mixer, ...]:
    """The mixers that one word of a pattern stands for."""
    if word.startswith(COMPRESSED):
        return (_compressed(source, int(word.removeprefix(COMPRESSED))),)
    build = BUILDERS.get(word)
    return build(source) if build else ()


# ---------------------------------------------------------------- attention


def _heads(source: Source, prefix: str = "") -> dict[str, Any]:
    """Head counts and widths, flags of weights included."""
    fields, family = source.fields, source.family
    heads = fields.whole(
        f"{prefix}num_attention_heads", "num_attention_heads", "n_head", high=2**14
    )
    width = fields.maybe(f"{prefix}head_dim", "head_dim", "attention_head_dim", "kv_channels")
    if width is None:
        width, rest = divmod(source.hidden_size, heads)
        if rest:
            raise CalcError("config_missing", field=fields.path + "head_dim", names="head_dim")
    gate = "element" if fields.flag("attn_output_gate") else family.output_gate
    bias = fields.flag("attention_bias", default=family.qkv_bias)
    normed = fields.flag("use_qk_norm", default=family.qk_norm != "none")
    over_all = fields.text("qk_norm_type") == "per_layer"
    norm = "width" if over_all else "head"
    return {
        "heads": heads,
        "kv_heads": _kv_heads(fields, heads, prefix),
        "k_dim": width,
        "v_dim": fields.maybe(f"{prefix}v_head_dim", "v_head_dim") or width,
        "qkv_bias": bias,
        "o_bias": family.o_bias and bias,
        "qk_norm": norm if normed and not family.weightless_norms else "none",
        "output_gate": gate,
        "sinks": family.sinks,
        "heads_over_dcp": family.heads_over_dcp,
    }


def _kv_heads(fields: Fields, heads: int, prefix: str = "") -> int:
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        fields.ignore("num_kv_heads")
        return 1
    names = [f"{prefix}num_key_value_heads", *KV_HEADS]
    if fields.flag("multi_query_attention"):
        names.append("multi_query_group_num")
    else:
        fields.ignore("multi_query_group_num")
    return fields.maybe(*names, high=2**14) or heads


def _full(source: Source) -> tuple[Mixer, ...]:
    fields = source.fields
    if fields.has("kv_lora_rank"):
        return _latent(source)
    widths = _heads(source)
    wide = fields.maybe("global_head_dim")
    if wide:
        widths |= {"k_dim": wide, "v_dim": wide, "v_from_k": fields.flag("attention_k_eq_v")}
        widths["kv_heads"] = (
            fields.maybe("num_global_key_value_heads", high=2**14) or widths["kv_heads"]
        )
    widths["sinks"] = fields.flag("add_full_attention_sink_bias", default=widths["sinks"])
    return (Attention(**widths),)


def _window(source: Source) -> tuple[Mixer, ...]:
    fields = source.fields
    widths = _heads(source, "swa_")
    other = fields.section("attention_other_setting")
    if other is not None:
        widths["heads"] = other.whole("num_attention_heads", high=2**14)
        widths["kv_heads"] = _kv_heads(other, widths["heads"])
    widths["sinks"] = fields.flag("add_swa_attention_sink_bias", default=widths["sinks"])
    window = fields.whole("sliding_window", "sliding_window_size", high=2**30)
    fields.ignore("attention_chunk_size", "sliding_window_size")  # MiMo repeats the window there
    return (SlidingWindowAttention(**widths, window=window),)


def _chunk(source: Source) -> tuple[Mixer, ...]:
    chunk = source.fields.whole("attention_chunk_size", high=2**30)
    return (ChunkedAttention(**_heads(source), chunk=chunk),)


def _latent(source: Source) -> tuple[Mixer, ...]:
    fields = source.fields
    fields.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "attention_bias")
    sparse = fields.has("index_topk")
    latent = LatentAttention(
        heads=fields.whole("num_attention_heads", high=2**14),
        kv_lora_rank=fields.whole("kv_lora_rank"),
        rope_dim=fields.whole("qk_rope_head_dim", low=0),
        nope_dim=fields.whole("qk_nope_head_dim"),
        v_dim=fields.whole("v_head_dim"),
        q_lora_rank=fields.maybe("q_lora_rank"),
        sparse=sparse,
        output_gate=fields.flag("mla_use_output_gate"),
        query_replication=source.family.query_replication,
    )
    return (latent, _indexer(source, latent.q_lora_rank)) if sparse else (latent,)


def _indexer(source: Source, q_lora_rank: int | None) -> Indexer:
    fields = source.fields
    return Indexer(
        heads=fields.whole("index_n_heads", high=2**14),
        index_dim=fields.whole("index_head_dim"),
        top_k=fields.whole("index_topk"),
        q_lora_rank=q_lora_rank,
    )


def _compressed(source: Source, ratio: int) -> CompressedLatentAttention:
    fields = source.fields
    fields.ignore("num_key_value_heads", "compress_rope_theta")
    overlap = ratio == OVERLAPPED
    return CompressedLatentAttention(
        heads=fields.whole("num_attention_heads", high=2**14),
        head_dim=fields.whole("head_dim"),
        rope_dim=fields.whole("qk_rope_head_dim", low=0),
        window=fields.whole("sliding_window", high=2**30),
        compress_ratio=ratio or None,
        overlap=overlap,
        q_lora_rank=fields.whole("q_lora_rank"),
        o_groups=fields.maybe("o_groups", high=2**14) or 1,
        o_lora_rank=fields.whole("o_lora_rank"),
        index_dim=fields.whole("index_head_dim") if overlap else None,
        index_heads=fields.whole("index_n_heads", high=2**14) if overlap else None,
        index_top_k=fields.whole("index_topk") if overlap else None,
    )


OVERLAPPED = 4
"""The compression at which groups overlap and an indexer chooses among them (DeepSeek-V4)."""


# ---------------------------------------------------------------- states


def _state_dtype(source: Source) -> StateDtype | None:
    fields = source.fields
    asked = fields.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if asked is None or asked == "auto":
        return source.family.state_dtype
    if asked not in DTYPES:
        name = fields.find("mamba_ssm_cache_dtype", "mamba_ssm_dtype")[0]
        raise CalcError(
            "not_a_choice",
            field=fields.path + name,
            given=repr(asked)[:64],
            allowed=", ".join(DTYPES),
        )
    return DTYPES[asked]


def _state(source: Source) -> tuple[Mixer, ...]:
    return (_mamba1(source) if source.family.states == "mamba1" else _mamba2(source),)


def _mamba1(source: Source) -> Mamba1:
    fields = source.fields
    expand = fields.maybe("mamba_expand")
    if expand is None:
        fields.ignore("expand")  # falcon-mamba: it contradicts intermediate_size
        inner = fields.whole("intermediate_size")
    else:
        inner = expand * source.hidden_size
    rank = fields.find("mamba_dt_rank", "time_step_rank")[1]
    dt_rank = (
        ceil_div(source.hidden_size, 16)
        if rank == "auto"
        else fields.whole("mamba_dt_rank", "time_step_rank")
    )
    return Mamba1(
        inner_size=inner,
        state_size=fields.whole("mamba_d_state", "state_size"),
        conv_kernel=fields.whole("mamba_d_conv", "conv_kernel"),
        dt_rank=dt_rank,
        conv_bias=fields.flag("mamba_conv_bias", "use_conv_bias", default=True),
        inner_norms=source.family.inner_norms,
        state_dtype=_state_dtype(source),
    )


def _mamba2(source: Source) -> Mamba2:
    fields = source.fields
    head_names = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    heads = fields.whole(*head_names, high=2**14)
    width = _mamba2_width(source, heads)
    fields.ignore("mamba_d_ssm", "time_step_rank", "expand", "mamba_expand")
    return Mamba2(
        heads=heads,
        head_dim=width,
        state_size=fields.whole("ssm_state_size", "mamba_d_state", "state_size"),
        groups=fields.whole("n_groups", "mamba_n_groups", "mamba_ngroups", high=2**14),
        conv_kernel=fields.whole("conv_kernel", "mamba_d_conv"),
        conv_bias=fields.flag("use_conv_bias", "mamba_conv_bias", default=True),
        gated_norm=fields.flag("mamba_rms_norm", default=source.family.gated_norm),
        state_dtype=_state_dtype(source),
    )


def _mamba2_width(source: Source, heads: int) -> int:
    """A head's width; where the file leaves it open ("auto"), the inner width over the heads."""
    fields = source.fields
    names = ("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    given = fields.find(*names)[1]
    if given == "auto" or (given is None and fields.has("mamba_expand")):
        return fields.whole("mamba_expand") * source.hidden_size // heads
    return fields.whole(*names, *(("head_dim",) if source.family.pure_state else ()))


def _linear(source: Source) -> tuple[Mixer, ...]:
    fields = source.fields
    if not fields.has("linear_num_value_heads"):
        widths = _heads(source)
        return (LightningAttention(heads=widths["heads"], head_dim=widths["k_dim"]),)
    return (
        GatedDeltaNet(
            key_heads=fields.whole("linear_num_key_heads", high=2**14),
            key_dim=fields.whole("linear_key_head_dim"),
            value_heads=fields.whole("linear_num_value_heads", high=2**14),
            value_dim=fields.whole("linear_value_head_dim"),
            conv_kernel=fields.whole("linear_conv_kernel_dim"),
            state_dtype=_state_dtype(source),
        ),
    )


def _kda(source: Source) -> tuple[Mixer, ...]:
    section = source.fields.section("linear_attn_config")
    assert section is not None
    return (
        KimiDeltaAttention(
            heads=section.whole("num_heads", high=2**14),
            head_dim=section.whole("head_dim"),
            conv_kernel=section.whole("short_conv_kernel_size"),
            full_rank_gate=section.flag("use_full_rank_gate"),
            exports_checkpoint=source.family.exports_checkpoint,
        ),
    )


def _conv(source: Source) -> tuple[Mixer, ...]:
    kernel = source.fields.whole("conv_L_cache")
    return (ShortConvolution(channels=source.hidden_size, conv_kernel=kernel),)


def _both(source: Source) -> tuple[Mixer, ...]:
    """Attention and a state in one layer; a shared block reads twice the hidden width."""
    if source.family.side_by_side:
        return (*_full(source), *_state(source))
    widths = _heads(source)
    fields = source.fields
    wide = fields.maybe("attention_hidden_size") or 2 * source.hidden_size
    fields.ignore("kv_channels", "num_query_groups", "attention_head_dim")
    head = wide // widths["heads"]
    widths |= {"k_dim": head, "v_dim": head, "input_size": wide}
    return (Attention(**widths), *_state(source))


BUILDERS: dict[str, Callable[[Source], tuple[Mixer, ...]]] = {
    FULL: _full,
    WINDOW: _window,
    CHUNK: _chunk,
    LINEAR: _linear,
    STATE: _state,
    KDA: _kda,
    CONV: _conv,
    BOTH: _both,
}


# ---------------------------------------------------------------- what layers share


def _share_blocks(
    source: Source, pattern: Pattern, mixers: list[tuple[Mixer, ...]]
) -> list[tuple[Mixer, ...]]:
    """Shared transformer blocks take turns: the n-th call uses block n mod blocks."""
    if source.family.side_by_side or BOTH not in pattern.words:
        return mixers
    blocks = source.fields.whole("num_mem_blocks", high=2**10)
    calls = 0
    for layer, word in enumerate(pattern.words):
        if word == BOTH:
            shared = {"shared_weights": SHARED_BLOCKS.format(calls % blocks)}
            attention, *rest = mixers[layer]
            mixers[layer] = (attention.model_copy(update=shared), *rest)
            calls += 1
    return mixers


def _reuse_indexers(source: Source, mixers: list[tuple[Mixer, ...]]) -> list[tuple[Mixer, ...]]:
    """Layers with a "shared" indexer use the choice of an earlier layer and keep no keys."""
    meaning = {"full": True, "shared": False}
    own = source.fields.per_layer("indexer_types", len(mixers), meaning)
    if own is not None:
        source.fields.ignore("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern")
        return [
            layer if keeps else tuple(m for m in layer if not isinstance(m, Indexer))
            for keeps, layer in zip(own, mixers, strict=True)
        ]
    sparse = source.fields.section("sparse_attention_config")
    if sparse is None or not sparse.flag("use_sparse_attention", default=True):
        return mixers
    return _block_sparse(source, sparse, mixers)


def _block_sparse(
    source: Source, sparse: Fields, mixers: list[tuple[Mixer, ...]]
) -> list[tuple[Mixer, ...]]:
    """Layers that choose blocks of their own K and V through an indexer beside them."""
    block = sparse.whole("sparse_block_size")
    indexer = Indexer(
        heads=sparse.whole("sparse_num_index_heads", high=2**14),
        index_dim=sparse.whole("sparse_index_dim"),
        top_k=min(block * sparse.whole("sparse_topk_blocks"), 2**20),
        plain_keys=source.family.plain_index_keys,
    )
    everywhere = [True] * len(mixers)
    meaning = {0: False, 1: True}
    chosen = sparse.per_layer("sparse_attention_freq", len(mixers), meaning) or everywhere
    return [
        (*layer, indexer) if used else layer for used, layer in zip(chosen, mixers, strict=True)
    ]


def _read_others(source: Source, mixers: list[tuple[Mixer, ...]]) -> list[tuple[Mixer, ...]]:
    """Layers that read the K and V of an earlier one (the last n; or all but one of each group)."""
    fields = source.fields
    layers = len(mixers)
    last = fields.maybe("num_kv_shared_layers", low=0, high=layers) or 0
    readers = set(range(layers - last, layers))
    if fields.flag("use_cla"):
        factor = fields.whole("cla_share_factor")
        readers |= {layer for layer in range(layers) if layer % factor}
    else:
        fields.ignore("cla_share_factor")
    reading = {"reads_other_layer": True, "kv_projections": source.family.readers_have_kv}
    return [
        tuple(
            mixer.model_copy(update=reading) if isinstance(mixer, Attention) else mixer
            for mixer in layer
        )
        if position in readers
        else layer
        for position, layer in enumerate(mixers)
    ]
