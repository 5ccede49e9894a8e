"""What DCP trades: communication for cache held and read, against the context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import streamlit as st

from calc.errors import CalcError
from calc.exchange import DCP_STAGES, DcpCurve, Exchange, Gain, gain
from calc.exchange import exchange as compute
from calc.hardware import Hardware
from calc.items import Item
from calc.layers import Indexer
from calc.layout import check_layout
from calc.report import Report
from calc.timing.report import times
from ui import errors, exchange_charts, numbers, page, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.step import estimate, time


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("step.exchange_what"))
    gpu = estimate.chosen_gpu(t, report)
    if gpu is None:
        return
    try:
        found = compute(report.scenario, gpu, contexts(report.scenario.context))
    except CalcError as error:
        estimate.fault(t, error)
        return
    if not any(curve.time.any() for curve in found.curves):
        st.info(t("step.no_attention"), icon=":material/info:")
        return
    chosen, context = report.scenario.dcp, report.scenario.context
    shown = chosen if chosen > 1 else found.curves[-1].dcp
    if len(found.curves) == 1:
        _only_one(t, report)
    else:
        _cards(t, found, shown, context)
    crossovers = {curve.dcp: found.crossover(curve.dcp) for curve in found.curves[1:]}
    left, right = st.columns(2, gap="medium")
    with left:
        parts.chart(
            t,
            "exchange_time_chart",
            lambda: exchange_charts.time_against_context(found, crossovers, chosen, context, t),
            t("step.chart_exchange_time"),
        )
    with right:
        parts.chart(
            t,
            "exchange_cache_chart",
            lambda: exchange_charts.cache_against_context(found, chosen, context, t),
            t("step.chart_exchange_cache"),
        )
    title = t("step.sizes", context=numbers.digits(context))
    st.subheader(title, anchor=False)
    tables.draw([_row(t, found, curve, crossovers, context) for curve in found.curves], title)
    if len(found.curves) > 1:
        _why(t, report, gain(found, shown, context), found)
    st.caption(t("step.exchange_note"))
    _derivations(t, report, gpu)


def contexts(context: int) -> list[int]:
    """Where curves are computed: ten points an octave and the chosen context."""
    low, high = min(1024, context), max(2**20, context)
    return sorted({*np.unique(np.geomspace(low, high, 101).astype(int)).tolist(), context})


def _only_one(t: Translator, report: Report) -> None:
    """Why this model, TP and engine have no DCP."""
    scenario = report.scenario
    reason = t("step.one_rank")
    if scenario.tp > 1:
        try:
            check_layout(report.model, replace(scenario.layout, dcp=2), scenario.engine_rules)
        except CalcError as error:
            reason = errors.worded(t, error)[0]
    st.info(t("step.only_one", reason=reason), icon=":material/info:")


def _cards(t: Translator, found: Exchange, dcp: int, context: int) -> None:
    won = gain(found, dcp, context)
    curves = {curve.dcp: curve for curve in found.curves}
    at = int(np.argmin(np.abs(curves[dcp].contexts - context)))
    held = float(curves[1].kv_bytes[at] / curves[dcp].kv_bytes[at])
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("step.card.crossover", dcp=dcp),
            crossing(t, found.crossover(dcp)),
            t("step.card.crossover.per"),
            t("step.card.crossover.help"),
        )
        page.card(
            t("step.card.gain", dcp=dcp),
            f"≈ {numbers.significant(won.whole)} ×",
            t("step.card.gain.per", context=numbers.digits(context)),
            t("step.card.gain.help"),
        )
        page.card(
            t("step.card.cost", dcp=dcp),
            f"≈ {numbers.duration(curves[dcp].communication)}",
            t("step.card.cost.per"),
            t("step.card.cost.help"),
        )
        page.card(
            t("step.card.held", dcp=dcp),
            t("step.times_less", times=numbers.significant(held)),
            t("step.card.held.per"),
            t("step.card.held.help"),
        )


def crossing(t: Translator, at: float | None) -> str:
    """A crossover context in words."""
    if at is None:
        return t("step.never")
    if at == 0:
        return t("step.always")
    return f"≈ {numbers.digits(exchange_charts.round_tokens(at))}"


def _row(
    t: Translator,
    found: Exchange,
    curve: DcpCurve,
    crossovers: dict[int, float | None],
    context: int,
) -> tables.Row:
    at = int(np.argmin(np.abs(curve.contexts - context)))
    won = gain(found, curve.dcp, context)
    return {
        "DCP": f"**{curve.dcp}**",
        t("column.heads"): numbers.digits(curve.heads),
        t("column.attention"): numbers.duration(float(curve.attention[at])),
        t("column.bound"): t("step.arithmetic" if curve.compute_bound[at] else "step.memory"),
        t("column.dcp_time"): numbers.duration(curve.communication) if curve.communication else "–",
        t("column.sum"): numbers.duration(float(curve.time[at])),
        t("column.gain"): f"{numbers.significant(won.whole)} ×",
        t("column.per_request"): numbers.memory(float(curve.kv_bytes[at])),
        t("column.crossover"): "–" if curve.dcp == 1 else crossing(t, crossovers[curve.dcp]),
    }


def _why(t: Translator, report: Report, won: Gain, found: Exchange) -> None:
    """The factors that multiply to the gain, in a sentence."""
    curves = {curve.dcp: curve for curve in found.curves}
    words = {
        "dcp": won.dcp,
        "heads": curves[won.dcp].heads,
        "before": curves[1].heads,
        "attention": numbers.significant(won.attention),
        "whole": numbers.significant(won.whole),
        "share": numbers.percent(won.communication_share),
        "bound": t("step.why.arithmetic" if won.compute_bound else "step.why.memory"),
    }
    if any(isinstance(mixer, Indexer) for mixer in report.model.mixers):
        striped = report.scenario.engine_rules.stripes_indexer
        words["scores"] = t("step.why.striped" if striped else "step.why.whole")
        st.markdown(t("step.why_sparse", **words))
        return
    st.markdown(t("step.why" if won.heads_grow > 1 else "step.why_same_heads", **words))


def _derivations(t: Translator, report: Report, gpu: Hardware) -> None:
    """The parts of the estimate at the scenario's own dcp and context."""
    try:
        found = times(report, gpu).decode
    except CalcError:
        return
    chosen = {
        f"{part.kind}.{part.name}": part
        for part in found.parts
        if part.group == "attention" or part.name in DCP_STAGES
    }
    items: dict[str, Item] = {name: part.total for name, part in chosen.items()}
    if items:
        parts.derivations(
            t, "exchange", items, draw_steps, lambda name: time.part_name(t, chosen[name])
        )
