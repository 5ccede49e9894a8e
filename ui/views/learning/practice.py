"""Practice: one question at a time, answered by keyboard, with the worked answer behind it."""

from __future__ import annotations

import secrets
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.learn.answers import EXAMPLES, read_answer
from calc.learn.questions import Question
from calc.learn.quiz import LENGTH, question
from ui import asked, errors, numbers, plan_charts, state
from ui.derivation import draw as draw_steps
from ui.state import Result
from ui.text import Translator

SCORES = "_practice_scores"
"""Answers that were checked: (seed, topic, number) to right or wrong; the first one counts."""


def draw(t: Translator, result: Result) -> None:
    """Which quiz, the question, the answer; needs no scenario of the page."""
    st.markdown(t("practice.what"))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        asked.widget(t, "learn", "topic")
        asked.widget(t, "learn", "quiz")
        st.button(
            t("practice.new"),
            key="practice_new",
            icon=":material/shuffle:",
            on_click=_new,
        )
    said = asked.values("learn", ("quiz", "topic", "number"))
    one = question(said["quiz"], said["topic"], said["number"])
    progress = st.empty()
    with st.container(border=True):
        st.markdown(f"#### {t(f'practice.ask.{one.kind}', **_given(t, one))}")
        if one.claim:
            st.markdown(f"> {t(f'checked.{one.claim}.says')}")
        if one.tolerance:
            st.caption(t("practice.tolerance", share=numbers.percent(one.tolerance)))
        answered = _form(t, one, said)
        if answered is not None:
            _worked(t, one, answered)
    with progress:
        _progress(t, said)
    _moving(t, one, said)


def _new() -> None:
    """Another quiz (a callback)."""
    st.session_state["learn_quiz"] = secrets.randbelow(10**6) + 1
    st.session_state["learn_number"] = 1


def _go(number: int) -> None:
    """Another question (a callback)."""
    st.session_state["learn_number"] = number


def _key(said: dict[str, Any]) -> tuple[int, str, int]:
    return said["quiz"], said["topic"], said["number"]


def _progress(t: Translator, said: dict[str, Any]) -> None:
    scores = st.session_state.setdefault(SCORES, {})
    mine = [right for key, right in scores.items() if key[:2] == (said["quiz"], said["topic"])]
    st.progress(
        said["number"] / LENGTH,
        t(
            "practice.progress",
            number=said["number"],
            count=LENGTH,
            right=sum(mine),
            answered=len(mine),
        ),
    )


def _given(t: Translator, one: Question) -> dict[str, str]:
    """The values of a question in words."""
    words = {}
    for name, value in one.values.items():
        if name in ("state", "growing", "request", "alone"):
            words[name] = numbers.exact(value)
        elif isinstance(value, int | float):
            words[name] = numbers.digits(value) if value == int(value) else f"{value:g}"
        else:
            words[name] = str(value)
    return words


def _form(t: Translator, one: Question, said: dict[str, Any]) -> bool | None:
    """The field and its button; whether the answer is right, None without one."""
    mark = ".".join(map(str, _key(said)))
    with st.form(f"practice.{mark}", border=False):
        typed = _field(t, one, mark)
        sent = st.form_submit_button(t("practice.check"), icon=":material/check:")
    if not sent and mark not in st.session_state.setdefault("_practice_checked", set()):
        return None
    try:
        right = _right(one, typed)
    except CalcError as error:
        errors.fault(t, error)
        return None
    if right is None:
        st.info(t("practice.choose"), icon=":material/touch_app:")
        return None
    st.session_state["_practice_checked"].add(mark)
    st.session_state[SCORES].setdefault(_key(said), right)
    return right


def _field(t: Translator, one: Question, mark: str) -> int | str | None:
    """Choices, or a line to write in."""
    if one.options:
        return st.radio(
            t("practice.options"),
            range(len(one.options)),
            index=None,
            key=f"practice_choice.{mark}",
            format_func=lambda at: _option(t, one, at),
            label_visibility="collapsed",
        )
    return st.text_input(
        t("practice.answer", unit=t(f"practice.unit.{_unit(one)}")),
        key=f"practice_answer.{mark}",
        placeholder=EXAMPLES[one.unit],
        max_chars=200,
    )


def _unit(one: Question) -> str:
    return {"B": "bytes", "%": "percent", "×": "times", "µs": "time"}.get(one.unit, one.unit)


def _right(one: Question, typed: Any) -> bool | None:
    if one.options:
        return None if typed is None else typed == one.right
    return one.accepts(read_answer(typed or "", one.unit))


def _option(t: Translator, one: Question, at: int) -> str:
    name = one.options[at]
    return t.get(f"practice.option.{name}", t.get(f"plan.group.{name}", name))


def _worked(t: Translator, one: Question, right: bool) -> None:
    """The verdict, the answer, the rounded way beside the exact one."""
    if right:
        st.success(t("practice.right"), icon=":material/check:")
    else:
        st.error(t("practice.wrong"), icon=":material/close:")
    if one.claim:
        st.markdown(f"**{_option(t, one, one.right)}.** {t(f'checked.{one.claim}.why')}")
        return
    if one.options:
        st.markdown(t("practice.answer_is", answer=f"**{_option(t, one, one.right)}**"))
        for row in one.rows:
            if "group" in row:
                group = t(f"plan.group.{row['group']}")
                st.markdown(f"- {group}: ≈ {numbers.duration(row['us'])}")
        return
    assert one.exact is not None
    said = plan_charts.shown(one.exact.value, one.unit)
    exact = numbers.exact(one.exact.value, t(f"practice.unit.{_unit(one)}.short"))
    st.markdown(t("practice.answer_is", answer=f"**{exact}** ({said})"))
    left, beside = st.columns(2, gap="medium")
    with left:
        st.markdown(f"**{t('practice.mental')}**")
        if one.path is None:
            st.caption(t("practice.no_path"))
        else:
            st.markdown("\n".join(f"- {line}" for line in one.path.lines))
            off = one.path.value / one.value - 1
            st.caption(t("practice.off", share=f"{off:+.1%}"))
    with beside:
        st.markdown(f"**{t('practice.exact')}**")
        draw_steps(t, one.exact)


def _moving(t: Translator, one: Question, said: dict[str, Any]) -> None:
    """Back, on, and into the page with the question's scenario."""
    number = said["number"]
    with st.container(horizontal=True):
        st.button(
            t("practice.back"),
            key="practice_back",
            icon=":material/arrow_back:",
            disabled=number == 1,
            on_click=_go,
            args=(number - 1,),
        )
        st.button(
            t("practice.next"),
            key="practice_next",
            icon=":material/arrow_forward:",
            disabled=number == LENGTH,
            on_click=_go,
            args=(number + 1,),
        )
        if one.scenario is not None:
            st.button(
                t("practice.open"),
                key="practice_open",
                icon=":material/input:",
                type="tertiary",
                on_click=state.fill,
                args=(one.scenario,),
            )
