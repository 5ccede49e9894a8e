"""SGLang's own account: pools of tokens, windows and states."""

from __future__ import annotations

import streamlit as st

from calc.engines.sglang_pool import Pool, PoolView
from calc.items import Item
from calc.report import Report
from ui import numbers, page, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.engine import waste


def draw(t: Translator, report: Report, view: PoolView) -> None:
    """Cards, bars, pools, arithmetic."""
    _cards(t, report, view)
    waste.draw(t, report, view)
    st.subheader(t("pool.title"), anchor=False)
    tables.draw(rows(t, view), t("pool.title"))
    st.caption(_note(t, view))
    if report.scenario.pp > 1:
        st.caption(t("pool.stage", stage=view.stage + 1, stages=report.scenario.pp))
    parts.derivations(t, "engine", _derived(view), draw_steps)


def _cards(t: Translator, report: Report, view: PoolView) -> None:
    with st.grid(4, min_column_width=150, gap="small"):
        for pool in view.pools:
            page.card(
                t(f"pool.{pool.kind}"),
                numbers.digits(int(pool.size.value)),
                t(f"pool.{pool.kind}.per", each=numbers.digits(int(pool.request.value))),
                t(f"pool.{pool.kind}.help"),
            )
        page.card(
            t("engine.admitted"),
            numbers.digits(int(view.max_requests.value)),
            t("pool.limited", pool=t(f"pool.{view.limiting}")),
            t("pool.admitted.help"),
        )


def rows(t: Translator, view: PoolView) -> list[tables.Row]:
    """Every pool with its own budget, and how many requests it holds."""
    return [
        {
            t("column.pool"): t(f"pool.{pool.kind}"),
            t("column.budget"): numbers.memory(pool.budget.value),
            t("column.size"): _size(t, pool, int(pool.size.value)),
            t("column.one_request"): _size(t, pool, int(pool.request.value)),
            t("column.requests"): numbers.digits(int(pool.requests.value))
            + (f" ({t('budget.binds')})" if pool.kind == view.limiting else ""),
        }
        for pool in view.pools
    ]


def _size(t: Translator, pool: Pool, size: int) -> str:
    unit = "slots" if pool.kind == "state" else "tokens"
    return t(f"pool.unit_{unit}", count=numbers.digits(size))


def _note(t: Translator, view: PoolView) -> str:
    notes = [t("pool.page", page=numbers.digits(view.page))]
    if view.pool("window") is not None:
        notes.append(t("pool.shared_budget"))
    if view.pool("state") is not None:
        notes.append(t("pool.states_first"))
    return " ".join(notes)


def _derived(view: PoolView) -> dict[str, Item]:
    made: dict[str, Item] = {"admitted": view.max_requests}
    for pool in view.pools:
        made[f"pool_{pool.kind}"] = pool.size
        made[f"pool_{pool.kind}_request"] = pool.request
        made[f"pool_{pool.kind}_budget"] = pool.budget
    return made | {"allocated": view.allocated} | waste.items(view)
