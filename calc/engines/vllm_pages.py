"""vLLM 0.33: the cache of each layer as pages.

A *page* is one block of one layer on one rank. A state layer has one page for
each state. Where states share a pool with attention, the attention block grows
until its page holds a state, and the state's page is padded to that size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calc.engines.settings import VLLM_BLOCK, CacheSettings
from calc.errors import CalcError
from calc.items import Item, Status, formula
from calc.layers import (
    Attention,
    CompressedLatentAttention,
    Growth,
    LatentAttention,
    Mixer,
    Sharding,
    StateMixer,
    Store,
)
from calc.model import Layer, ModelSpec
from calc.units import Number, ceil_div, exact_div, round_up

ALIGNING = "vLLM 0.33 platforms/interface.py _align_hybrid_block_size"
UNIFYING = "vLLM 0.33 v1/core/kv_cache_planning.py unify_kv_cache_spec_page_size"
ALIGNED_ELEMENTS = {
    "bf16": 2,
    "fp8": 1,
    "fp8_ds_mla": 1,
    "int8_per_token_head": 1,
    "fp8_per_token_head": 1,
}
"""Bytes an element as the alignment reckons them: scales are left out there."""
LATENT_ALIGNMENT = 128
"""Tokens to whose multiples blocks beside latent attention are aligned."""
LARGEST_BLOCK = 2**31
"""Blocks beyond this many tokens are refused."""
COMPRESSED_BLOCK, COMPRESSED_WINDOW_BLOCK = 256, 64
"""Tokens of a block beside compressed attention (DeepSeek-V4), for its rows and its windows."""


@formula(unit="B", source="vLLM 0.33 v1/kv_cache_interface.py AttentionSpec", status=Status.ENGINE)
def attention_page(row_bytes: int, block_size: int) -> int:
    """One block of one attention layer on one rank."""
    return row_bytes * block_size


@formula(unit="B", source="vLLM 0.33 v1/kv_cache_interface.py AttentionSpec", status=Status.ENGINE)
def compressed_page(row_bytes: int, block_size: int, compress_ratio: int) -> int:
    """One block of a cache that keeps one row for several tokens."""
    return row_bytes * exact_div(block_size, compress_ratio)


@formula(unit="B", source="vLLM 0.33 models/deepseek_v4/attention.py", status=Status.ENGINE)
def packed_page(row_bytes: int, block_size: int, compress_ratio: int) -> Number:
    """The same for packed rows, whose pages are multiples of 576 B."""
    return round_up(row_bytes * exact_div(block_size, compress_ratio), 576)


@formula(unit="B", source="vLLM 0.33 v1/kv_cache_interface.py MambaSpec", status=Status.ENGINE)
def state_page(bytes_per_layer: int) -> int:
    """One state of one layer on one rank, not padded."""
    return bytes_per_layer


@formula(unit="B/token", source=ALIGNING, status=Status.ENGINE)
def aligning_row(row_elements: int, element_bytes: int) -> int:
    """One token in one attention layer as the alignment reckons it, without scales."""
    return row_elements * element_bytes


@formula(unit="tokens", source=ALIGNING, status=Status.ENGINE)
def aligned_block(kernel_block: int, state_page_bytes: int, row_bytes: int) -> Number:
    """The smallest multiple of the kernel's block whose page holds one state."""
    return kernel_block * ceil_div(state_page_bytes, kernel_block * row_bytes)


@formula(unit="tokens", source=UNIFYING, status=Status.ENGINE)
def widened_block(block_size: int, common_page_bytes: int, page_bytes: int) -> int:
    """A smaller attention page takes more tokens until it is as large as the largest."""
    return block_size * exact_div(common_page_bytes, page_bytes)


@formula(unit="B", source=UNIFYING, status=Status.ENGINE)
def padded_page(common_page_bytes: int) -> int:
    """A page that cannot take more tokens is padded to the largest."""
    return common_page_bytes


@formula(unit="%", source=f"{ALIGNING}, as logged")
def state_padding_percent(page_bytes: int, state_page_bytes: int) -> float:
    """What padding adds to a state's page."""
    return 100 * (page_bytes - state_page_bytes) / state_page_bytes


