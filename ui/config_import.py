"""A model read from a config.json: uploaded, pasted, or fetched by Hugging Face id.

What a config says is data of strangers: nothing of it reaches Markdown but what ``ui.errors`` and
``ui.names`` let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from calc.errors import CalcError
from calc.hf_config import Imported, read_config
from calc.hf_config.parse import MAX_BYTES
from calc.model import ModelSpec
from ui import errors, hub, names, state, tables
from ui.text import Translator

OPEN, KEPT, FAULT = "_importing", "_imported", "_import_fault"
PASTED = "config.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """The last import of the session, to be explained beside the model it made."""

    imported: Imported
    source: str


def offer(t: Translator) -> None:
    """In the sidebar: opens the panel."""
    st.button(
        t("config.offer"),
        key="import_offer",
        type="tertiary",
        icon=":material/upload_file:",
        help=t("help.config"),
        on_click=_toggle,
    )


def _toggle() -> None:
    st.session_state[OPEN] = not st.session_state.get(OPEN, False)
    st.session_state[FAULT] = None


def draw(t: Translator) -> None:
    """The panel with its three ways in, and why the last try failed."""
    if not st.session_state.get(OPEN, False):
        return
    with st.container(border=True, key="import_panel"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader(t("config.title"), anchor=False)
            st.button(
                t("config.close"),
                key="import_close",
                type="tertiary",
                icon=":material/close:",
                on_click=_toggle,
            )
        st.caption(t("config.about"))
        left, right = st.columns(2, gap="medium")
        with left:
            st.file_uploader(
                t("config.file"),
                type="json",
                key="config_file",
                max_upload_size=MAX_BYTES // 10**6,
                on_change=_uploaded,
            )
            _by_id(t)
        with right:
            st.text_area(
                t("config.text"),
                key="config_text",
                height=210,
                max_chars=MAX_BYTES,
                placeholder='{"model_type": …}',
            )
            st.button(t("config.read"), key="config_read", on_click=_pasted)
        _fault(t)


def _by_id(t: Translator) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            t("config.id"),
            key="config_id",
            max_chars=200,
            placeholder="org/model",
            help=t("help.config_id", endpoint=names.harmless_or(hub.endpoint(), "HF_ENDPOINT")),
            disabled=not hub.installed(),
        )
        st.text_input(
            t("config.revision"),
            key="config_revision",
            max_chars=100,
            placeholder="main",
            disabled=not hub.installed(),
            width=110,
        )
        st.button(
            t("config.fetch"),
            key="config_fetch",
            on_click=_fetched,
            disabled=not hub.installed(),
        )
    if not hub.installed():
        st.caption(t("hub.not_installed"))


def _fault(t: Translator) -> None:
    fault = st.session_state.get(FAULT)
    if isinstance(fault, CalcError):
        sentence, raw = errors.headed(t, fault)
        st.error(sentence, icon=":material/error:")
        for text in raw:
            st.code(text, language=None, wrap_lines=True)
    elif isinstance(fault, hub.HubError):
        st.error(t(f"hub.{fault.code}", **fault.values), icon=":material/cloud_off:")


# --- callbacks ----------------------------------------------------------------------------------


def _uploaded() -> None:
    file = st.session_state.get("config_file")
    if file is not None:
        read(file.read(MAX_BYTES + 1), Path(file.name).stem)


def _pasted() -> None:
    read(st.session_state.get("config_text") or "", PASTED)


def _fetched() -> None:
    repo = (st.session_state.get("config_id") or "").strip()
    try:
        data = hub.fetch_config(repo, (st.session_state.get("config_revision") or "").strip())
    except hub.HubError as error:
        st.session_state[FAULT] = error
        return
    read(data, repo)


def read(text: str | bytes, source: str) -> None:
    """Read a config and show its model, or keep why it cannot be read."""
    try:
        imported = imported_from(text, source)
    except CalcError as error:
        st.session_state[FAULT] = error
        return
    st.session_state[FAULT] = None
    st.session_state[OPEN] = False
    st.session_state[KEPT] = Kept(imported, source)
    st.session_state["view"] = "model"
    state.use(imported.spec)


def imported_from(text: str | bytes, source: str) -> Imported:
    """The model in a config, named after the file or the repository."""
    return read_config(text, name=names.tidy(source.rpartition("/")[2], PASTED))


# --- how it was read ----------------------------------------------------------------------------


def explain(t: Translator, spec: ModelSpec) -> None:
    """What decided the layers, and what was not understood, while the model is as imported."""
    kept: Kept | None = st.session_state.get(KEPT)
    if kept is None or kept.imported.spec.layers != spec.layers:
        return
    imported = kept.imported
    with st.expander(
        t("config.how", count=len(imported.warnings)),
        expanded=bool(imported.warnings),
        icon=":material/fact_check:",
        key="import_explained",
    ):
        for notice in imported.warnings:
            sentence, raw = errors.headed(t, CalcError(notice.code, **dict(notice.values)))
            st.warning(sentence, icon=":material/help:")
            for text in raw:
                st.code(text, language=None, wrap_lines=True)
        if not imported.warnings:
            st.markdown(t("config.no_warnings"))
        rows = [
            {
                t("column.about"): t(f"config.{finding.about}"),
                t("column.decided_by"): names.code(finding.field),
                t("column.layers"): t("config.separator").join(
                    f"{count} × {names.kinds(t, kinds)}" for kinds, count in finding.counts
                ),
            }
            for finding in imported.findings
        ]
        tables.draw(rows, t("config.how_alt"))
