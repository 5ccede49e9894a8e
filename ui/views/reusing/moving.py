"""Writes that never stop, replicas that a prefix can be on, and moving caches to decode ranks."""

from __future__ import annotations

import streamlit as st

from calc.errors import CalcError
from calc.hardware import Hardware
from calc.items import Item
from calc.report import Report
from calc.reuse_asked import Asked
from calc.storage import Routing, routing, steady_writes
from calc.transfer import Transfer
from ui import numbers, page, tables
from ui.text import Translator
from ui.views.reusing import inputs

REPLICAS = (1, 2, 4, 8, 16, 32)


def draw(t: Translator, report: Report, gpu: Hardware | None, question: Asked) -> dict[str, Item]:
    """The three of them; the Items for derivations."""
    items = _writes(t, report, question) | _routing(t, report, question)
    return items | (_transfer(t, report, gpu, question) if gpu is not None else {})


def _writes(t: Translator, report: Report, question: Asked) -> dict[str, Item]:
    st.subheader(t("reuse.writes"), anchor=False)
    inputs.draw(t, "requests", "written_tokens", "kept_snapshots")
    rate = float(question["requests"])
    item = steady_writes(report, rate, question["written_tokens"], question["kept_snapshots"])
    st.markdown(t("reuse.writes.is", rate=f"{numbers.traffic(float(item.value))}/s"))
    return {"writes": item}


def _routing(t: Translator, report: Report, question: Asked) -> dict[str, Item]:
    st.subheader(t("reuse.routing"), anchor=False)
    st.markdown(t("reuse.routing.what"))
    with st.container(width=220):
        inputs.draw(t, "uses")
    own = report.scenario.dp
    ways = [routing(count, question["uses"]) for count in sorted({*REPLICAS, own})]
    tables.draw([_way(t, way, own) for way in ways], t("reuse.routing"))
    here = next(way for way in ways if way.replicas == own)
    return {"aware": here.aware, "random": here.random}


def _way(t: Translator, way: Routing, own: int) -> tables.Row:
    count = numbers.digits(way.replicas)
    return {
        t("column.replicas"): f"**{count}** ({t('reuse.dp_here')})"
        if way.replicas == own
        else count,
        t("column.aware"): numbers.percent(float(way.aware.value)),
        t("column.random"): numbers.percent(float(way.random.value)),
    }


def _transfer(t: Translator, report: Report, gpu: Hardware, question: Asked) -> dict[str, Item]:
    """Prefill here, decode on a replica of another layout."""
    scenario = report.scenario
    st.subheader(t("reuse.transfer"), anchor=False)
    st.markdown(t("reuse.transfer.what"))
    sizes = {f"decode_{name}": getattr(scenario, name) for name in ("tp", "dcp", "pp")}
    inputs.draw(t, *sizes, "decode_kv_dtype", left_open=sizes)
    try:
        found = question.moved(gpu)
    except CalcError as error:
        inputs.fault(t, error)
        return {}
    _moved(t, found)
    return {"moved": found.moved, "transfer": found.time, "distinct": found.distinct}


def _moved(t: Translator, found: Transfer) -> None:
    with st.grid(4, min_column_width=150, gap="small"):
        for name, item in (
            ("distinct", found.distinct),
            ("moved", found.moved),
            ("received", found.received),
        ):
            page.card(
                t(f"reuse.card.{name}"),
                numbers.traffic(float(item.value)),
                t(f"reuse.card.{name}.per"),
                numbers.exact(item.value),
            )
        page.card(
            t("reuse.card.transfer"),
            numbers.duration(float(found.time.value)),
            t("reuse.card.transfer.per"),
            t("reuse.card.transfer.help"),
        )
    if not found.relaid:
        st.markdown(t("reuse.transfer.same"))
        return
    lines = [f"- **{t(f'field.{name}')}**: {t(f'reuse.relaid.{name}')}" for name in found.relaid]
    st.markdown("\n".join([t("reuse.transfer.relaid"), "", *lines]))
