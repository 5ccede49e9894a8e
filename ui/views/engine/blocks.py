"""vLLM's own account: blocks, groups, alignment, what its log would print."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from calc.engines.vllm_blocks import BlockView, GroupView
from calc.hardware import CUSTOM_GPU, NO_GPU
from calc.items import Item
from calc.report import Report
from ui import numbers, page, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.engine import waste


def draw(t: Translator, report: Report, view: BlockView) -> None:
    """Cards, bars, groups, stages, arithmetic."""
    _cards(t, report, view)
    waste.draw(t, report, view)
    st.subheader(t("engine.groups"), anchor=False)
    st.markdown(_grouping(t, view))
    if view.alignment is not None:
        st.markdown(_alignment(t, view))
    tables.draw(_groups(t, view), t("engine.groups"))
    st.caption(_pool(t, view))
    if report.scenario.gpu in (NO_GPU, CUSTOM_GPU):
        st.caption(t("engine.kernels"))
    if len(view.stages) > 1:
        _stages(t, view)
    parts.derivations(t, "engine", _derived(view), draw_steps)


def _cards(t: Translator, report: Report, view: BlockView) -> None:
    context = numbers.digits(report.scenario.context)
    blocks, each = int(view.pool_blocks.value), int(view.request_blocks.value)
    tokens, before = int(view.tokens.value), int(view.tokens_by_group.value)
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("engine.blocks"),
            numbers.digits(blocks),
            t("engine.blocks.per", each=numbers.digits(each)),
            t("engine.blocks.help", size=numbers.exact(view.stage.block_bytes.value)),
        )
        page.card(
            t("engine.tokens"),
            numbers.digits(tokens),
            t("engine.tokens.per", before=numbers.digits(before)),
            t("engine.tokens.help"),
        )
        page.card(
            t("engine.concurrency"),
            f"{view.concurrency.value:.2f}x",
            t("engine.concurrency.per", context=context),
            t("engine.concurrency.help"),
        )
        page.card(
            t("engine.admitted"),
            numbers.digits(int(view.max_requests.value)),
            t("engine.admitted.per"),
            t("engine.admitted.help"),
        )


def _grouping(t: Translator, view: BlockView) -> str:
    words = {"groups": len(view.groups), "padding": view.padding_layers}
    return t(f"engine.path_{view.path}", **words)


def _alignment(t: Translator, view: BlockView) -> str:
    assert view.alignment is not None
    made = view.alignment
    return t(
        "engine.alignment",
        block=numbers.digits(made.block.value),
        state=numbers.memory(made.state_page.value),
        page=numbers.memory(made.page.value),
        percent=f"{made.padding.value:.2f}",
    )


def _groups(t: Translator, view: BlockView) -> list[tables.Row]:
    return [
        {
            t("column.group"): f"{count} ×" if count > 1 else "1",
            t("column.kind"): t(f"kind.{group.kind}.short"),
            t("column.growth"): t(f"engine.growth.{group.growth}"),
            t("column.layers"): f"{group.layers}",
            t("column.padding_layers"): f"{_padding(view, group)}",
            t("column.block_tokens"): _tokens(t, group),
            t("column.page"): numbers.memory(group.page_bytes),
            t("column.blocks_request"): numbers.digits(int(group.blocks.value)),
        }
        for group, count in equal(view.groups)
    ]


def _padding(view: BlockView, group: GroupView) -> int:
    """Places of a group that no layer takes; packed groups have none."""
    if view.path != "equal":
        return 0
    return max(one.layers for one in view.groups) - group.layers


def equal(groups: Iterable[GroupView]) -> list[tuple[GroupView, int]]:
    """Groups that read the same, in order, with how many there are."""
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], GroupView] = {}
    for group in groups:
        seen = (
            group.kind,
            group.growth,
            group.layers,
            group.block,
            group.virtual_block,
            group.page_bytes,
            group.blocks.value,
        )
        counts[seen] = counts.get(seen, 0) + 1
        first.setdefault(seen, group)
    return [(group, counts[seen]) for seen, group in first.items()]


def _tokens(t: Translator, group: GroupView) -> str:
    if group.growth == "state":
        return t("engine.one_state")
    if group.virtual_block == group.block:
        return numbers.digits(group.block)
    return t(
        "engine.virtual",
        block=numbers.digits(group.block),
        virtual=numbers.digits(group.virtual_block),
    )


def _pool(t: Translator, view: BlockView) -> str:
    return t(
        "engine.pool",
        size=numbers.memory(view.stage.block_bytes.value),
        null=numbers.memory(view.null_block.value),
        unused=numbers.memory(view.unused.value),
        needed=numbers.memory(view.needed.value),
    )


def _stages(t: Translator, view: BlockView) -> None:
    st.subheader(t("engine.stages"), anchor=False)
    tables.draw(
        [
            {
                t("column.stage_number"): f"{pool.stage + 1}"
                + (f" ({t('budget.binds')})" if number == view.binding else ""),
                t("column.layers"): f"{pool.layers[0] + 1}–{pool.layers[1]}",
                t("column.budget"): numbers.memory(pool.budget_bytes),
                t("column.block"): numbers.memory(pool.block_bytes.value),
                t("column.blocks_alone"): numbers.digits(int(pool.asked.value)),
            }
            for number, pool in enumerate(view.stages)
        ],
        t("engine.stages"),
    )
    st.caption(t("engine.stages_note", stage=view.stage.stage + 1))


def _derived(view: BlockView) -> dict[str, Item]:
    made = {
        "pool_blocks": view.pool_blocks,
        "request_blocks": view.request_blocks,
        "concurrency": view.concurrency,
        "tokens": view.tokens,
        "tokens_by_group": view.tokens_by_group,
        "admitted": view.max_requests,
        "allocated": view.allocated,
        "needed": view.needed,
        "null_block": view.null_block,
        "unused": view.unused,
    }
    if view.alignment is not None:
        made["alignment"] = view.alignment.block
        made["state_padding"] = view.alignment.padding
    return made | waste.items(view)