@dataclass(frozen=True, slots=True)
class Pages:
    """One store as the engine keeps it: ``page`` bytes for ``block`` tokens, or for a state.

    ``store`` is what it holds; ``growth`` how it is allocated (a window may be
    held as full attention); ``checkpoint`` whether a state keeps a further slot.
    """

    store: Store
    growth: Growth
    block: Item | int
    page: Item
    latent: bool
    checkpoint: bool = False

    @property
    def block_tokens(self) -> int:
        return int(self.block.value) if isinstance(self.block, Item) else self.block

    @property
    def page_bytes(self) -> int:
        return int(self.page.value)

    @property
    def limit(self) -> int:
        """Window or chunk that the allocation honours."""
        return self.store.limit if self.growth is self.store.growth else 0

    @property
    def held_bytes(self) -> int:
        """Bytes of a page that hold rows or a state; the rest is padding."""
        if self.growth is Growth.STATE:
            return int(self.store.bytes.value)
        return int(self.store.bytes.value) * self.block_tokens // self.store.tokens_per_row


@dataclass(frozen=True, slots=True)
class Alignment:
    """The attention block that a state asked for, and the state's padded page."""

    block: Item
    state_page: Item
    page: Item
    padding: Item


def drafting_layers(model: ModelSpec, place: Sharding) -> tuple[Layer, ...]:
    """The MTP layers where they draft; they come behind the last layer and share its pool."""
    return model.mtp_layers if place.drafting else ()


def make_pages(
    model: ModelSpec, place: Sharding, settings: CacheSettings
) -> tuple[list[Pages], list[tuple[int, ...]], Alignment | None]:
    """Every distinct store as pages, and for each layer of the model which it has (the MTP
    layers behind the others, where they draft).

    The pages are as each layer asks for them, before they are made equal.
    """
    stores: list[tuple[Mixer, Store]] = []
    ids: dict[Mixer, tuple[int, ...]] = {}
    layers = (*model.layers, *drafting_layers(model, place))
    for mixer in dict.fromkeys(mixer for layer in layers for mixer in layer.mixers):
        kept = mixer.stores(place)
        ids[mixer] = tuple(range(len(stores), len(stores) + len(kept)))
        stores += [(mixer, store) for store in kept]
    by_layer: list[tuple[int, ...]] = []
    for layer in layers:
        by_layer += [tuple(one for mixer in layer.mixers for one in ids[mixer])] * layer.count
    alignment = _align(stores, place, settings)
    whole = not settings.hybrid_manager and any(
        store.growth is Growth.GROWING for _, store in stores
    )
    saves = _checkpoint_grid(stores, place) > 0
    return (
        [_pages(mixer, store, alignment, settings, whole, saves) for mixer, store in stores],
        by_layer,
        alignment,
    )


def _pages(
    mixer: Mixer,
    store: Store,
    alignment: Alignment | None,
    settings: CacheSettings,
    whole: bool,
    saves: bool,
) -> Pages:
    """``whole``: windows and chunks are allocated as full attention; ``saves``: states can be
    saved in the middle of a prefill."""
    if store.growth is Growth.STATE:
        page = (
            alignment.page
            if alignment
            else state_page.item(f"{store.kind}.page", bytes_per_layer=store.bytes)
        )
        return Pages(store, store.growth, 0, page, latent=False, checkpoint=saves)
    block: Item | int = alignment.block if alignment else base_block(settings)
    growth = Growth.GROWING if whole else store.growth
    if isinstance(mixer, CompressedLatentAttention):
        window = store.growth is Growth.WINDOW
        block = COMPRESSED_WINDOW_BLOCK if window else COMPRESSED_BLOCK
        page = packed_page.item(
            f"{store.kind}.{store.name}.page",
            row_bytes=store.bytes,
            block_size=block,
            compress_ratio=store.tokens_per_row,
        )
        return Pages(store, store.growth, block, page, latent=True)
    latent = not isinstance(mixer, Attention)
    return Pages(store, growth, block, page_of(store, block), latent)


