"""Which kind each layer is: one rule for each way in which a config can say so.

A rule reads its field and returns a word for every layer, or None where the
field is absent. The first rule that answers decides, and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.errors import CalcError
from calc.hf_config.families import Family
from calc.hf_config.fields import Fields

FULL, WINDOW, CHUNK, LINEAR, STATE, CONV = "full", "window", "chunk", "linear", "state", "conv"
NONE, BOTH, KDA, EXPERTS_ONLY, MLP_ONLY = "none", "both", "kda", "experts", "mlp"

LAYER_TYPES = {
    "full_attention": FULL,
    "attention": FULL,
    "global_attention": FULL,
    "sliding_attention": WINDOW,
    "local_attention": WINDOW,
    "chunked_attention": CHUNK,
    "linear_attention": LINEAR,
    "mamba": STATE,
    "mamba2": STATE,
    "hybrid": BOTH,
    "conv": CONV,
    "mlp": MLP_ONLY,
    "moe": EXPERTS_ONLY,
    "M": STATE,
    "*": FULL,
    "-": MLP_ONLY,
    "E": EXPERTS_ONLY,
}


COMPRESSED = "compressed:"
"""What the word of a compressed latent begins with; its ratio follows (0: a window only)."""
MAX_RATIO = 1024
MTP_ENTRIES = 8
"""How many entries for MTP layers a list may hold beyond those of the model's own layers."""

PATTERN_FIELDS = (
    "full_attention_interval",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "layer_switch",
    "max_window_layers",
    "no_rope_layers",
    "no_rope_layer_interval",
    "hybrid_layer_ids",
    "attn_layer_indices",
    "layer_types",
)
"""Further ways to say the same, which a list with an entry for each layer makes needless."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A word for each layer, and the field that decided it.

    ``beyond`` are the words of MTP layers, where the list goes on for them.
    """

    words: tuple[str, ...]
    field: str
    beyond: tuple[str, ...] = ()


Rule = Callable[[Fields, Family, int], Pattern | None]


def layer_words(fields: Fields, family: Family, layers: int) -> Pattern:
    """The first rule that has an answer."""
    for rule in RULES:
        found = rule(fields, family, layers)
        if found is not None:
            return found
    raise AssertionError("the last rule always answers")


def _compressed(fields: Fields, family: Family, layers: int) -> Pattern | None:
    ratios = fields.sequence("compress_ratios")
    if ratios is None:
        return None
    meaning = {ratio: COMPRESSED + str(ratio) for ratio in range(MAX_RATIO + 1)}
    return _listed(fields, "compress_ratios", layers, meaning)


def _one_based_lists(fields: Fields, family: Family, layers: int) -> Pattern | None:
    section = fields.section("linear_attn_config")
    if section is None:
        return None
    linear = section.indices(layers, "kda_layers", first=1)
    full = section.indices(layers, "full_attn_layers", first=1)
    if linear is None or full is None:
        missing = "kda_layers" if linear is None else "full_attn_layers"
        raise CalcError("config_missing", field=section.path + missing, names=missing)
    if linear & full or len(linear | full) != layers:
        raise CalcError(
            "invalid_value",
            field="linear_attn_config",
            reason=f"kda_layers and full_attn_layers do not name each of {layers} layers once",
        )
    words = tuple(KDA if layer in linear else FULL for layer in range(layers))
    return Pattern(words, "linear_attn_config.kda_layers")


def _listed(fields: Fields, name: str, layers: int, meaning: Mapping[Any, str]) -> Pattern | None:
    found = fields.per_layer(name, layers, meaning, extra=MTP_ENTRIES)
    if found is None:
        return None
    fields.ignore(*PATTERN_FIELDS)
    return Pattern(tuple(found[:layers]), name, tuple(found[layers:]))


def _named_types(fields: Fields, family: Family, layers: int) -> Pattern | None:
    meaning = LAYER_TYPES
    if not fields.flag("use_sliding_window", default=True):
        meaning = {name: FULL if word == WINDOW else word for name, word in LAYER_TYPES.items()}
    for name in ("hybrid_override_pattern", "layers_block_type", "layer_types"):
        found = _listed(fields, name, layers, meaning)
        if found is not None:
            return found
    return None


