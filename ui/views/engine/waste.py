"""One request: formula, allocated and waste as bars, and where the waste comes from."""

from __future__ import annotations

import streamlit as st

from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView
from calc.items import Item
from calc.report import Report
from ui import engine_charts, numbers, tables
from ui.engine_charts import cause_of
from ui.text import Translator
from ui.views import parts


def draw(t: Translator, report: Report, view: BlockView | PoolView) -> None:
    """The chart and the table under it."""
    context = numbers.digits(report.scenario.context)
    parts.chart(
        t,
        "allocation_chart",
        lambda: engine_charts.allocation_bars(view.formula, view.allocated, view.wastes, t),
        t("engine.chart", context=context),
    )
    if any(item.value for item in view.wastes):
        tables.draw(_rows(t, view), t("engine.wastes"))
    else:
        st.caption(t("engine.no_waste"))


def _rows(t: Translator, view: BlockView | PoolView) -> list[tables.Row]:
    found = sorted((item for item in view.wastes if item.value), key=lambda item: -item.value)
    return [
        {
            t("column.cause"): t(f"waste.{cause_of(item)}"),
            t("column.bytes"): numbers.memory(item.value),
            t("column.of_allocated"): percent(item, view.allocated),
            t("column.why"): t(f"waste.{cause_of(item)}.why"),
        }
        for item in found
    ]


def percent(part: Item, whole: Item) -> str:
    """A share in per cent, or a dash of nothing."""
    return f"{numbers.significant(100 * part.value / whole.value)} %" if whole.value else "–"


def items(view: BlockView | PoolView) -> dict[str, Item]:
    """The waste of each cause there is, for derivations."""
    return {f"waste_{cause_of(item)}": item for item in view.wastes if item.value}
