"""All legal layouts for a number of GPUs, ranked, and what binds the best."""

from __future__ import annotations

import threading
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.hardware import hardware_ids
from calc.launch import launch_command
from calc.link import encode, query_string
from calc.plan_answers import FIELDS, Why, plan_of, why
from calc.planner import Plan, Row
from calc.report import Report
from calc.scenario import Scenario
from ui import asked, errors, numbers, page, plan_charts, state, tables
from ui.text import Translator
from ui.views import parts

SHOWN = ("all", "fitting", "front")
MOST_KEPT = 32
_LOCK = threading.Lock()


def draw(t: Translator, report: Report) -> None:
    """Inputs, the winner, the chart, the table, and one row to use."""
    scenario = report.scenario
    st.markdown(t("plan.what"))
    usual = scenario.batch * scenario.dp
    asked.draw(t, "plan", "gpus", "objective", "concurrency", left_open={"concurrency": usual})
    with st.expander(t("plan.choices"), icon=":material/tune:"):
        asked.draw(t, "plan", "engines", "backends", "kv_dtypes", "replications")
        asked.draw(t, "plan", "max_step_ms", "max_sent_mb", "top")
    try:
        found = _found(t, scenario)
        _verdict(t, found)
    except CalcError as error:
        errors.fault(t, error)
        return
    timed = scenario.gpu in hardware_ids()
    parts.chart(t, "plan_chart", lambda: plan_charts.layouts(t, found, timed), t("plan.chart"))
    if not timed:
        st.caption(t("plan.untimed"))
    rows = _rows(t, found)
    for reason in found.unavailable:
        sentence, raw = errors.worded(t, reason)
        st.caption(f":material/block: {sentence}" if not raw else t("plan.unavailable"))
    _chosen(t, rows)


def _found(t: Translator, scenario: Scenario) -> Plan:
    """The plan, with a bar while it is worked out the first time."""
    said = tuple(sorted(asked.values("plan", FIELDS).items(), key=lambda pair: pair[0]))
    kept = _kept()
    key = (scenario, said)
    with _LOCK:
        if key in kept:
            return kept[key]
    bar = st.empty()

    def progress(share: float) -> None:
        if share < 1:
            bar.progress(share, t("plan.working"))

    found = plan_of(scenario, dict(said), progress)
    bar.empty()
    with _LOCK:
        kept[key] = found
        while len(kept) > MOST_KEPT:
            kept.pop(next(iter(kept)))
    return found


@st.cache_resource(show_spinner=False)
def _kept() -> dict[Any, Plan]:
    """Plans of all sessions, the newest ``MOST_KEPT``: a cached function may not draw a bar."""
    return {}


def _verdict(t: Translator, found: Plan) -> None:
    """The best layout and what binds it; or the nearest and what it lacks."""
    fitting = sum(not row.lacks for row in found.rows)
    front = sum(row.front for row in found.rows)
    words = {name: numbers.digits(n) for name, n in (("fitting", fitting), ("front", front))}
    st.markdown(t("plan.counted", layouts=numbers.digits(len(found.rows)), **words))
    winner, nearest = found.winner, found.nearest
    if winner is not None:
        _cards(t, winner)
        st.markdown(_binds(t, winner, why(winner, found.objective)))
    elif nearest is not None:
        lacks = t("plan.separator").join(_lack(t, what, by) for what, by in nearest.lacks)
        st.warning(t("plan.nothing", layout=layout(nearest), lacks=lacks), icon=":material/block:")


def _cards(t: Translator, row: Row) -> None:
    figures = row.figures
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("plan.card.layout"), _sizes(row), t("plan.card.layout.per"), _beside(t, row.scenario)
        )
        page.card(
            t("plan.card.concurrency"),
            numbers.digits(row.concurrency),
            t("plan.card.concurrency.per", context=numbers.digits(row.scenario.context)),
            numbers.exact(figures.request_bytes),
        )
        page.card(
            t("plan.card.sent"),
            numbers.traffic(figures.sent_bytes),
            t("plan.card.sent.per", batch=numbers.digits(row.scenario.batch)),
            numbers.exact(figures.sent_bytes),
        )
        step = figures.step_us
        page.card(
            t("plan.card.step"),
            "–" if step is None else f"≈ {numbers.duration(step)}",
            t("plan.card.step.per"),
            t("plan.card.step.help"),
        )


def _sizes(row: Row) -> str:
    made = row.scenario
    return f"{made.tp} · {made.dcp} · {made.dp} · {made.pp}"


def layout(row: Row) -> str:
    """The sizes of a row in words that need no translation."""
    made = row.scenario
    words = f"TP {made.tp} · DCP {made.dcp} · DP {made.dp} · PP {made.pp}"
    return words if made.ep == "off" else f"{words} · EP {made.layout.ep}"


