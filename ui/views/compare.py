"""The same model as MHA, GQA-8, MQA and MLA; and an often-copied calculation set right."""

from __future__ import annotations

import streamlit as st

from calc.capacity import mixer_counts
from calc.items import Item
from calc.layers import Attention, LatentAttention
from calc.report import Report
from calc.whatif import Alternative, alternatives, compared_mixer
from ui import numbers, tables
from ui.text import Translator

CLAIMS = ("token", "layer", "factor", "ratio", "mqa", "rotary", "cached")
"""What the article says that is corrected here."""


def draw(t: Translator, report: Report) -> None:
    """The table, what it assumes, and the corrections."""
    mixer = compared_mixer(report.model)
    if mixer is None:
        st.markdown(t("compare.nothing"))
        return
    latent = isinstance(mixer, LatentAttention)
    layers = mixer_counts(report.model.layers)[mixer]
    rows = [_row(t, made, layers) for made in different(mixer)]
    tables.draw(rows, t("model.section.compare"))
    if isinstance(mixer, LatentAttention):
        widths = {"k": mixer.nope_dim + mixer.rope_dim, "v": mixer.v_dim}
    else:
        widths = {"k": mixer.k_dim, "v": mixer.v_dim}
    words = "compare.latent" if latent else "compare.grouped"
    st.caption(t(words, heads=mixer.heads, layers=layers, **widths))
    st.markdown(f"**{t('compare.claims')}**")
    st.caption(t("compare.claims_about"))
    claims = [
        {
            t("column.claim"): t(f"claim.{name}.says"),
            t("column.right"): t(f"claim.{name}.right"),
        }
        for name in CLAIMS
    ]
    tables.draw(claims, t("compare.claims"))


def different(mixer: LatentAttention | Attention) -> list[Alternative]:
    """The model's own kind, then those that keep another number of elements."""
    found: dict[int, Alternative] = {}
    for made in alternatives(mixer):
        found.setdefault(int(made.elements.value), made)
    return list(found.values())


def _row(t: Translator, made: Alternative, layers: int) -> tables.Row:
    size = int(made.bytes.value)
    return {
        t("column.kind"): _called(t, made),
        t("column.elements"): numbers.digits(made.elements.value),
        t("column.bytes_layer"): numbers.exact(size),
        t("column.bytes_layers"): numbers.memory(size * layers),
        t("column.fewer"): f"{numbers.significant(made.ratio.value)} ×",
    }


def _called(t: Translator, made: Alternative) -> str:
    name = t(f"compare.{_kind(made)}", kv_heads=made.kv_heads)
    return f"**{t('compare.own', kind=name)}**" if made.name == "own" else name


def _kind(made: Alternative) -> str:
    """Which kind the model's own attention is."""
    if made.name != "own":
        return made.name
    if made.elements.formula.name == "latent_elements":
        return "mla"
    if made.kv_heads == 1:
        return "mqa"
    return "mha" if made.ratio.value == 1 else "gqa"


def derived(report: Report) -> dict[str, Item]:
    """The bytes and ratios of the table, for the derivations."""
    mixer = compared_mixer(report.model)
    if mixer is None:
        return {}
    found: dict[str, Item] = {}
    for made in alternatives(mixer):
        found[f"{made.name}_bytes"] = made.bytes
        if made.name in ("own", "mla"):
            found[f"{made.name}_ratio"] = made.ratio
    return found
