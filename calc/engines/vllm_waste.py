"""vLLM 0.33: where the bytes go that a request is given beyond its rows and states."""

from __future__ import annotations

from dataclasses import dataclass

from calc.engines.vllm_groups import Grouping
from calc.engines.vllm_pages import Pages
from calc.items import Item, Status, formula, total
from calc.layers import Growth
from calc.units import Number, ceil_div, lesser

CAUSES = (
    "last_block",
    "admission_reserve",
    "kept_whole",
    "page_padding",
    "padding_layers",
    "extra_state_slots",
)
"""Why a request takes more than its rows and states; the page words these."""


@formula(unit="B", source="rows of the last block that no token fills", status=Status.ENGINE)
def last_block_waste(
    blocks: int, rows_per_block: int, held_rows: Number, row_bytes: int, layers: int
) -> Number:
    """Rows of blocks that the request's tokens do not reach."""
    return (blocks * rows_per_block - held_rows) * row_bytes * layers


@formula(unit="B", source="tokens in flight keep their blocks", status=Status.ENGINE)
def reserve_waste(reserved_rows: Number, held_rows: Number, row_bytes: int, layers: int) -> Number:
    """Rows kept beyond the window or chunk itself."""
    return (reserved_rows - held_rows) * row_bytes * layers


@formula(unit="B", source="pages made equally large", status=Status.ENGINE)
def page_waste(blocks: int, page_bytes: int, held_bytes: int, layers: int) -> Number:
    """Bytes of pages that hold neither row nor state."""
    return blocks * (page_bytes - held_bytes) * layers


@formula(unit="B", source="a block is as large as the largest group", status=Status.ENGINE)
def layer_waste(blocks: int, block_bytes: int, group_bytes: int) -> Number:
    """What a group's own pages leave of a block."""
    return blocks * (block_bytes - group_bytes)


@formula(unit="B", source="states kept beside the working one", status=Status.ENGINE)
def slot_waste(blocks: int, bytes_per_layer: int, layers: int) -> Number:
    """States of a request beyond the one it needs."""
    return (blocks - 1) * bytes_per_layer * layers


@formula(unit="tokens", source="vLLM 0.33 v1/kv_cache_interface.py SlidingWindowSpec")
def reserved_window(window: int, in_flight: int, context: Number) -> Number:
    """Tokens of a window that admission reserves."""
    return lesser(window - 1 + in_flight, context)


@formula(unit="tokens", source="vLLM 0.33 v1/kv_cache_interface.py ChunkedLocalAttentionSpec")
def reserved_chunk(chunk: int, in_flight: int, context: Number) -> Number:
    """Tokens of a chunk that admission reserves."""
    return lesser(chunk + in_flight, context)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the wastes see it."""

    context: int
    in_flight: Item | int


def request_wastes(
    grouping: Grouping,
    blocks: list[Item],
    stage: tuple[int, int],
    block_bytes: Item,
    request: Request,
) -> tuple[Item, ...]:
    """One Item for each cause, over all groups, on one pipeline stage."""
    found: dict[str, list[Item]] = {cause: [] for cause in CAUSES}
    for number, (group, taken) in enumerate(zip(grouping.groups, blocks, strict=True)):
        held = group.on_stage(*stage)
        group_bytes = 0
        for index, layers in held.items():
            one = grouping.pages[index]
            group_bytes += one.page_bytes * layers
            name = f"group{number}.{one.store.kind}.{one.store.name}"
            for cause, item in _of_pages(one, layers, taken, request, name):
                found[cause].append(item)
        found["padding_layers"].append(
            layer_waste.item(
                f"group{number}.padding_layers",
                blocks=taken,
                block_bytes=block_bytes,
                group_bytes=group_bytes,
            )
        )
    return tuple(
        total(f"waste.{cause}", "B", [item for item in items if item.value])
        for cause, items in found.items()
    )


def _of_pages(
    one: Pages, layers: int, taken: Item, request: Request, name: str
) -> list[tuple[str, Item]]:
    store = one.store
    padding = page_waste.item(
        f"{name}.page_padding",
        blocks=taken,
        page_bytes=one.page,
        held_bytes=one.held_bytes,
        layers=layers,
    )
    made = [("page_padding", padding)]
    if one.growth is Growth.STATE:
        slots = slot_waste.item(
            f"{name}.slots", blocks=taken, bytes_per_layer=store.bytes, layers=layers
        )
        return [*made, ("extra_state_slots", slots)]
    reserved = _reserved(one, request, name)
    held = _held(one, request.context)
    rounding = last_block_waste.item(
        f"{name}.last_block",
        blocks=taken,
        rows_per_block=one.block_tokens // store.tokens_per_row,
        held_rows=reserved,
        row_bytes=store.bytes,
        layers=layers,
    )
    made.append(("last_block", rounding))
    if store.growth in (Growth.WINDOW, Growth.CHUNK):
        cause = "admission_reserve" if one.growth is store.growth else "kept_whole"
        reserve = reserve_waste.item(
            f"{name}.reserve",
            reserved_rows=reserved,
            held_rows=held,
            row_bytes=store.bytes,
            layers=layers,
        )
        made.append((cause, reserve))
    return made


def _held(one: Pages, context: int) -> int:
    """Rows that the formulas count on the fullest rank."""
    store = one.store
    if store.growth is Growth.GROWING and store.dcp > 1:
        return int(ceil_div(context, store.dcp))
    return store.rows(context)


def _reserved(one: Pages, request: Request, name: str) -> Item | int:
    """Rows that a request is given before its blocks are rounded up."""
    store, context = one.store, request.context
    if one.growth is Growth.WINDOW:
        return reserved_window.item(
            f"{name}.reserved", window=one.limit, in_flight=request.in_flight, context=context
        )
    if one.growth is Growth.CHUNK:
        return reserved_chunk.item(
            f"{name}.reserved", chunk=one.limit, in_flight=request.in_flight, context=context
        )
    if store.growth is Growth.GROWING:
        return _held(one, context)
    return context
