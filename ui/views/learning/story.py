"""Latent attention in three steps, with this layout's bytes and FLOPs."""

from __future__ import annotations

import streamlit as st

from calc.items import Item
from calc.learn.story import Told, story
from calc.presets import preset_ids
from calc.report import Report
from ui import numbers, tables
from ui.text import Translator

EXAMPLE = "deepseek-v3"


def draw(t: Translator, report: Report) -> dict[str, Item]:
    """The table; a model without latent layers says so."""
    latent = report.model.latent_mixers
    if not latent:
        assert EXAMPLE in preset_ids()
        st.markdown(t("story.none", link=f"?v=1&model={EXAMPLE}&tp=8&view=learn"))
        return {}
    mixer, scenario = latent[0], report.scenario
    found = story(mixer, scenario.layout)
    st.markdown(
        t(
            "story.what",
            heads=mixer.heads,
            k_dim=mixer.nope_dim + mixer.rope_dim,
            v_dim=mixer.v_dim,
            latent=mixer.kv_lora_rank,
            rope=mixer.rope_dim,
            ratio=numbers.significant(found.ratio.value),
            tp=scenario.tp,
            dcp=scenario.dcp,
        )
    )
    tables.draw([_row(t, told) for told in found.told], t("story.title"))
    st.caption(t("story.note"))
    items = {"story_ratio": found.ratio}
    for told in found.told:
        items |= {f"story_{told.name}_kept": told.kept, f"story_{told.name}_each": told.each}
    return items


def _row(t: Translator, told: Told) -> tables.Row:
    return {
        t("column.told"): f"**{t(f'story.{told.name}')}**",
        t("column.happens"): t(f"story.{told.name}.what"),
        t("column.kept_token"): numbers.exact(told.kept.value),
        t("column.flop_token"): numbers.digits(int(told.each.value)),
        t("column.flop_once"): numbers.digits(int(told.once.value)) if told.once else "–",
    }
