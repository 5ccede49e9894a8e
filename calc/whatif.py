"""What if: another width, fewer KV heads, shared caches; and the same model as MHA, GQA, MQA, MLA.

A changed model is an ordinary ModelSpec, so every other figure follows from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from calc.errors import CalcError
from calc.items import Item, Status, formula
from calc.layers import Attention, LatentAttention, Mixer, SlidingWindowAttention
from calc.layers.base import Growth
from calc.model import Layer, ModelSpec, first_fault
from calc.presets import CUSTOM
from calc.units import Number

BASE = "base"
"""The key of ``ModelSpec.sources`` under which a changed preset says which one it was."""

DEEPSEEK_V2 = "DeepSeek-V2 (arXiv 2405.04434) section 2.1.4: d_c = 4 d_h, d_R = d_h / 2"


@formula(unit="elements", source="K and V of each KV head")
def grouped_elements(kv_heads: int, k_dim: int, v_dim: int) -> int:
    """Cached elements of one token in one layer, K and V per KV head."""
    return kv_heads * (k_dim + v_dim)


@formula(unit="elements", source="one latent for K and V of all heads, and one rotary key")
def latent_elements(kv_lora_rank: int, rope_dim: int) -> int:
    """Cached elements of one token in one layer, latent attention."""
    return kv_lora_rank + rope_dim


@formula(unit="B/token", source="elements of one size")
def elements_bytes(elements: int, element_bytes: int) -> int:
    """Bytes of one token in one layer."""
    return elements * element_bytes


@formula(unit="×", source="elements against elements")
def times_fewer(base_elements: int, elements: int) -> Number:
    """How many times fewer elements than another kind of attention keeps."""
    return base_elements / elements


@formula(unit="elements", source="average over tokens", status=Status.ESTIMATE)
def average_width(kv_lora_rank: int, narrow_rank: int, share: float) -> Number:
    """Average latent width where a share of the tokens keeps a narrower latent."""
    return kv_lora_rank * (1 - share) + narrow_rank * share


@dataclass(frozen=True, slots=True)
class Change:
    """What to change in the layers ``first`` to ``last`` (from 1); None leaves a field as it is.

    ``shared_kv`` layers with equal mixers in a row read one cache, ``shared_down``
    of them make their own rows with one down-projection.
    """

    first: int
    last: int
    kv_lora_rank: int | None = None
    rope_dim: int | None = None
    kv_heads: int | None = None
    window: int | None = None
    shared_kv: int = 1
    shared_down: int = 1

    @property
    def empty(self) -> bool:
        return self == Change(self.first, self.last)


def changed(model: ModelSpec, change: Change) -> ModelSpec:
    """The model with a change made, as a custom model; raises CalcError for one that cannot be."""
    if not 1 <= change.first <= change.last <= model.layer_count:
        raise CalcError(
            "whatif_layers",
            "layers",
            first=change.first,
            last=change.last,
            layers=model.layer_count,
        )
    whole = (change.first, change.last) == (1, model.layer_count)
    sources = {BASE: model.id} if model.id != CUSTOM else _base_only(model)
    fields = {name: getattr(model, name) for name in ModelSpec.model_fields} | {
        "id": CUSTOM,
        "revision": 1,
        "doubts": (),
        "sources": sources,
        "layers": _runs(_changed_layers(model.layers, change)),
    }
    if whole:
        fields["mtp_layers"] = _runs(_changed_layers(model.mtp_layers, change, sharing=False))
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise first_fault(error, "what-if") from None


def _base_only(model: ModelSpec) -> dict[str, str]:
    return {name: text for name, text in model.sources.items() if name == BASE}


def _changed_layers(
    layers: tuple[Layer, ...], change: Change, sharing: bool = True
) -> Iterator[Layer]:
    seen: Counter[Mixer] = Counter()
    position = 0
    for layer in layers:
        for _ in range(layer.count):
            position += 1
            single = layer.model_copy(update={"count": 1})
            if sharing and not change.first <= position <= change.last:
                yield single
                continue
            mixers = []
            for mixer in layer.mixers:
                turn = seen[mixer] if sharing else 0
                seen[mixer] += 1
                mixers.append(_changed_mixer(mixer, change, turn))
            yield single.model_copy(update={"mixers": tuple(mixers)})


def _changed_mixer(mixer: Mixer, change: Change, turn: int) -> Mixer:
    """``turn``: how many equal mixers came before this one."""
    update: dict[str, Any] = {}
    reads = turn % change.shared_kv > 0
    if isinstance(mixer, LatentAttention):
        for name in ("kv_lora_rank", "rope_dim"):
            if (value := getattr(change, name)) is not None:
                update[name] = value
        if turn % change.shared_down:
            update["down_projection"] = False
        if reads:
            update["reads_other_layer"] = True
    elif isinstance(mixer, Attention):
        if change.kv_heads is not None:
            _check_kv_heads(mixer, change.kv_heads)
            update["kv_heads"] = change.kv_heads
        if change.window is not None and isinstance(mixer, SlidingWindowAttention):
            update["window"] = change.window
        if reads and not mixer.reads_other_layer:
            update |= {"reads_other_layer": True, "kv_projections": False}
    if not update:
        return mixer
    try:
        held = {name: getattr(mixer, name) for name in type(mixer).model_fields}
        return type(mixer).model_validate(held | update)
    except ValidationError as error:
        raise first_fault(error, "what-if") from None


def _check_kv_heads(mixer: Attention, kv_heads: int) -> None:
    if kv_heads < 1 or mixer.heads % kv_heads:
        legal = [size for size in range(1, mixer.heads + 1) if mixer.heads % size == 0]
        raise CalcError(
            "whatif_kv_heads",
            "kv_heads",
            given=kv_heads,
            heads=mixer.heads,
            allowed=", ".join(map(str, legal)),
        )


def _runs(layers: Iterator[Layer]) -> tuple[Layer, ...]:
    """Equal layers in a row counted together."""
    made: list[Layer] = []
    for layer in layers:
        if made and made[-1].model_copy(update={"count": 1}) == layer:
            made[-1] = layer.model_copy(update={"count": made[-1].count + 1})
        else:
            made.append(layer)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One kind of attention at the width of a model's own; ``ratio`` is against MHA."""

    name: str  # "own", "mha", "gqa", "mqa" or "mla"
    kv_heads: int
    elements: Item
    bytes: Item
    ratio: Item


