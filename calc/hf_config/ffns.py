"""The feed-forward parts of each layer: dense, experts, both or none."""

from __future__ import annotations

from calc.errors import CalcError
from calc.hf_config.fields import Fields
from calc.hf_config.mixers import SHARED_BLOCKS, Source
from calc.hf_config.patterns import BOTH, EXPERTS_ONLY, MLP_ONLY, Pattern
from calc.layers import DenseFfn, MoeFfn
from calc.layers.base import Block

EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
)
DENSE_WIDTHS = (
    "intermediate_size_mlp",
    "dense_intermediate_size",
    "intermediate_size",
    "ffn_hidden_size",
    "n_inner",
)
SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)
SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "num_shared_expert")


def layer_ffns(source: Source, pattern: Pattern) -> tuple[list[tuple[Block, ...]], str]:
    """The feed-forward parts of every layer, and the field that decided which are experts."""
    words = pattern.words
    if source.family.pure_state:
        return [()] * len(words), "model_type"
    if {MLP_ONLY, EXPERTS_ONLY} & set(words):
        return _from_pattern(source, words), pattern.field
    if BOTH in words and not source.family.side_by_side:
        return _shared_blocks(source, words), pattern.field
    if not source.fields.has(*EXPERTS):
        return _dense_layers(source, len(words)), "intermediate_size"
    sparse, field = _sparse_layers(source.fields, len(words))
    experts = _experts(source)
    dense = _dense(source) if len(sparse) < len(words) else None
    beside: tuple[Block, ...] = ()
    if source.fields.flag("enable_moe_block"):
        beside = (_dense(source),)
    made: list[tuple[Block, ...]] = []
    for layer in range(len(words)):
        if layer in sparse:
            made.append((*beside, experts))
        else:
            assert dense is not None
            made.append((dense,))
    return made, field


def _from_pattern(source: Source, words: tuple[str, ...]) -> list[tuple[Block, ...]]:
    """Blocks of one part each: a layer is a mixer, or a dense block, or experts."""
    made: dict[str, tuple[Block, ...]] = {}
    if MLP_ONLY in words:
        made[MLP_ONLY] = (_dense(source),)
    if EXPERTS_ONLY in words:
        made[EXPERTS_ONLY] = (_experts(source),)
    return [made.get(word, ()) for word in words]


def _shared_blocks(source: Source, words: tuple[str, ...]) -> list[tuple[Block, ...]]:
    """Feed-forward parts only where a shared transformer block is called."""
    fields = source.fields
    blocks = fields.whole("num_mem_blocks", high=2**10)
    rank = (
        fields.maybe("adapter_rank")
        if fields.flag("use_shared_mlp_adapter", default=True)
        else None
    )
    made: list[tuple[Block, ...]] = []
    calls = 0
    for word in words:
        if word != BOTH:
            made.append(())
            continue
        shared = DenseFfn(
            intermediate_size=fields.whole("intermediate_size"),
            shared_weights=SHARED_BLOCKS.format(calls % blocks),
            adapter_rank=rank,
            exit_projection=True,
        )
        made.append((shared,))
        calls += 1
    return made


def _dense_layers(source: Source, layers: int) -> list[tuple[Block, ...]]:
    plain = _dense(source)
    ordinary: tuple[Block, ...] = (plain,)
    if not source.fields.flag("use_double_wide_mlp"):
        return [ordinary] * layers
    wide = plain.model_copy(update={"intermediate_size": 2 * plain.intermediate_size})
    readers = source.fields.maybe("num_kv_shared_layers", low=0, high=layers) or 0
    return [ordinary] * (layers - readers) + [(wide,)] * readers


def _gated(source: Source) -> bool:
    """Squared ReLU stands for two matrices, not three."""
    return source.family.gated and source.fields.text("mlp_hidden_act") != "relu2"


def _dense(source: Source) -> DenseFfn:
    fields = source.fields
    if fields.has(*DENSE_WIDTHS):
        size = _one_width(fields, *DENSE_WIDTHS)
    elif not source.family.gated:
        size = 4 * source.hidden_size  # the class default of ungated decoders
    else:
        size = fields.whole("intermediate_size")
    return DenseFfn(intermediate_size=size, gated=_gated(source), bias=fields.flag("mlp_bias"))


