"""The frame of the page: title, what is shown, how it came here, the headline numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from calc.report import Report
from calc.scenario import Scenario
from calc.version import FORMULAS, VERSION
from calc.view_inputs import VIEWS
from ui import errors, names, numbers, present, state, tables
from ui.inputs import option
from ui.text import LANGUAGES, Translator

RANKS = ("tp", "pcp", "dp", "pp")
"""The sizes whose product is the world size."""
ICON = Path(__file__).parent / "static" / "icon.png"


def configure() -> None:
    st.set_page_config("LLM inference calculator", ICON, layout="wide")


def header(t: Translator, result: state.Result) -> None:
    """Title, language, link; and one line that says which scenario this is."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.title(t("title"), anchor=False)
        if result.scenario is not None:
            with st.popover(t("link.share"), icon=":material/link:", key="share"):
                _share(t, result)
        present.toggle(t)
        st.segmented_control(
            t("language"),
            list(LANGUAGES),
            key="lang",
            format_func=LANGUAGES.__getitem__,
            required=True,
            label_visibility="collapsed",
        )
    if result.scenario is not None:
        st.markdown(f"**{summary(t, result.scenario)}**")


def summary(t: Translator, scenario: Scenario) -> str:
    """The scenario in one line."""
    name = names.model(t, scenario.model_spec, custom=scenario.spec is not None)
    sizes = [f"TP {scenario.tp}", f"DCP {scenario.dcp}"]
    sizes += [f"PCP {scenario.pcp}"] if scenario.pcp > 1 else []
    sizes += [f"DP {scenario.dp}"] if scenario.dp > 1 else []
    sizes += [f"PP {scenario.pp}"] if scenario.pp > 1 else []
    sizes += [f"EP {scenario.layout.ep}"] if scenario.ep != "off" else []
    words = [
        name,
        *sizes,
        t("summary.context", context=numbers.digits(scenario.context)),
        t("summary.batch", batch=numbers.digits(scenario.batch)),
        t("summary.kv", kv_dtype=scenario.kv_dtype),
        option(t, "engine", scenario.engine),
    ]
    return " · ".join(words)


def _share(t: Translator, result: state.Result) -> None:
    st.markdown(t("link.explained"))
    st.code(state.link(result), language=None, wrap_lines=True)
    report = result.report
    if report is not None:
        st.download_button(
            t("link.json"),
            lambda: tables.as_json(report),
            file_name="scenario.json",
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
        )


def footer(t: Translator) -> None:
    """Which calculator this is."""
    st.caption(t("page.version", version=VERSION, formulas=FORMULAS))


def notice(t: Translator, result: state.Result) -> None:
    """A link's faults, what has changed since it was sent, and inputs that were adapted."""
    kept = state.session().notice
    if kept.problems:
        errors.draw_problems(t, kept.problems)
    elif kept.opened is not None:
        _opened(t, result)
    if kept.changes:
        changes = [_change(t, change) for change in kept.changes]
        st.info("\n\n".join(changes), icon=":material/tune:")


def _change(t: Translator, change: state.Change) -> str:
    words = {
        "field": t(f"field.{change.field}"),
        "old": t.get(f"option.{change.old}", str(change.old)),
        "new": t.get(f"option.{change.new}", str(change.new)),
    }
    reason, _ = errors.worded(t, change.reason)
    return f"{t('notice.changed', **words)} {reason}"


def _opened(t: Translator, result: state.Result) -> None:
    opened = state.session().notice.opened
    assert opened is not None
    revision = opened.scenario.model_spec.revision
    lines = [t("link.opened")]
    if opened.revision is not None and opened.revision != revision:
        lines.append(t("link.revision", old=opened.revision, new=revision))
    if opened.formulas != FORMULAS:
        lines.append(t("link.formulas", old=opened.formulas, new=FORMULAS))
        since = range(opened.formulas + 1, FORMULAS + 1)
        lines += [t(f"link.corrected.{number}") for number in since]
    moved = _moved(t, opened.seen, result.report)
    if moved:
        lines.append("\n".join([t("link.moved"), "", *(f"- {line}" for line in moved)]))
        st.warning("\n\n".join(lines), icon=":material/history:")
    else:
        st.caption(f":material/link: {' '.join(lines)}")


def _moved(t: Translator, seen: tuple[int, ...] | None, report: Report | None) -> list[str]:
    """Headline numbers that its sender saw differently."""
    if seen is None or report is None:
        return []
    return [
        t("link.moved_line", name=t(f"card.{name}"), old=worded(t, old), new=worded(t, new))
        for (name, worded), old, new in zip(HEADLINE, seen, report.headline(), strict=False)
        if old != new
    ]


def cautions(t: Translator, report: Report) -> None:
    """What the engine lets through and should not."""
    for name in report.cautions():
        st.warning(t(f"caution.{name}"), icon=":material/warning:")


def cards(t: Translator, report: Report) -> None:
    """The four headline numbers, each with what it is per."""
    scenario = report.scenario
    budget = numbers.memory(report.fit.budget_bytes)
    typed = report.engine.budget.typed
    per = {
        "request": t("card.request.per", context=numbers.digits(scenario.context)),
        "batch": t("card.batch.per", budget=budget)
        if typed
        else t("card.batch.gpu", budget=budget, gpu=option(t, "gpu", scenario.gpu)),
        "sent": t("card.sent.per", batch=numbers.digits(scenario.batch)),
        "ranks": " × ".join(
            f"{size} {getattr(scenario, size)}"
            for size in RANKS
            if size != "pcp" or scenario.pcp > 1
        ),
    }
    with st.grid(4, min_column_width=150, gap="small"):
        for (name, worded), value in zip(HEADLINE, report.headline(), strict=True):
            card(
                t(f"card.{name}"),
                worded(t, value),
                per[name],
                t(f"card.{name}.help", exact=numbers.digits(value)),
            )


def card(label: str, value: str, per: str, note: str) -> None:
    """A bordered number with one line that says per what, and its exact value on hover."""
    with st.container(border=True, height="stretch", gap=None):
        st.metric(label, value, help=note)
        st.caption(per)


def view_switch(t: Translator) -> None:
    st.segmented_control(
        t("view.label"),
        VIEWS,
        key="view",
        format_func=lambda view: t(f"view.{view}"),
        required=True,
        label_visibility="collapsed",
    )


def _memory(t: Translator, value: int) -> str:
    return numbers.memory(value)


def _traffic(t: Translator, value: int) -> str:
    return numbers.traffic(value)


def _requests(t: Translator, value: int) -> str:
    return t("count.request" if value == 1 else "count.requests", count=numbers.digits(value))


def _ranks(t: Translator, value: int) -> str:
    return t("count.rank" if value == 1 else "count.ranks", count=numbers.digits(value))


HEADLINE: tuple[tuple[str, Any], ...] = (
    ("request", _memory),
    ("batch", _requests),
    ("sent", _traffic),
    ("ranks", _ranks),
)
"""The numbers of ``Report.headline`` in order, with how each is written."""
