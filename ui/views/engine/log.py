"""Why does my log say something else? A pasted start-up log beside what is predicted.

The log is text from outside: ``said`` shows it, and no text of it stands in a sentence here.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from calc.errors import CalcError
from calc.log_inputs import inputs_of, preset_of
from calc.logs import MAX_CHARACTERS, EngineLog, read_log
from calc.presets import load_preset
from calc.reconcile import Finding, Reconciliation, reconcile
from calc.report import Report
from calc.scenario import Scenario
from ui import errors, numbers, state, tables
from ui.inputs import option
from ui.text import Translator
from ui.views.engine import said

MEGABYTES = MAX_CHARACTERS // 2**20
KEPT, FAULT = "_log", "_log_fault"


@dataclass(slots=True)
class Kept:
    """A log that was read, and its reconciliation with the scenario it was last drawn for."""

    log: EngineLog
    scenario: Scenario | None = None
    found: Reconciliation | CalcError | None = None


def draw(t: Translator, report: Report) -> None:
    """The way in, then everything about the log that was read last."""
    st.markdown(t("log.about"))
    kept: Kept | None = st.session_state.get(KEPT)
    _way_in(t)
    fault = st.session_state.get(FAULT)
    if isinstance(fault, CalcError):
        st.error(errors.worded(t, fault)[0], icon=":material/error:")
    if kept is None:
        return
    said.head(t, kept.log)
    said.conflicts(t, kept.log)
    if kept.scenario != report.scenario:
        kept.scenario, kept.found = report.scenario, _reconciled(kept.log, report.scenario)
    if isinstance(kept.found, CalcError):
        _impossible(t, kept.found)
    elif kept.found is not None:
        _found(t, kept.found, report.scenario)
    said.facts(t, kept.log)


def _impossible(t: Translator, error: CalcError) -> None:
    """The log's sizes do not go with the page's model or layout."""
    sentence, raw = errors.headed(t, error)
    st.error(f"{t('log.impossible')} {sentence}", icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)


def _reconciled(log: EngineLog, scenario: Scenario) -> Reconciliation | CalcError:
    try:
        return reconcile(log, scenario)
    except CalcError as error:
        return error


# ---------------------------------------------------------------- the way in


def _way_in(t: Translator) -> None:
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.text_area(
            t("log.text"),
            key="log_text",
            height=150,
            placeholder="INFO … GPU KV cache size: 290,864 tokens",
        )
    with right:
        st.file_uploader(
            t("log.file", megabytes=MEGABYTES),
            key="log_file",
            max_upload_size=MEGABYTES,
            on_change=_uploaded,
        )
    with st.container(horizontal=True, gap="small"):
        st.button(t("log.read"), key="log_read", on_click=_pasted, icon=":material/receipt_long:")
        if KEPT in st.session_state:
            st.button(t("log.forget"), key="log_forget", type="tertiary", on_click=_forget)


def _uploaded() -> None:
    file = st.session_state.get("log_file")
    if file is not None:
        read(file.read(MAX_CHARACTERS + 1).decode("utf-8", errors="replace"))


def _pasted() -> None:
    read(st.session_state.get("log_text") or "")


def _forget() -> None:
    st.session_state.pop(KEPT, None)
    st.session_state[FAULT] = None
    st.session_state["log_text"] = ""


def read(text: str) -> None:
    """Read a log, or keep why it cannot be read."""
    st.session_state.pop(KEPT, None)
    st.session_state[FAULT] = None
    try:
        st.session_state[KEPT] = Kept(read_log(text))
    except CalcError as error:
        st.session_state[FAULT] = error


# ---------------------------------------------------------------- predicted beside logged


def _found(t: Translator, found: Reconciliation, scenario: Scenario) -> None:
    other = _other_model(t, found.log, scenario)
    if not found.findings:
        st.info(t("log.nothing"), icon=":material/info:")
    else:
        if found.explained or not other:
            _verdict(t, found)
        tables.draw(_rows(t, found.findings), t("log.beside"))
        st.caption(t("log.rounding"))
    if found.missing:
        names = t("not_counted.separator").join(said.fact_name(t, name) for name in found.missing)
        st.caption(t("log.missing", names=names))
    if found.reasons:
        st.markdown(f"**{t('log.explained_by')}**")
        tables.draw(_rows(t, found.explained_by), t("log.explained_by"))
    _inputs(t, found, scenario)


def _verdict(t: Translator, found: Reconciliation) -> None:
    differing = [one for one in found.findings if not one.agrees]
    if not differing:
        st.success(t("log.agrees", count=len(found.findings)), icon=":material/check_circle:")
    elif found.reasons:
        reasons = "\n".join(f"- {t(f'reason.{code}')}" for code in found.reasons)
        st.info(f"{t('log.explained')}\n\n{reasons}", icon=":material/lightbulb:")
    else:
        words = {"count": len(differing), "all": len(found.findings)}
        st.warning(t("log.unexplained", **words), icon=":material/help:")


def _rows(t: Translator, findings: tuple[Finding, ...]) -> list[tables.Row]:
    return [
        {
            t("column.figure"): t(f"log.fact.{one.name}"),
            t("column.logged"): _sized(t, one, one.logged),
            t("column.predicted"): _sized(t, one, one.predicted),
            t("column.open"): _range(t, one),
            t("column.verdict"): _judged(t, one),
        }
        for one in findings
    ]


def _sized(t: Translator, one: Finding, value: float) -> str:
    if one.name == "concurrency":
        return f"{value:.2f}x"
    whole = one.unit in ("tokens", "blocks", "requests")
    number = f"{value:,.0f}" if whole else f"{value:,.2f}"
    return f"{number} {t.get(f'unit.{one.unit}', one.unit)}"


def _range(t: Translator, one: Finding) -> str:
    if one.low == one.high:
        return "–"
    places = 2 if isinstance(one.logged, float) else 0
    return f"{max(0, one.low):,.{places}f} – {one.high:,.{places}f}"


def _judged(t: Translator, one: Finding) -> str:
    if one.agrees:
        return t("log.same")
    if not one.predicted:
        return t("log.differs")
    percent = 100 * (one.logged - one.predicted) / one.predicted
    return t("log.higher" if percent > 0 else "log.lower", percent=f"{abs(percent):.1f}")


def _other_model(t: Translator, log: EngineLog, scenario: Scenario) -> bool:
    """Whether the log names a model that is a preset here, and the page shows another."""
    name = log.one("model")
    preset = preset_of(name) if isinstance(name, str) else None
    if preset is None or preset == scenario.model:
        return False
    words = {"model": load_preset(preset).name, "shown": _shown(t, scenario)}
    st.warning(t("log.other_model", **words), icon=":material/swap_horiz:")
    st.button(
        t("log.use_model", model=load_preset(preset).name),
        key="log_model",
        on_click=state.apply,
        args=("model", preset),
    )
    return True


def _shown(t: Translator, scenario: Scenario) -> str:
    return t("model.custom") if scenario.spec is not None else scenario.model_spec.name


def _inputs(t: Translator, found: Reconciliation, scenario: Scenario) -> None:
    """The inputs that the log states, where they differ from the page's, and the button."""
    made = inputs_of(found)
    differing = {name: value for name, value in made.items() if getattr(scenario, name) != value}
    if not differing:
        st.caption(t("log.inputs_same"))
        return
    st.markdown(f"**{t('log.inputs')}**")
    tables.draw(
        [
            {
                t("column.field"): t(f"field.{name}"),
                t("log.column_here"): _field(t, name, getattr(scenario, name)),
                t("log.column_log"): _field(t, name, value),
            }
            for name, value in differing.items()
        ],
        t("log.inputs"),
    )
    st.button(t("log.set"), key="log_set", on_click=_set, args=(made,), icon=":material/build:")


def _field(t: Translator, name: str, value: object) -> str:
    if isinstance(value, str):
        return option(t, name, value)
    return numbers.digits(value) if isinstance(value, int | float) else str(value)


def _set(fields: dict[str, object]) -> None:
    for name, value in fields.items():
        st.session_state[name] = value
    state.settle()
