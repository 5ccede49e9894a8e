"""Six questions to ask of any model, answered with this scenario's numbers; then two stories."""

from __future__ import annotations

import streamlit as st

from calc.capacity import Component
from calc.errors import CalcError
from calc.identity import FIELDS as IDENTITY
from calc.identity import identity
from calc.items import Item
from calc.layers import Growth
from calc.report import Report
from calc.reuse import Hit
from calc.reuse_asked import Asked
from ui import errors, numbers, tables
from ui.derivation import draw as draw_steps
from ui.state import Result
from ui.text import Translator
from ui.views import parts
from ui.views.learning import pipeline, story
from ui.views.reusing.hit import label


def draw(t: Translator, result: Result) -> None:
    """The questions with their answers, latent attention in three steps, a decode step."""
    report = result.report
    if report is None:
        st.info(t("learn.no_report"), icon=":material/info:")
        return
    st.markdown(t("derive.what"))
    items = _keeps(t, report) | _grows(t, report) | _holds(t, report)
    _hits(t, report)
    _same(t, report)
    st.subheader(t("story.title"), anchor=False)
    items |= story.draw(t, report)
    st.subheader(t("pipeline.title"), anchor=False)
    pipeline.draw(t, report)
    parts.derivations(t, "learn", items, draw_steps, lambda name: t(f"derive.item.{name}"))


def _question(t: Translator, number: int) -> None:
    st.markdown(f"#### {number}. {t(f'derive.question.{number}')}")


def _keeps(t: Translator, report: Report) -> dict[str, Item]:
    """Questions 1 and 2: what each kind of layer keeps, and the sum over kinds."""
    components = report.cache.stage.components
    _question(t, 1)
    rows = [
        {
            t("column.kind"): parts.store_name(t, part),
            t("column.layers"): numbers.digits(part.layers),
            t("column.keeps"): t(f"kind.{part.store.kind}.keeps"),
            t("column.token_layer"): numbers.exact(part.store.bytes.value),
        }
        for part in components
    ]
    if rows:
        tables.draw(rows, t("derive.question.1"))
    _question(t, 2)
    request = report.cache.stage.per_request
    terms = " + ".join(numbers.exact(part.per_request.value) for part in components) or "0 B"
    st.markdown(
        t(
            "derive.sum",
            terms=terms,
            total=numbers.exact(request.value),
            said=numbers.memory(request.value),
            context=numbers.digits(report.scenario.context),
        )
    )
    return {"request": request}


def _grows(t: Translator, report: Report) -> dict[str, Item]:
    """Question 3: what grows with the context, what is capped, what is fixed."""
    _question(t, 3)
    stage = report.cache.stage
    by = {
        "growing": stage.growing_per_token,
        "capped": stage.window_per_request,
        "fixed": stage.state_per_request,
    }
    lines = []
    for name, item in by.items():
        kinds = _kinds(t, stage.components, name)
        value = numbers.exact(item.value) if item.value else "0 B"
        lines.append(t(f"derive.{name}", value=value, kinds=kinds or "–"))
    st.markdown("\n".join(f"- {line}" for line in lines))
    return by


def _kinds(t: Translator, components: tuple[Component, ...], name: str) -> str:
    chosen = [part for part in components if _group(part) == name]
    words = dict.fromkeys(t(f"kind.{part.store.kind}.short") for part in chosen)
    return t("plan.separator").join(words)


def _group(part: Component) -> str:
    if part.growth is Growth.STATE:
        return "fixed"
    return "growing" if part.growth is Growth.GROWING else "capped"


def _holds(t: Translator, report: Report) -> dict[str, Item]:
    """Question 4: what a rank holds, what is a copy of another rank's."""
    _question(t, 4)
    scenario = report.scenario
    rows = [
        {
            t("column.kind"): parts.store_name(t, part),
            t("column.per_rank"): numbers.memory(part.per_request.value),
            t("column.split"): _split(t, part, scenario.tp),
        }
        for part in report.cache.stage.components
    ]
    if rows:
        tables.draw(rows, t("derive.question.4"))
    whole = report.cache.per_replica
    st.markdown(t("derive.replica", total=numbers.memory(whole.value), ranks=scenario.tp))
    return {"replica": whole}


def _split(t: Translator, part: Component, tp: int) -> str:
    store = part.store
    words = {"tp": tp, "dcp": store.dcp, "copies": store.copies, "parts": tp // store.copies}
    if store.copies == 1:
        return t("derive.split.all", **words)
    if store.copies == tp and store.dcp == 1:
        return t("derive.split.none", **words)
    return t("derive.split.some", **words)


def _hits(t: Translator, report: Report) -> None:
    """Question 5: what a prefix hit needs of each group, and of all of them."""
    _question(t, 5)
    try:
        hit = Asked(report.scenario, {}).hit
    except CalcError as error:
        errors.fault(t, error)
        return
    st.markdown("\n".join(f"- {line}" for line in _needs(t, hit)))
    st.markdown(
        t(
            "derive.hit",
            prefix=numbers.digits(hit.prefix),
            tokens=numbers.digits(hit.tokens),
            align=numbers.digits(hit.align),
            rule=t(f"reuse.rule.{hit.rule.value}"),
        )
    )


def _needs(t: Translator, hit: Hit) -> list[str]:
    lines = []
    for one in hit.groups:
        group = one.group
        words = {
            "group": label(t, group),
            "chunk": numbers.digits(group.chunk),
            "count": numbers.digits(len(one.needed)),
            "at": numbers.digits(one.needed.stop * group.chunk),
        }
        lines.append(t(f"derive.needs.{group.growth.value}", **words))
    return lines


def _same(t: Translator, report: Report) -> None:
    """Question 6: what makes two blocks the same."""
    _question(t, 6)
    made = identity(report.scenario)
    names = t("plan.separator").join(t(f"identity.{field.id}") for field in IDENTITY)
    st.markdown(t("derive.identity", fields=names, count=len(IDENTITY)))
    st.code(made.digest, language=None, wrap_lines=True)
    st.caption(t("derive.experiment"))
