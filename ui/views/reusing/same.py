"""Which fields two blocks must share, side by side, and which existing keys contain them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.fields import ChoiceField
from calc.identity import FIELDS as IDENTITY
from calc.identity import Compared, Difference, Identity, Serving, compared, identity
from calc.report import Report
from calc.scenario import FIELDS, Scenario
from ui import tables
from ui.text import Translator
from ui.views.reusing import inputs

TEXTS = ("rope", "lora", "lora_version", "media", "draft", "salt")
SIDES = ("here", "there")


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("reuse.identity.what"))
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown(f"**{t('reuse.side.here')}**")
        st.caption(t("reuse.side.here.is"))
        here = _texts(t, "here")
    with right:
        st.markdown(f"**{t('reuse.side.there')}**")
        changes = _changes(t, report.scenario)
        there = _texts(t, "there")
    try:
        one = identity(report.scenario, here)
        other = identity(replace(report.scenario, **changes), there)
    except CalcError as error:
        inputs.fault(t, error)
    else:
        _verdict(t, compared(one, other))
        _digests(t, one, other)
    _coverage(t)


def _changes(t: Translator, scenario: Scenario) -> dict[str, Any]:
    """What the other instance sets differently; it starts equal."""
    mark = f"_{scenario.model}_{scenario.kv_dtype}_{scenario.tp}_{scenario.dcp}_{scenario.engine}"
    with st.grid("auto", min_column_width=130, gap="small", vertical_alignment="bottom"):
        found: dict[str, Any] = {}
        for name in ("kv_dtype", "engine"):
            field = FIELDS[name]
            assert isinstance(field, ChoiceField)
            found[name] = st.selectbox(
                t(f"field.{name}"),
                field.choices,
                index=field.choices.index(getattr(scenario, name)),
                key=f"reuse_other_{name}{mark}",
                format_func=lambda option: t.get(f"option.{option}", option),
                persist_state="session",
            )
        for name in ("tp", "dcp"):
            found[name] = inputs.whole(
                t, f"other_{name}", getattr(scenario, name), most=1024, mark=mark
            )
    if found["engine"] != scenario.engine:
        found |= {"dcp_backend": "auto", "query_replication": "auto", "moe_backend": "auto"}
    return found


def _texts(t: Translator, side: str) -> Serving:
    with st.grid(3, min_column_width=110, gap="small"):
        said = {
            name: st.text_input(
                t(f"identity.{name}"), key=f"reuse_{side}_{name}", persist_state="session"
            )
            for name in TEXTS
        }
    typed: dict[str, Any] = {name: text or "" for name, text in said.items()}
    return Serving(**typed)


def _verdict(t: Translator, found: Compared) -> None:
    if found.first is None:
        st.success(t("reuse.compatible"), icon=":material/check:")
    else:
        field = t(f"identity.{found.first.field.id}")
        why = t(f"reuse.kind.{found.first.field.kind}")
        st.warning(t("reuse.incompatible", field=field, why=why), icon=":material/block:")
    rows = [_row(t, row) for row in found.rows if not row.same]
    rows += [_row(t, row) for row in found.rows if row.same and row.first]
    tables.draw(rows, t("reuse.identity.fields"))


def _row(t: Translator, row: Difference) -> tables.Row:
    return {
        t("column.field"): t(f"identity.{row.field.id}"),
        t("column.decides"): t(f"reuse.kind.{row.field.kind}.short"),
        t("reuse.side.here"): shown(row.first),
        t("reuse.side.there"): shown(row.second),
        t("column.agree"): t("reuse.agrees" if row.same else "reuse.differs"),
    }


def shown(value: str) -> str:
    """A value as code; it may hold what somebody typed, so only harmless signs stay."""
    kept = re.sub(r"[^\w .,:+()-]", "·", value)
    return f"`{kept}`" if kept.strip() else "–"


def _digests(t: Translator, one: Identity, other: Identity) -> None:
    left, right = st.columns(2, gap="medium")
    for column, side, made in ((left, "here", one), (right, "there", other)):
        with column:
            st.caption(t("reuse.digest", side=t(f"reuse.side.{side}")))
            st.code(made.digest, language=None, wrap_lines=True)
    kept = st.expander(t("reuse.key"), key="reuse_key", on_change="rerun")
    if kept.open:
        with kept:
            st.markdown(t("reuse.key.what"))
            st.code(one.text, language=None, wrap_lines=True)


def _coverage(t: Translator) -> None:
    """Three keys that exist, field by field."""
    st.subheader(t("reuse.coverage"), anchor=False)
    rows = [
        {
            t("column.field"): t(f"identity.{field.id}"),
            t("reuse.key.vllm"): t(f"reuse.covered.{field.vllm}"),
            t("reuse.key.nixl"): t(f"reuse.covered.{field.nixl}"),
            t("reuse.key.lmcache"): t(f"reuse.covered.{field.lmcache}"),
        }
        for field in IDENTITY
    ]
    tables.draw(rows, t("reuse.coverage"))
    st.caption(t("reuse.coverage_note"))