def _numbered(name: str, meaning: dict[int, str]) -> Rule:
    """A rule for a list of small numbers, one a layer."""

    def rule(fields: Fields, family: Family, layers: int) -> Pattern | None:
        return _listed(fields, name, layers, meaning)

    return rule


def _period_and_offset(fields: Fields, family: Family, layers: int) -> Pattern | None:
    period = fields.maybe("attn_layer_period")
    if period is None:
        return None
    offset = fields.whole("attn_layer_offset", low=0)
    words = tuple(FULL if i % period == offset % period else STATE for i in range(layers))
    return Pattern(words, "attn_layer_period")


def _indices(fields: Fields, family: Family, layers: int) -> Pattern | None:
    if family.side_by_side:
        fields.ignore("attn_layer_indices")
        return Pattern((BOTH,) * layers, "model_type")
    if not fields.has("attn_layer_indices"):
        return None
    attending = fields.indices(layers, "attn_layer_indices") or set()
    words = tuple(FULL if i in attending else STATE for i in range(layers))
    return Pattern(words, "attn_layer_indices")


def _interval(fields: Fields, family: Family, layers: int) -> Pattern | None:
    interval = fields.maybe("full_attention_interval")
    if interval is None:
        return None
    words = tuple(LINEAR if (i + 1) % interval else FULL for i in range(layers))
    return Pattern(words, "full_attention_interval")


def _no_rope_chunks(fields: Fields, family: Family, layers: int) -> Pattern | None:
    if fields.maybe("attention_chunk_size") is None or fields.has("hybrid_layer_pattern"):
        return None
    listed = _listed(fields, "no_rope_layers", layers, {0: FULL, 1: CHUNK})
    if listed is not None:
        return listed
    interval = fields.maybe("no_rope_layer_interval")
    if interval is None:
        return None
    words = tuple(CHUNK if (i + 1) % interval else FULL for i in range(layers))
    return Pattern(words, "no_rope_layer_interval")


def _window_period(fields: Fields, family: Family, layers: int) -> Pattern | None:
    if _window(fields) is None:
        return None
    names = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
    period = fields.maybe(*names)
    if period is None:
        return None
    words = tuple(WINDOW if (i + 1) % period else FULL for i in range(layers))
    return Pattern(words, fields.find(*names)[0])


def _window_all(fields: Fields, family: Family, layers: int) -> Pattern | None:
    if _window(fields) is None:
        return None
    if fields.flag("use_sliding_window"):
        first = fields.maybe("max_window_layers", low=0) or 0
        words = tuple(WINDOW if i >= first else FULL for i in range(layers))
        return Pattern(words, "use_sliding_window")
    return Pattern((WINDOW,) * layers, "sliding_window")


def _window(fields: Fields) -> int | None:
    """The window, unless it is switched off or longer than the context."""
    window = fields.maybe("sliding_window", "sliding_window_size", low=0, high=2**30)
    if not window or not fields.flag("use_sliding_window", default=True):
        fields.ignore("max_window_layers")
        return None
    context = fields.maybe("max_position_embeddings", high=2**40)
    return None if context is not None and window >= context else window


def _pure_state(fields: Fields, family: Family, layers: int) -> Pattern | None:
    return Pattern((STATE,) * layers, "model_type") if family.pure_state else None


def _everything_full(fields: Fields, family: Family, layers: int) -> Pattern:
    return Pattern((FULL,) * layers, "num_hidden_layers")


RULES: tuple[Rule, ...] = (
    _compressed,
    _one_based_lists,
    _named_types,
    _numbered("hybrid_layer_pattern", {0: FULL, 1: WINDOW}),
    _numbered("attn_type_list", {0: LINEAR, 1: FULL}),
    _period_and_offset,
    _indices,
    _interval,
    _no_rope_chunks,
    _window_period,
    _pure_state,
    _window_all,
    _everything_full,
)
