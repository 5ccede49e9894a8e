"""The editor of the custom model: groups of equal layers, each with the fields of its kind.

The widgets follow from the classes of ``calc.layers``: a new kind appears here
by itself. What is typed for one kind stays while another one is shown.
"""

from __future__ import annotations

from typing import Literal

import streamlit as st

from calc.presets import CUSTOM, load_preset
from ui import custom_fields, state
from ui.custom_fields import MAX_GROUPS, NONE, SLOTS, TYPICAL, PartField, key, part_fields
from ui.text import Translator

PERSIST: Literal["session"] = "session"
LARGEST = 2**26


def draw(t: Translator) -> None:
    """The editor of a custom model, or the offer to make one of the chosen preset."""
    if st.session_state["model"] != CUSTOM:
        return
    with st.expander(
        t("custom.title"),
        expanded=not st.session_state.get("_custom_folded", False),
        icon=":material/edit:",
    ):
        if st.session_state.get("_custom_fixed") is not None:
            st.markdown(t("custom.fixed"))
            return
        with st.grid("auto", min_column_width=180, gap="small"):
            _whole(t, t("part.hidden_size"), TYPICAL["hidden_size"], 1, 2**20, "hidden_size")
            _whole(t, t("part.vocab_size"), TYPICAL["vocab_size"], 1, LARGEST, "vocab_size")
            _whole(t, t("custom.groups"), 1, 1, MAX_GROUPS, "groups", note=t("help.groups"))
        for group in range(custom_fields.group_count()):
            with st.container(border=True):
                _group(t, group)


def offer(t: Translator) -> None:
    """In the sidebar: the chosen preset as a custom model, where the editor can show it."""
    model = st.session_state["model"]
    if model == CUSTOM:
        return
    st.button(
        t("custom.start"),
        key="start_from_preset",
        type="tertiary",
        icon=":material/edit:",
        help=t("help.custom_start"),
        on_click=state.start_from_preset,
        disabled=not custom_fields.can_start_from(load_preset(model)),
    )


def _group(t: Translator, group: int) -> None:
    st.markdown(f"**{t('custom.group', number=group + 1)}**")
    with st.grid("auto", min_column_width=180, gap="small"):
        _whole(t, t("part.count"), TYPICAL["count"], 1, 2048, group, "count")
        for slot in SLOTS:
            _kind(t, group, slot)
    for slot in SLOTS:
        kind = custom_fields.kind_of(group, slot)
        if kind == NONE:
            continue
        fields = part_fields(kind)
        needed = [field for field in fields if field.required]
        st.caption(t("custom.fields_of", kind=t.get(f"kind.{kind}.name", kind)))
        with st.grid("auto", min_column_width=180, gap="small"):
            for field in needed:
                _part_field(t, field, group, slot, kind)
        if len(needed) < len(fields):
            with st.expander(t("custom.more", kind=t.get(f"kind.{kind}.short", kind))):  # noqa: SIM117
                with st.grid(
                    "auto", min_column_width=180, gap="small", vertical_alignment="bottom"
                ):
                    for field in fields:
                        if not field.required:
                            _part_field(t, field, group, slot, kind)


def _kind(t: Translator, group: int, slot: str) -> None:
    widget_key = key(group, slot)
    st.session_state.setdefault(widget_key, custom_fields.kind_of(group, slot))
    st.selectbox(
        t(f"custom.{slot}"),
        SLOTS[slot],
        key=widget_key,
        format_func=lambda kind: t.get(f"kind.{kind}.name", kind),
        help=t(f"help.{slot}"),
        persist_state=PERSIST,
    )


def _part_field(t: Translator, field: PartField, group: int, slot: str, kind: str) -> None:
    """One field of a layer part, by its type."""
    label = t.get(f"part.{field.name}", field.name.replace("_", " "))
    place = (group, slot, kind, field.name)
    widget_key = key(*place)
    if field.type == "whole":
        bounds = (field.minimum, field.maximum)
        note = t("custom.zero_is_none") if field.optional else None
        _whole(t, label, field.start, *bounds, *place, note=note)
        return
    start = list(field.start) if field.type == "choices" else field.start
    st.session_state.setdefault(widget_key, start)
    if field.type == "flag":
        st.checkbox(label, key=widget_key, persist_state=PERSIST)
        return
    if field.type == "choices":
        st.multiselect(label, field.options, key=widget_key, persist_state=PERSIST)
        return
    st.selectbox(
        label,
        field.options,
        key=widget_key,
        format_func=lambda word: t.get(f"option.{word}", str(word)),
        persist_state=PERSIST,
    )


def _whole(
    t: Translator,
    label: str,
    start: int,
    minimum: int,
    maximum: int,
    *place: object,
    note: str | None = None,
) -> None:
    widget_key = key(*place)
    st.session_state.setdefault(widget_key, start)
    st.number_input(
        label, minimum, maximum, step=1, key=widget_key, help=note, persist_state=PERSIST
    )
