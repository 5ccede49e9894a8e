"""Words a CalcError in the reader's language, by its code.

What somebody typed or sent may stand in an error's values. Only plain words and
numbers go into the sentence; everything else is shown beside it as it is, by
``st.code``, which interprets nothing.
"""

from __future__ import annotations

import re
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.scenario import FIELDS
from ui import state
from ui.remedy import remedy
from ui.text import Translator

HARMLESS = re.compile(r"(?!.*www\.)[\w ,.()'+=-]{1,400}")
MOST_PROBLEMS = 8


def worded(t: Translator, error: CalcError) -> tuple[str, list[str]]:
    """The sentence, and the raw texts that it could not take in."""
    raw: list[str] = []
    values = {name: _word(t, name, value, raw) for name, value in error.values.items()}
    return t(f"error.{error.code}", **values), raw


def _word(t: Translator, name: str, value: Any, raw: list[str]) -> str:
    if isinstance(value, int | float):
        return f"{value:,}"
    text = str(value)
    known = {
        "kind": f"kind.{slug(text)}.name",
        "what": f"counted.{slug(text)}",
        "rule": f"dcp_rule.{slug(text)}",
        "reason": f"reason.{slug(text)}",
    }
    return t.get(known.get(name, ""), "") or _harmless(text, raw)


def _harmless(text: str, raw: list[str]) -> str:
    """A text from outside, if it can do nothing in a sentence; else it goes to ``raw``."""
    if HARMLESS.fullmatch(text):
        return text
    raw.append(text)
    return "…"


def slug(text: str) -> str:
    """A text of ``calc`` as the last part of a catalogue id.

    >>> slug("it packs a latent row (MLA)")
    'it_packs_a_latent_row_mla'
    """
    return re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")


def headed(t: Translator, error: CalcError) -> tuple[str, list[str]]:
    """The sentence behind the name of the field that has to change, where the page has one."""
    sentence, raw = worded(t, error)
    label = t.get(f"field.{error.field}", "") or _harmless(error.field, raw)
    return f"**{label}** · {sentence}", raw


def draw(t: Translator, error: CalcError) -> None:
    """The reason why there are no numbers, and a button that sets a legal value if one is known."""
    sentence, raw = headed(t, error)
    st.error(sentence, icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)
    fix = remedy(error, {name: st.session_state[name] for name in FIELDS})
    if fix is not None:
        name, legal = fix
        word = t.get(f"option.{legal}", str(legal))
        label = t("error.fix", field=t(f"field.{name}"), value=word)
        st.button(label, key="fix", on_click=state.apply, args=fix, icon=":material/build:")


def draw_problems(t: Translator, problems: tuple[CalcError, ...]) -> None:
    """Everything that is wrong with a link, key by key."""
    st.warning(t("link.broken"), icon=":material/link_off:")
    problem_list(t, problems)


def problem_list(t: Translator, problems: tuple[CalcError, ...]) -> None:
    """Faults of a link, one a line."""
    with st.container(gap="xsmall"):
        for problem in problems[:MOST_PROBLEMS]:
            sentence, raw = headed(t, problem)
            st.markdown(f"- {sentence}")
            for text in raw:
                st.code(text, language=None, wrap_lines=True)
    if len(problems) > MOST_PROBLEMS:
        st.caption(t("link.more_problems", count=len(problems) - MOST_PROBLEMS))


def fault(t: Translator, error: CalcError, label: str = "") -> None:
    """What cannot be in a part of a view, with its reason, behind the label of its input."""
    sentence, raw = worded(t, error)
    st.error(f"**{label}** · {sentence}" if label else sentence, icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)
