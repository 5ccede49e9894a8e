"""Puts a config's parts together: layers, MTP layers, embeddings, checkpoint, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from calc.errors import MESSAGES, CalcError
from calc.hf_config.checkpoint import checkpoint
from calc.hf_config.extras import boundary_tensors, extra_weights
from calc.hf_config.families import Family, family_of
from calc.hf_config.ffns import layer_ffns
from calc.hf_config.fields import Fields
from calc.hf_config.mixers import Source, layer_mixers, mixers_of
from calc.hf_config.parse import checked, parse
from calc.hf_config.patterns import LAYER_TYPES, MTP_ENTRIES, Pattern, layer_words
from calc.hf_config.refusals import text_part
from calc.hf_config.unread import not_understood
from calc.layers.base import Block, Mixer
from calc.layers.tensors import Role
from calc.model import MAX_LAYERS, Layer, ModelSpec, first_fault
from calc.presets import CUSTOM

FILE = "config.json"
MAX_MTP = 64


@dataclass(frozen=True, slots=True)
class Finding:
    """Which field decided a property of the layers, and what it decided: kind and count."""

    about: str  # "mixer" or "ffn"
    field: str
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning by code, with the values of its sentence (see ``calc.errors.MESSAGES``)."""

    code: str
    values: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return MESSAGES[self.code].format(**dict(self.values))


@dataclass(frozen=True, slots=True)
class Imported:
    """What a config says: the model, what decided it, and what was not understood."""

    spec: ModelSpec
    findings: tuple[Finding, ...]
    warnings: tuple[Notice, ...]


def read_config(config: Mapping[str, Any] | str | bytes, name: str = "custom model") -> Imported:
    """Read a config.json, given as text or as the mapping in it."""
    data = parse(config) if isinstance(config, str | bytes) else checked(dict(config))
    text, path = text_part(data)
    model_type = _model_type(data, text)
    family = family_of(model_type) or Family()
    fields = Fields({**_outer(data, path), **text}, family.defaults, path)
    try:
        return _read(fields, family, model_type, name)
    except ValidationError as error:
        raise first_fault(error, FILE) from None