def _beside(t: Translator, made: Scenario) -> str:
    names = ("engine", "dcp_backend", "kv_dtype", "ep")
    return ", ".join(f"{t(f'field.{name}')}: {getattr(made, name)}" for name in names)


def _binds(t: Translator, row: Row, reason: Why) -> str:
    given = reason.values
    code = reason.code
    match code:
        case "memory":
            code = "memory_typed" if given["typed"] else code
            words = {
                "budget": numbers.memory(given["budget_bytes"]),
                "weights": numbers.memory(given["weight_bytes"]),
                "request": numbers.memory(given["request_bytes"]),
                "requests": numbers.digits(given["requests"]),
                "replicas": numbers.digits(given["replicas"]),
            }
        case "traffic":
            words = {
                "stage": t(f"stage.{given['stage']}"),
                "share": numbers.percent(given["share"]),
                "sent": numbers.traffic(given["sent_bytes"]),
            }
        case "time":
            words = {
                "group": t(f"plan.group.{given['group']}"),
                "share": numbers.percent(given["share"]),
                "step": numbers.duration(given["step_us"]),
            }
        case _:
            words = {}
    return t(f"plan.why.{code}", layout=layout(row), **words)


def _lack(t: Translator, what: str, by: float) -> str:
    amount = {
        "memory": numbers.memory(int(by)),
        "step": numbers.duration(by),
        "traffic": numbers.traffic(by),
    }[what]
    return t(f"plan.lacks.{what}", amount=amount)


def _rows(t: Translator, found: Plan) -> list[Row]:
    """The table of the best rows; the front is marked."""
    shown = st.segmented_control(
        t("plan.shown"),
        SHOWN,
        key="plan_shown",
        format_func=lambda name: t(f"plan.shown.{name}"),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    kept = [
        row
        for row in found.rows
        if shown == "all" or (shown == "fitting" and not row.lacks) or (row.front and not row.lacks)
    ]
    most = st.session_state["plan_top"]
    best = kept[:most]
    if best:
        tables.draw([_row(t, at, row) for at, row in enumerate(best, start=1)], t("plan.rows"))
    left = len(kept) - len(best)
    note = t("plan.more", count=numbers.digits(left)) if left else ""
    st.caption(f"{t('plan.rows_note')} {note}")
    return best


def _row(t: Translator, at: int, row: Row) -> tables.Row:
    made, figures = row.scenario, row.figures
    longest = figures.max_context
    link = query_string(encode(made) | {"lang": st.session_state["lang"]})
    lacks = t("plan.separator").join(_lack(t, what, by) for what, by in row.lacks)
    name = f"{layout(row)} ◆" if row.front else layout(row)
    step, rate = figures.step_us, figures.gpu_rate
    return {
        t("column.rank_number"): f"[{at}](?{link})",
        t("column.layout"): f"**{name}**" if not row.lacks else name,
        t("column.engine"): f"{made.engine}, {made.kv_dtype}"
        + ("" if made.dcp_backend == "auto" else f", {made.dcp_backend}")
        + _replicated(t, made),
        t("column.plan_requests"): numbers.digits(row.concurrency),
        t("column.longest"): t("capacity.no_limit") if longest is None else numbers.digits(longest),
        t("column.sent_step"): numbers.traffic(figures.sent_bytes),
        t("column.step_time"): "–" if step is None else f"≈ {numbers.duration(step)}",
        t("column.gpu_rate"): "–" if rate is None else f"≈ {numbers.significant(rate)}",
        t("column.lacks"): t("plan.short", lacks=lacks) if lacks else t("plan.fits"),
    }


def _replicated(t: Translator, made: Scenario) -> str:
    asked = made.query_replication
    return "" if asked == "auto" else f", {t(f'plan.replication.{asked}')}"


def _chosen(t: Translator, rows: list[Row]) -> None:
    """One row: into the inputs, or as a launch command."""
    if not rows:
        return
    with st.container(border=True):
        at = st.selectbox(
            t("plan.chosen"),
            range(len(rows)),
            key="plan_chosen",
            format_func=lambda at: f"{at + 1} · {layout(rows[at])} · {rows[at].scenario.kv_dtype}",
        )
        row = rows[min(at or 0, len(rows) - 1)]
        st.button(
            t("plan.use"),
            key="plan_use",
            icon=":material/check:",
            on_click=state.fill,
            args=(row.scenario,),
        )
        try:
            command = launch_command(row.scenario)
        except CalcError as error:
            errors.fault(t, error)
            return
        st.caption(t("plan.launch", engine=command.engine, version=command.version))
        st.code(command.text, language=None, wrap_lines=True)
        if command.left_out:
            fields = ", ".join(t(f"field.{name}") for name in command.left_out)
            st.caption(t("plan.left_out", fields=fields))
