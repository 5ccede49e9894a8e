"""The benchmark's button, its progress, and how a run ended."""

from __future__ import annotations

import time
import uuid

import streamlit as st

from calc.link import encode, query_string
from calc.measured import Measured
from calc.scenario import Scenario
from ui.bench import Bench, Job, why_not
from ui.bench_tables import plain
from ui.text import Translator

HISTORY = 8
POLL_S = 0.5
KNOWN_CODES = {
    "busy",
    "no_torch",
    "no_cuda",
    "out_of_memory",
    "time_limit",
    "kernel_fault",
    "killed",
    "bad_scenario",
}


@st.cache_resource
def bench() -> Bench:
    """One for all sessions of this server."""
    return Bench()


def history() -> list[Measured]:
    """The session's results, the newest first."""
    kept: list[Measured] = st.session_state.setdefault("bench_history", [])
    return kept


def keep(measured: Measured) -> None:
    """Remember a result and show it."""
    kept = history()
    if measured in kept:
        kept.remove(measured)
    kept.insert(0, measured)
    del kept[HISTORY:]
    st.session_state["bench_shown"] = 0


def draw(t: Translator, scenario: Scenario) -> None:
    """The button, or why there is none; while a run is under way, how far it is."""
    job = bench().job
    if job is not None and job.running:
        _running(t)
        return
    reason = why_not()
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        pressed = st.button(
            t("gpu.start"),
            key="bench_start",
            type="primary",
            icon=":material/speed:",
            disabled=reason is not None,
            help=t(f"gpu.why_not.{reason}") if reason else t("gpu.start.help"),
        )
        calibrate = st.checkbox(
            t("gpu.calibrate"),
            key="bench_calibrate",
            disabled=reason is not None,
            help=t("gpu.calibrate.help"),
        )
    if reason is not None:
        st.caption(t(f"gpu.why_not.{reason}"))
    if pressed:
        started = bench().start(_owner(), query_string(encode(scenario)), calibrate)
        if started is None:
            st.info(t("gpu.busy"), icon=":material/hourglass_empty:")
        else:
            st.rerun()
    if job is not None and job.owner == _owner():
        _ended(t, job)


def _owner() -> str:
    owner: str = st.session_state.setdefault("bench_owner", uuid.uuid4().hex)
    return owner


@st.fragment(run_every=POLL_S)
def _running(t: Translator) -> None:
    """Progress; Cancel for whoever started it. Reruns the page once when it ends."""
    job = bench().job
    if job is None or not job.running:
        st.rerun()
        return
    mine = job.owner == _owner()
    st.progress(job.share, text=_where(t, job) if mine else t("gpu.progress.other"))
    st.button(
        t("gpu.cancel"),
        key="bench_cancel",
        disabled=not mine,
        icon=":material/cancel:",
        on_click=_cancel,
        help=None if mine else t("gpu.cancel.other"),
    )


def _where(t: Translator, job: Job) -> str:
    """How far a run is, and what it has just done."""
    seconds = round(time.time() - job.started)
    if not job.of:
        return t("gpu.progress.starting", seconds=seconds)
    part, _, kind = job.name.partition(" ")
    done = t.get(f"gpu.part.{part}", plain(part))
    if kind:
        done += f" ({t.get(f'kind.{kind}.short', plain(kind))})"
    return t("gpu.progress", step=job.step, of=job.of, done=done, seconds=seconds)


def _cancel() -> None:
    bench().cancel(_owner())


def _ended(t: Translator, job: Job) -> None:
    """Keep a new result; or one sentence on why there is none."""
    if job.result is not None:
        if all(job.result is not kept for kept in history()) and _once(job):
            keep(job.result)
    elif job.status == "cancelled":
        st.info(t("gpu.cancelled"), icon=":material/cancel:")
    elif job.status == "failed":
        known = job.code if job.code in KNOWN_CODES else "failed"
        st.warning(t(f"gpu.error.{known}"), icon=":material/error:")
        if known == "failed" and job.message:
            st.code(job.message, language=None, wrap_lines=True)


def _once(job: Job) -> bool:
    """Whether this run's result has not been kept before (it may have left the history since)."""
    fresh = st.session_state.get("bench_kept") != job.started
    st.session_state["bench_kept"] = job.started
    return fresh