def _outer(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Fields that a model with a nested text part keeps outside it."""
    shared = ("tie_word_embeddings", "quantization_config")
    return {name: data[name] for name in shared if name in data} if path else {}


def _model_type(data: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The model type of the whole if its family is known, else that of the text part."""
    found = [part.get("model_type") for part in (data, text)]
    named = [value for value in found if isinstance(value, str)]
    if not named:
        raise CalcError("config_missing", field="model_type", names="model_type")
    return next((value for value in named if family_of(value)), named[0])


def _read(fields: Fields, family: Family, model_type: str, name: str) -> Imported:
    fields.ignore("model_type")
    source = Source(fields, family, fields.whole("hidden_size", "d_model", "n_embd"))
    layers = _layer_count(fields)
    pattern = layer_words(fields, family, layers)
    mixers = layer_mixers(source, pattern)
    ffns, ffn_field = layer_ffns(source, pattern)
    if not any(mixers):
        raise CalcError("config_missing", field=pattern.field, names="a layer with a token mixer")
    parallel = fields.flag("parallel_attn", default=family.parallel_block)
    roles = _roles([*mixers, *ffns], source.hidden_size)
    stored, unknown_method = checkpoint(fields, roles, layers)
    spec = ModelSpec(
        id=CUSTOM,
        name=name,
        hidden_size=source.hidden_size,
        vocab_size=fields.whole("vocab_size", "padded_vocab_size", high=2**26),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        max_context=fields.maybe(
            "max_position_embeddings", "model_max_length", "n_ctx", "seq_length", high=2**40
        ),
        layers=_runs(mixers, ffns, parallel),
        mtp_layers=_mtp(source, pattern, mixers, ffns),
        norms_per_part=family.norms_per_part,
        boundary_tensors=boundary_tensors(fields),
        extra_weights=extra_weights(source, layers),
        checkpoint=stored,
        engine_defaults=dict(family.engine_defaults),
        sources={"layers": f"{FILE}: {pattern.field}"},
    )
    findings = (
        Finding("mixer", pattern.field, _counted(mixers)),
        Finding("ffn", ffn_field, _counted(ffns)),
    )
    return Imported(spec, findings, tuple(_warnings(fields, family, model_type, unknown_method)))


def _layer_count(fields: Fields) -> int:
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    count = fields.maybe(*names, high=MAX_LAYERS)
    if count is not None:
        return count
    blocks = fields.find("layers_block_type", "hybrid_override_pattern")[1]
    if isinstance(blocks, list | str) and 0 < len(blocks) <= MAX_LAYERS:
        return len(blocks)
    return fields.whole(*names, high=MAX_LAYERS)


def _runs(
    mixers: list[tuple[Mixer, ...]], ffns: list[tuple[Block, ...]], parallel: bool
) -> tuple[Layer, ...]:
    """Equal layers in a row counted together."""
    runs = groupby(zip(mixers, ffns, strict=True))
    return tuple(
        Layer.model_validate(
            {"count": len(list(run)), "mixers": mixed, "ffns": fed, "parallel_block": parallel}
        )
        for (mixed, fed), run in runs
    )


def _mtp(
    source: Source,
    pattern: Pattern,
    mixers: list[tuple[Mixer, ...]],
    ffns: list[tuple[Block, ...]],
) -> tuple[Layer, ...]:
    """MTP layers: as a pattern of theirs says, else like the last layer with growing attention."""
    fields = source.fields
    count = _mtp_count(fields)
    own = fields.per_layer("mtp_hybrid_override_pattern", 1, LAYER_TYPES, extra=MTP_ENTRIES)
    if not count:
        return ()
    if own:
        layers = [(mixers_of(source, word), _first(pattern, word, ffns)) for word in own]
    elif pattern.beyond:
        layers = [(mixers_of(source, word), ffns[-1]) for word in pattern.beyond]
        count = 1
    else:
        layers = [(mixers[_last_attending(mixers)], ffns[-1])]
    return tuple(
        Layer.model_validate({"count": count, "mixers": mixed, "ffns": fed})
        for mixed, fed in layers
    )


def _mtp_count(fields: Fields) -> int:
    modules = fields.maybe("num_mtp_modules", low=0, high=MAX_MTP) or 0
    each = fields.maybe("mtp_transformer_layers", low=0, high=MAX_MTP) or 1
    counted = fields.maybe("num_nextn_predict_layers", "mtp_num_hidden_layers", low=0, high=MAX_MTP)
    return modules * each if counted is None else counted


def _first(pattern: Pattern, word: str, ffns: list[tuple[Block, ...]]) -> tuple[Block, ...]:
    """The feed-forward parts of the first layer with this word."""
    return next((fed for known, fed in zip(pattern.words, ffns, strict=True) if known == word), ())


def _last_attending(mixers: list[tuple[Mixer, ...]]) -> int:
    """The last layer that attends to all tokens with a cache and an indexer of its own."""
    attending = [
        (len(layer), position)  # an indexer of its own is one mixer more
        for position, layer in enumerate(mixers)
        if any(mixer.kind in ("attention", "mla") for mixer in layer)
    ]
    return max(attending, default=(0, len(mixers) - 1))[1]


def _roles(parts: list[tuple[Block, ...]], hidden_size: int) -> set[Role]:
    """What there are matrices for."""
    blocks = {block for layer in parts for block in layer}
    return {tensor.role for block in blocks for tensor in block.tensors(hidden_size)}


def _counted(parts: list[Any]) -> tuple[tuple[str, int], ...]:
    return tuple(
        Counter("+".join(part.kind for part in layer) or "none" for layer in parts).items()
    )


def _warnings(
    fields: Fields, family: Family, model_type: str, unknown_method: str | None
) -> list[Notice]:
    made = []
    if family_of(model_type) is None:
        made.append(Notice("config_type_unknown", (("given", model_type[:64]),)))
    made += [Notice("config_not_understood", (("field", name),)) for name in not_understood(fields)]
    made += [
        Notice("config_assumed", (("field", name), ("given", fields.defaults[name])))
        for name in sorted(fields.assumed)
    ]
    if unknown_method is not None:
        made.append(Notice("config_quantization", (("given", unknown_method[:64]),)))
    return made
