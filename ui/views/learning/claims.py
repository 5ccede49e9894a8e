"""What is said about caches and communication, each claim with the right value and a verdict."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from calc.items import Item
from calc.learn.claims import CLAIMS, Claim, Right, Verdict, name
from calc.units import Number
from ui import asked, numbers
from ui.derivation import draw as draw_steps
from ui.state import Result
from ui.text import Translator
from ui.views import parts

BADGES = {
    Verdict.RIGHT: ("green", ":material/check:"),
    Verdict.CONDITIONAL: ("orange", ":material/rule:"),
    Verdict.WRONG: ("red", ":material/close:"),
    Verdict.UNVERIFIABLE: ("gray", ":material/question_mark:"),
    Verdict.OUT_OF_SCOPE: ("gray", ":material/block:"),
}
"""Colour and icon; the word stands beside them."""


def draw(t: Translator, result: Result) -> None:
    """Filters, counts, one card a claim, the arithmetic of one; needs no scenario."""
    st.markdown(t("claims.what"))
    asked.draw(t, "learn", "verdict", "source")
    chosen = [claim for claim in CLAIMS if _asked_for(claim)]
    counts = Counter(claim.verdict for claim in chosen)
    words = {verdict.value: counts[verdict] for verdict in Verdict}
    st.markdown(t("claims.counted", shown=len(chosen), all=len(CLAIMS), **words))
    if not chosen:
        st.info(t("claims.none"), icon=":material/search_off:")
        return
    for claim in chosen:
        with st.container(border=True):
            st.markdown(_card(t, claim))
    items = {
        f"{name(claim)} {right.case}": right.item for claim in chosen for right in claim.rights()
    }
    if items:
        parts.derivations(t, "claims", items, draw_steps, lambda key: _label(t, key))


def _asked_for(claim: Claim) -> bool:
    wanted = asked.values("learn", ("verdict", "source"))
    return all(
        wanted[what] in ("all", value.value)
        for what, value in (("verdict", claim.verdict), ("source", claim.source))
    )


def _card(t: Translator, claim: Claim) -> str:
    """The claim, its verdict, the numbers, the reason: our own words and numbers only."""
    colour, icon = BADGES[claim.verdict]
    word = t(f"learn.verdict.{claim.verdict.value}")
    says = t(f"checked.{name(claim)}.says")
    source = t(f"learn.source.{claim.source.value}")
    lines = [f"**{says}**", f":{colour}-badge[{icon} {word}] :gray[{source}]"]
    rights = claim.rights()
    if claim.claimed is not None:
        values = [_right(t, claim, right) for right in rights]
        said = f"{t('claims.claimed')} {_number(claim.claimed)}"
        lines.append(" · ".join([said, *values]))
    lines.append(t(f"checked.{name(claim)}.why"))
    return "  \n".join(lines)


def _right(t: Translator, claim: Claim, right: Right) -> str:
    mark = ":material/check:" if claim.holds(right) else ":material/close:"
    return f"{t(f'checked.case.{right.case}')}: **{_value(right.item)}** {mark}"


def _value(item: Item) -> str:
    unit = item.unit if item.unit in ("B", "%") else ""  # the claim says what a ratio is of
    return f"{_number(item.value)} {unit}".strip()


def _number(value: Number) -> str:
    whole = float(value) == int(value)
    return numbers.digits(int(value)) if whole else f"{float(value):,.4g}"


def _label(t: Translator, key: str) -> str:
    claim, _, case = key.partition(" ")
    return f"{t(f'checked.{claim}.says')} ({t(f'checked.case.{case}')})"