def _one_width(fields: Fields, *names: str) -> int:
    """A width; a list with one width for each layer is read where they are all equal."""
    name, value = fields.find(*names)
    if not isinstance(value, list):
        return fields.whole(*names)
    if not value or any(entry != value[0] for entry in value):
        raise CalcError(
            "invalid_value", field=fields.path + name, reason="widths that differ between layers"
        )
    return Fields({name: value[0]}, {}, fields.path).whole(name)


def _experts(source: Source) -> MoeFfn:
    fields, family = source.fields, source.family
    experts = fields.whole(*EXPERTS, high=2**16)
    used = _one_width(fields, *TOP_K)
    if used > experts:
        raise CalcError(
            "out_of_range",
            field=fields.path + fields.find(*TOP_K)[0],
            given=used,
            minimum=1,
            maximum=experts,
        )
    width = _one_width(
        fields, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size"
    )
    latent = fields.maybe("routed_expert_hidden_size", "moe_latent_size")
    steered = fields.text("topk_method") == "noaux_tc"
    bias = fields.flag(
        "use_routing_bias", "use_moe_router_bias", default=family.router_bias or steered
    )
    return MoeFfn(
        experts=experts,
        top_k=used,
        intermediate_size=width,
        shared_intermediate_size=_shared_width(source, width),
        latent_size=latent,
        latent_norm=fields.flag("latent_moe_use_norm"),
        gated=_gated(source),
        shared_gate=family.shared_gate,
        bias=family.expert_bias,
        router_bias=bias,
        groups=fields.maybe("n_group", "num_expert_group", low=0) or 1,
        top_k_groups=fields.maybe("topk_group", low=0) or 1,
    )


def _shared_width(source: Source, expert_width: int) -> int:
    """The width of all shared experts together."""
    fields = source.fields
    width = fields.maybe(*SHARED_WIDTHS, low=0)
    counted = fields.find(*SHARED_COUNTS)[1]
    if width is not None:
        return width
    if isinstance(counted, list):
        return _one_width(fields, *SHARED_COUNTS) * expert_width
    count = fields.maybe(*SHARED_COUNTS, low=0, high=2**10)
    return (source.family.shared_experts if count is None else count) * expert_width


def _sparse_layers(fields: Fields, layers: int) -> tuple[set[int], str]:
    """The layers with experts, and the field that says so."""
    everywhere = set(range(layers))
    types = fields.per_layer("mlp_layer_types", layers, {"dense": False, "sparse": True}, extra=8)
    if types is not None:
        fields.ignore("first_k_dense_replace", "moe_layer_freq")
        return {i for i in everywhere if types[i]}, "mlp_layer_types"
    if isinstance(fields.find("moe_layer_freq")[1], list):
        fields.ignore("first_k_dense_replace")
        listed_freq = fields.per_layer("moe_layer_freq", layers, {0: False, 1: True})
        return {i for i in everywhere if listed_freq and listed_freq[i]}, "moe_layer_freq"
    listed = fields.text("moe_layers_enum")
    if listed is not None:
        return _numbers(fields, listed, layers), "moe_layers_enum"
    period = fields.maybe("expert_layer_period")
    if period is not None:
        offset = fields.maybe("expert_layer_offset", low=0) or 0
        return {i for i in everywhere if i % period == offset % period}, "expert_layer_period"
    step = fields.maybe("interleave_moe_layer_step")
    if step is not None:
        return {i for i in everywhere if (i + 1) % step == 0}, "interleave_moe_layer_step"
    if fields.has("first_k_dense_replace"):
        first = fields.whole("first_k_dense_replace", low=0)
        every = fields.maybe("moe_layer_freq") or 1
        chosen = {i for i in everywhere if i >= first and i % every == 0}
        return chosen, "first_k_dense_replace"
    dense = fields.indices(layers, "mlp_only_layers") or set()
    sparse_step = fields.maybe("decoder_sparse_step") or 1
    chosen = {i for i in everywhere - dense if (i + 1) % sparse_step == 0}
    return chosen, "mlp_only_layers" if dense else "num_hidden_layers"


def _numbers(fields: Fields, listed: str, layers: int) -> set[int]:
    entries = [entry.strip() for entry in listed.split(",") if entry.strip()]
    if not all(entry.isascii() and entry.isdigit() and len(entry) < 6 for entry in entries):
        raise CalcError(
            "invalid_value",
            field=fields.path + "moe_layers_enum",
            reason="it is not a list of layer numbers",
        )
    return {int(entry) for entry in entries if int(entry) < layers}