def compared_mixer(model: ModelSpec) -> LatentAttention | Attention | None:
    """The mixer that a comparison of attention kinds is about: latent, else full, else any K/V."""
    if model.latent_mixers:
        return model.latent_mixers[0]
    kept = [
        mixer
        for mixer in model.mixers
        if isinstance(mixer, Attention) and not mixer.reads_other_layer
    ]
    growing = [mixer for mixer in kept if mixer.growth is Growth.GROWING]
    return next(iter([*growing, *kept]), None)


def alternatives(
    mixer: LatentAttention | Attention, element_bytes: int = 2
) -> tuple[Alternative, ...]:
    """The mixer itself, then MHA, GQA-8, MQA and MLA with heads of the same widths.

    The K of a latent layer is counted with its rotary part; where a model has no
    latent, it gets the widths that DeepSeek-V2 derives from its head width.
    """
    heads = mixer.heads
    if isinstance(mixer, LatentAttention):
        k_dim, v_dim = mixer.nope_dim + mixer.rope_dim, mixer.v_dim
        latent, rotary = mixer.kv_lora_rank, mixer.rope_dim
        own = latent_elements.item("own", kv_lora_rank=latent, rope_dim=rotary)
        own_heads = 1
    else:
        k_dim, v_dim = mixer.k_dim, mixer.v_dim
        latent, rotary = 4 * v_dim, max(1, v_dim // 2)
        own = grouped_elements.item("own", kv_heads=mixer.kv_heads, k_dim=k_dim, v_dim=v_dim)
        own_heads = mixer.kv_heads
    grouped = {"mha": heads, "gqa": min(8, heads), "mqa": 1}
    kept = {"own": (own_heads, own)}
    for name, count in grouped.items():
        kept[name] = (
            count,
            grouped_elements.item(name, kv_heads=count, k_dim=k_dim, v_dim=v_dim),
        )
    kept["mla"] = (1, latent_elements.item("mla", kv_lora_rank=latent, rope_dim=rotary))
    base = kept["mha"][1]
    return tuple(
        Alternative(
            name,
            count,
            elements,
            elements_bytes.item(f"{name}.bytes", elements=elements, element_bytes=element_bytes),
            times_fewer.item(f"{name}.ratio", base_elements=base, elements=elements),
        )
        for name, (count, elements) in kept.items()
    )


@dataclass(frozen=True, slots=True)
class TokenMix:
    """An average latent width under a mix of tokens, and the row it makes on average."""

    width: Item
    elements: Item
    bytes: Item
    full: Item


def token_mix(
    mixer: LatentAttention, narrow_rank: int, share: float, element_bytes: int = 2
) -> TokenMix:
    """Rows of a layer in which ``share`` of the tokens keep a latent of ``narrow_rank``.

    The rotary key keeps its width. No engine here has rows of several widths;
    what a page needs to tell them apart is not counted.
    """
    width = average_width.item(
        "mix.width", kv_lora_rank=mixer.kv_lora_rank, narrow_rank=narrow_rank, share=share
    )
    elements = latent_elements.item("mix.row", kv_lora_rank=width, rope_dim=mixer.rope_dim)
    full = latent_elements.item(
        "mix.full", kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim
    )
    return TokenMix(
        width,
        elements,
        elements_bytes.item("mix.bytes", elements=elements, element_bytes=element_bytes),
        elements_bytes.item("mix.full_bytes", elements=full, element_bytes=element_bytes),
    )
