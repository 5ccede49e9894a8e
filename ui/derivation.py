"""Draws an Item as numbered steps: what it is, formula, numbers filled in, value, source."""

from __future__ import annotations

import re

import streamlit as st

from calc.expressions import filled, number_latex, symbolic
from calc.items import SUMS, Item, walk
from calc.symbols import SYMBOLS
from ui.errors import slug
from ui.text import Translator


def draw(t: Translator, item: Item) -> None:
    """All steps that lead to one number, the parts before what is made of them."""
    for number, step in enumerate(walk(item), start=1):
        with st.container(gap="xxsmall"):
            st.markdown(f"**{number} · {label(t, step)}**")
            st.markdown(f"{worked(step)} {unit(t, step)}")
            st.caption(_footnote(t, step))


def label(t: Translator, item: Item) -> str:
    """What an item is, with the layer kind or the stage it belongs to."""
    name = item.formula.name
    what = t(f"item.{_whole(item.key)}") if item.formula in SUMS.values() else t(f"formula.{name}")
    context = [word for part in item.key.split(".") if (word := _part(t, part))]
    return f"{what} ({' · '.join(context)})" if context else what


def _whole(key: str) -> str:
    """The key without the number of a pipeline stage."""
    return re.sub(r"\d+", "", key).replace(".", "_")


def _part(t: Translator, part: str) -> str:
    if match := re.fullmatch(r"stage(\d+)", part):
        return t("pipeline.stage", number=int(match[1]) + 1)
    return t.get(f"kind.{part}.short", t.get(f"stage.{part}", ""))


def unit(t: Translator, item: Item) -> str:
    return t.get(f"unit.{slug(item.unit)}", item.unit)


def worked(item: Item) -> str:
    """Formula, numbers filled in, and value: inline LaTeX in pieces between which a line breaks."""
    value = number_latex(item.value)
    if item.formula in SUMS.values():
        pieces = [(" + " if place else "") + term for place, term in enumerate(_terms(item))]
    else:
        pieces = [symbolic(item.formula)]
        pieces += [f"= {filled(item)}"] if item.arguments else []
    return " ".join(rf"$\displaystyle {piece.strip()}$" for piece in [*pieces, f"= {value}"])


def _terms(item: Item) -> list[str]:
    return filled(item).split(" + ")


def _footnote(t: Translator, item: Item) -> str:
    """The symbols in words, where the formula is from, and how far it can be trusted."""
    parts = []
    if item.formula not in SUMS.values():
        parts += [f"${SYMBOLS[name]}$ {t(f'symbol.{name}')}" for name in item.arguments]
    source = t("derivation.source", source=item.formula.source, status=status(t, item))
    return t("derivation.separator").join(parts) + ("  \n" if parts else "") + source


def status(t: Translator, item: Item) -> str:
    return t(f"status.{slug(item.status)}")
