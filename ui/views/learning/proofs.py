"""Identities run with random numbers: both sides, and how far apart they are."""

from __future__ import annotations

import streamlit as st

from calc.fields import WholeField
from calc.learn.proofs import PROOFS, SIZES, Proof, Sizes, prove
from calc.view_inputs import EVERY
from ui import numbers, tables
from ui.bench_tables import error_text
from ui.state import Result
from ui.text import Translator


def draw(t: Translator, result: Result) -> None:
    """Sizes, the button, and a table of what came out; needs no scenario."""
    st.markdown(t("proofs.what"))
    with st.form("proofs", border=False):
        with st.grid(4, min_column_width=130, gap="small"):
            typed = {name: _size(t, name) for name in SIZES}
        if st.form_submit_button(t("proofs.run"), icon=":material/play_arrow:", key="proofs_run"):
            st.session_state["learn_proofs"] = [prove(name, Sizes(**typed)) for name in PROOFS]
    found = st.session_state.get("learn_proofs")
    if found:
        _outcome(t, found)


def _size(t: Translator, name: str) -> int:
    field = EVERY[f"learn_{name}"]
    assert isinstance(field, WholeField)
    label, bounds = t(f"proofs.{name}"), (field.minimum, field.maximum)
    least, most = (numbers.digits(end) for end in bounds)
    note = t("asked.bounds", least=least, most=most)
    return st.number_input(label, *bounds, key=field.name, help=note, persist_state="session")


def _outcome(t: Translator, found: list[Proof]) -> None:
    tables.draw([_row(t, proof) for proof in found], t("learn.part.proofs"))
    failed = [proof for proof in found if not proof.holds]
    st.markdown(t("proofs.some_fail" if failed else "proofs.all_hold", count=len(found)))
    st.caption(t("proofs.note"))


def _row(t: Translator, proof: Proof) -> tables.Row:
    return {
        t("column.proof"): f"**{t(f'proof.{proof.name}')}**",
        t("column.compared"): t(f"proof.{proof.name}.sides"),
        t("column.must"): t("proofs.equal" if proof.equal else "proofs.differ"),
        t("column.apart"): error_text(proof.error),
        t("column.holds"): t("proofs.holds" if proof.holds else "proofs.fails"),
    }
