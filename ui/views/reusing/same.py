"""Which fields two blocks must share, side by side, and which existing keys contain them."""

from __future__ import annotations

import re

import streamlit as st

from calc.errors import CalcError
from calc.identity import FIELDS as IDENTITY
from calc.identity import Compared, Difference, Identity, compared
from calc.report import Report
from calc.reuse_inputs import IDENTITY as IDENTITY_INPUTS
from calc.reuse_inputs import PLACES, SERVING
from ui import tables
from ui.text import Translator
from ui.views.reusing import inputs

ASKED = (*(field.name.removeprefix("reuse_") for field in IDENTITY_INPUTS), "interval")


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    scenario = report.scenario
    st.markdown(t("reuse.identity.what"))
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown(f"**{t('reuse.side.here')}**")
        st.caption(t("reuse.side.here.is"))
        _texts(t, "here")
    with right:
        st.markdown(f"**{t('reuse.side.there')}**")
        sizes = {f"other_{name}": getattr(scenario, name) for name in ("tp", "dcp")}
        inputs.draw(t, "other_kv_dtype", "other_engine", *sizes, left_open=sizes)
        _texts(t, "there")
    try:
        question = inputs.asked(scenario, ASKED)
        one, other = question.identity(), question.other_identity()
    except CalcError as error:
        inputs.fault(t, error)
    else:
        _verdict(t, compared(one, other))
        _digests(t, one, other)
    _coverage(t)


def _texts(t: Translator, side: str) -> None:
    with st.grid(3, min_column_width=110, gap="small"):
        for name in SERVING:
            st.text_input(
                t(f"identity.{name}"),
                key=f"reuse_{side}_{name}",
                max_chars=200,
                persist_state="session",
            )
        for name, _, least, most in PLACES:
            st.number_input(
                t(f"identity.{name}"),
                least,
                most,
                key=f"reuse_{side}_{name}",
                persist_state="session",
            )


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