def page_of(store: Store, block: Item | int) -> Item:
    """One block of one layer's rows."""
    key = f"{store.kind}.{store.name}.page"
    if store.tokens_per_row > 1:
        return compressed_page.item(
            key, row_bytes=store.bytes, block_size=block, compress_ratio=store.tokens_per_row
        )
    return attention_page.item(key, row_bytes=store.bytes, block_size=block)


def base_block(settings: CacheSettings) -> int:
    """Tokens of an attention block where no state asks for more."""
    return settings.block_size or VLLM_BLOCK


def unify(pages: list[Pages]) -> list[Pages] | None:
    """All pages made as large as the largest; None where the engine cannot do that."""
    largest = max(pages, key=lambda one: one.page_bytes)
    made = [
        one if one.page_bytes == largest.page_bytes else _grown(one, largest.page) for one in pages
    ]
    equal = [one for one in made if one is not None]
    return equal if len(equal) == len(made) else None


def _grown(one: Pages, common: Item) -> Pages | None:
    store = one.store
    size = int(common.value)
    if one.growth is not Growth.STATE and size % one.page_bytes == 0:
        block = widened_block.item(
            f"{store.kind}.{store.name}.block",
            block_size=one.block,
            common_page_bytes=common,
            page_bytes=one.page,
        )
        return Pages(store, one.growth, block, page_of(store, block), one.latent)
    if one.latent:
        return None
    page = padded_page.item(f"{store.kind}.{store.name}.padded_page", common_page_bytes=common)
    return Pages(store, one.growth, one.block, page, one.latent, one.checkpoint)


def _align(
    stores: list[tuple[Mixer, Store]], place: Sharding, settings: CacheSettings
) -> Alignment | None:
    """The block of a model with states and attention; None for all others."""
    states = [store for _, store in stores if store.growth is Growth.STATE]
    attention = next(
        (
            (mixer, store)
            for mixer, store in stores
            if isinstance(mixer, Attention | LatentAttention) and store.growth is not Growth.STATE
        ),
        None,
    )
    if not states or attention is None:
        return None
    mixer, store = attention
    largest = max(states, key=lambda one: int(one.bytes.value))
    unpadded = state_page.item(f"{largest.kind}.state_page", bytes_per_layer=largest.bytes)
    kernel = max(settings.kernel_block or VLLM_BLOCK, base_block(settings))
    if isinstance(mixer, LatentAttention) and not settings.kernel_block:
        kernel = max(kernel, LATENT_ALIGNMENT)
    grid = _checkpoint_grid(stores, place)
    if settings.prefix_caching and grid and not settings.kernel_block:
        kernel = math.lcm(kernel, grid)
    row = _aligning_row(mixer, store, place)
    block = aligned_block.item(
        "aligned_block", kernel_block=kernel, state_page_bytes=unpadded, row_bytes=row
    )
    if block.value > LARGEST_BLOCK:
        raise CalcError("block_too_large", given=block.value)
    page = attention_page.item("aligned_page", row_bytes=row, block_size=block)
    padding = state_padding_percent.item(
        "state_padding", page_bytes=page, state_page_bytes=unpadded
    )
    return Alignment(block, unpadded, page, padding)


def _checkpoint_grid(stores: list[tuple[Mixer, Store]], place: Sharding) -> int:
    """layers/mamba/abstract.py get_mamba_prefill_checkpoint_alignment: 0 unless every state layer
    can save a state in the middle of a prefill."""
    grids = [mixer.checkpoint_grid(place) for mixer, _ in stores if isinstance(mixer, StateMixer)]
    return math.lcm(*grids) if grids else 0


def _aligning_row(mixer: Attention | LatentAttention, store: Store, place: Sharding) -> Item:
    element = ALIGNED_ELEMENTS.get(place.kv_format.id)
    if element is None:
        return store.bytes
    if isinstance(mixer, LatentAttention):
        elements = mixer.row_elements
    else:
        heads = place.engine.kv_heads_per_rank(mixer.kv_heads, place.tp, store.dcp)
        elements = int(heads.value) * (mixer.k_dim + mixer.v_dim)
    return aligning_row.item(
        f"{store.kind}.aligning_row", row_elements=elements, element_bytes=element
    )
