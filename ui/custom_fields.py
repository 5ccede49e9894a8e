"""The custom model between two forms: widget keys in the session, and a ModelSpec.

Keys are ``custom.<field>``, ``custom.<group>.<field>`` and
``custom.<group>.<slot>.<kind>.<field>``; a kind keeps what was typed for it
while another one is shown. Which fields a kind has is read from its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import streamlit as st

from calc.layers import MIXERS, DenseFfn, MoeFfn, Part
from calc.layers.base import Block
from calc.model import Layer, ModelSpec, read_model
from calc.presets import CUSTOM
from calc.whatif import BASE
from ui.names import PLAIN

MAX_GROUPS = 6
NONE = "none"
PARTS: tuple[type[Part], ...] = (*MIXERS, DenseFfn, MoeFfn)
KINDS = {str(part.model_fields["kind"].default): part for part in PARTS}
SLOTS: dict[str, tuple[str, ...]] = {
    "mixer": (NONE, *(part.model_fields["kind"].default for part in MIXERS)),
    "beside": (NONE, *(part.model_fields["kind"].default for part in MIXERS)),
    "ffn": (NONE, "dense", "moe"),
}
"""The parts of a layer in the editor: its mixer, one more beside it, its feed-forward part."""

HIDDEN_FIELDS = {"kind", "shared_weights"}
TYPICAL = {
    "hidden_size": 4096,
    "vocab_size": 128256,
    "count": 32,
    "heads": 32,
    "kv_heads": 8,
    "kv_lora_rank": 512,
    "rope_dim": 64,
    "window": 1024,
    "chunk": 8192,
    "inner_size": 8192,
    "state_size": 128,
    "groups": 8,
    "conv_kernel": 4,
    "dt_rank": 256,
    "key_heads": 16,
    "value_heads": 32,
    "channels": 4096,
    "experts": 128,
    "top_k": 8,
    "mla.heads": 128,
    "indexer.heads": 64,
    "indexer.top_k": 2048,
    "mamba1.state_size": 16,
    "mamba2.heads": 128,
    "mamba2.head_dim": 64,
    "dense.intermediate_size": 14336,
    "moe.intermediate_size": 2048,
}
"""What a new field starts with; 128 for a width that is not listed."""


@dataclass(frozen=True, slots=True)
class PartField:
    """One field of a layer part, as a widget can show it."""

    name: str
    type: Literal["whole", "flag", "choice", "choices"]
    start: Any
    required: bool
    minimum: int = 0
    maximum: int = 2**30
    options: tuple[Any, ...] = ()
    optional: bool = False
    """A whole number for which 0 stands for "none"."""


def part_fields(kind: str) -> list[PartField]:
    """The fields of a kind that the editor shows, in the order of its class."""
    return [
        _field(kind, name)
        for name in KINDS[kind].model_fields
        if name not in HIDDEN_FIELDS and not name.startswith("_")
    ]


def _field(kind: str, name: str) -> PartField:
    info = KINDS[kind].model_fields[name]
    required = info.is_required()
    start: Any = TYPICAL.get(f"{kind}.{name}", TYPICAL.get(name, 128)) if required else info.default
    options = get_args(info.annotation)
    optional = NoneType in options
    inner = next((kept for kept in options if kept is not NoneType), info.annotation)
    annotation = inner if optional else info.annotation
    if annotation is bool:
        return PartField(name, "flag", start, required)
    if get_origin(annotation) is Literal:
        words = get_args(annotation)
        return PartField(
            name, "choice", start, required, options=(None, *words) if optional else words
        )
    if get_origin(annotation) is tuple:
        return PartField(name, "choices", start, required, options=get_args(inner))
    minimum, maximum = _bounds(info.metadata)
    if optional:
        return PartField(name, "whole", start or 0, required, 0, maximum, optional=True)
    return PartField(name, "whole", start, required, minimum, maximum)


def _bounds(constraints: list[Any]) -> tuple[int, int]:
    minimum, maximum = 0, 2**20
    for bound in constraints:  # each has gt, ge or le
        minimum = getattr(bound, "gt", minimum - 1) + 1
        minimum = getattr(bound, "ge", minimum)
        maximum = getattr(bound, "le", maximum)
    return minimum, maximum


def key(*parts: object) -> str:
    """The session key of an editor widget."""
    return ".".join(("custom", *map(str, parts)))


def value(start: Any, *parts: object) -> Any:
    """What the editor holds under a key, or its start value."""
    return st.session_state.get(key(*parts), start)


def group_count() -> int:
    return int(value(1, "groups"))


def kind_of(group: int, slot: str) -> str:
    """The kind chosen for a slot of a group; a new model starts with attention and a dense FFN."""
    start = {"mixer": "attention", "ffn": "dense"}.get(slot, NONE)
    return str(value(start, group, slot))


def read() -> ModelSpec:
    """The model that the editor holds; raises CalcError with the field at fault."""
    if (fixed := st.session_state.get("_custom_fixed")) is not None:
        return fixed
    return read_model(data(), "spec")


def data() -> dict[str, Any]:
    """The same as plain data, whether it is valid or not."""
    base = st.session_state.get("_custom_base", {})
    return (
        {"name": PLAIN}
        | base
        | {
            "id": CUSTOM,
            "hidden_size": value(TYPICAL["hidden_size"], "hidden_size"),
            "vocab_size": value(TYPICAL["vocab_size"], "vocab_size"),
            "layers": tuple(_group_data(group) for group in range(group_count())),
        }
    )


def _group_data(group: int) -> dict[str, Any]:
    parts = {slot: _part_data(group, slot) for slot in SLOTS}
    return {
        "count": value(TYPICAL["count"], group, "count"),
        "mixers": tuple(part for slot in ("mixer", "beside") for part in parts[slot]),
        "ffns": tuple(parts["ffn"]),
        "parallel_block": value(False, group, "parallel_block"),
    }


def _part_data(group: int, slot: str) -> Iterator[dict[str, Any]]:
    kind = kind_of(group, slot)
    if kind == NONE:
        return
    made: dict[str, Any] = {"kind": kind}
    for field in part_fields(kind):
        typed = value(field.start, group, slot, kind, field.name)
        made[field.name] = _plain(field, typed)
    yield made


def _plain(field: PartField, typed: Any) -> Any:
    if field.type == "choices":
        return tuple(typed)
    return None if field.optional and typed == 0 else typed


def write(spec: ModelSpec, merge: bool = False) -> None:
    """Put a model into the editor; one it cannot show is kept as it is.

    ``merge`` counts equal layers together wherever they stand, which changes
    nothing but the cut into pipeline stages.
    """
    layers = merged(spec.layers) if merge else spec.layers
    shown = spec.model_copy(update={"layers": layers})
    st.session_state["_custom_fixed"] = None if editable(shown) else shown
    if st.session_state["_custom_fixed"] is not None:
        return
    plain = {"id", "name", "revision", "hidden_size", "vocab_size", "layers", "doubts", "sources"}
    st.session_state["_custom_base"] = {
        name: getattr(spec, name)
        for name, info in ModelSpec.model_fields.items()
        if name not in plain and getattr(spec, name) != info.get_default()
    }
    st.session_state["_custom_base"] |= {"name": spec.name, "sources": _base(spec)}
    st.session_state[key("hidden_size")] = spec.hidden_size
    st.session_state[key("vocab_size")] = spec.vocab_size
    st.session_state[key("groups")] = len(layers)
    for group, layer in enumerate(layers):
        _write_group(group, layer)


def _base(spec: ModelSpec) -> dict[str, str]:
    """Which preset a custom model was made of, if it was."""
    if spec.id != CUSTOM:
        return {BASE: spec.id}
    return {name: text for name, text in spec.sources.items() if name == BASE}


def _write_group(group: int, layer: Layer) -> None:
    st.session_state[key(group, "count")] = layer.count
    st.session_state[key(group, "parallel_block")] = layer.parallel_block
    mixers: list[Block | None] = [*layer.mixers, None, None]
    ffn: Block | None = next(iter(layer.ffns), None)
    parts = {"mixer": mixers[0], "beside": mixers[1], "ffn": ffn}
    for slot, part in parts.items():
        st.session_state[key(group, slot)] = NONE if part is None else part.kind
        if part is None:
            continue
        for field in part_fields(part.kind):
            held = getattr(part, field.name)
            if field.type == "choices":
                held = list(held)
            st.session_state[key(group, slot, part.kind, field.name)] = (
                0 if field.optional and held is None else held
            )


def editable(spec: ModelSpec) -> bool:
    """Whether the editor can show all that a model's layers say."""
    return len(spec.layers) <= MAX_GROUPS and all(
        len(layer.mixers) <= 2
        and len(layer.ffns) <= 1
        and not any(part.shared_weights for part in (*layer.mixers, *layer.ffns))
        for layer in spec.layers
    )


def merged(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Equal layers counted together, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        single = layer.model_copy(update={"count": 1})
        counts[single] = counts.get(single, 0) + layer.count
    return tuple(layer.model_copy(update={"count": count}) for layer, count in counts.items())


def can_start_from(spec: ModelSpec) -> bool:
    """Whether a preset can be turned into an editable custom model."""
    return editable(spec.model_copy(update={"layers": merged(spec.layers)}))
