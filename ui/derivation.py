"""Draws an Item as numbered steps: what it is, formula, numbers filled in, value, source."""

from __future__ import annotations

import re

import streamlit as st

from calc.expressions import filled, number_latex, symbolic
from calc.items import SUMS, Item, Status, walk
from calc.symbols import SYMBOLS
from ui.errors import slug
from ui.text import Translator

TENSOR = re.compile(r"(?:^|\.)([a-z0-9_]{1,40})(?:\.rows|\.columns|\.copies)?$")
OF_TENSORS = {"tensor_parameters", "head_rows", "share_of"} | {
    f"weight_bytes_{name}" for name in ("bf16", "fp8", "mxfp4", "nvfp4", "int4")
}
"""Formulas of single tensors, which are named after what they compute."""


def draw(t: Translator, item: Item) -> None:
    """All steps that lead to one number, the parts before what is made of them."""
    for number, step in enumerate(walk(item), start=1):
        _draw_step(t, step, f"{number} · ")


def draw_one(t: Translator, item: Item) -> None:
    """The last step alone, where the parts have derivations of their own."""
    _draw_step(t, item, "")


def _draw_step(t: Translator, step: Item, number: str) -> None:
    with st.container(gap="xxsmall"):
        st.markdown(f"**{number}{label(t, step)}**")
        st.markdown(f"{worked(step)} {unit(t, step)}")
        st.caption(_footnote(t, step))


def label(t: Translator, item: Item) -> str:
    """What an item is, with the layer kind or the stage it belongs to."""
    keys = item.key.split(".")
    if "mla" in keys:  # its latent row is no projection of experts, which bears the same name
        keys = [key for key in keys if key != "latent"]
    context = [word for part in keys if (word := _part(t, part))]
    if item.formula in SUMS.values():
        what = _sum(t, item.key)
    else:
        what = t(f"formula.{item.formula.name}")
        if item.formula.name in OF_TENSORS and (found := TENSOR.search(item.key)):
            context.append(f"`{found[1]}`")
    return f"{what} ({' · '.join(context)})" if context else what


def _sum(t: Translator, key: str) -> str:
    """A sum by its key, or by the last part of it; a name from outside in it is never shown."""
    last = key.rpartition(".")[2]
    known = (f"item.{_whole(key)}", f"item.{last}", f"item.of_{last}")
    return next((words for name in known if (words := t.get(name, ""))), t("item.sum"))


def _whole(key: str) -> str:
    """The key without the number of a pipeline stage."""
    return re.sub(r"\d+", "", key).replace(".", "_")


def _part(t: Translator, part: str) -> str:
    if match := re.fullmatch(r"stage(\d+)", part):
        return t("pipeline.stage", number=int(match[1]) + 1)
    part = re.sub(r"_\d+$", "", part)
    return t.get(f"kind.{part}.short", t.get(f"stage.{part}", t.get(f"role.{part}", "")))


def unit(t: Translator, item: Item) -> str:
    if "µ" in item.unit:  # a slug has no room for it
        return item.unit
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
    """How far a number can be trusted: what is made of an estimate is one."""
    if any(part.status is Status.ESTIMATE for part in walk(item)):
        return t(f"status.{Status.ESTIMATE}")
    return t(f"status.{slug(item.status)}")
