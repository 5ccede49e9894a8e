"""What this machine's GPU does with the scenario's kernels: measured beside predicted."""

from __future__ import annotations

import functools
import time
import uuid

import streamlit as st

from calc.calibration import compared, efficiency
from calc.errors import CalcError
from calc.link import encode, query_string
from calc.measured import Measured, read_result
from calc.scenario import Scenario
from ui import bench_tables, numbers, page
from ui.bench import ROOT, Bench, Job, why_not
from ui.errors import draw as draw_error
from ui.state import Result
from ui.text import Translator
from ui.views import parts

RECORDED = ROOT / "gpu" / "recorded"
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


def draw(t: Translator, result: Result) -> None:
    """The whole view."""
    st.markdown(t("gpu.what"))
    if result.scenario is not None and result.report is not None:
        _control(t, result.scenario)
    shown = _choose(t)
    if shown is not None:
        _result(t, shown)


@st.cache_resource
def _bench() -> Bench:
    """One for all sessions of this server."""
    return Bench()


@functools.cache
def _recorded() -> tuple[Measured, ...]:
    return tuple(
        read_result(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))
    )


def _owner() -> str:
    return st.session_state.setdefault("bench_owner", uuid.uuid4().hex)


def _history() -> list[Measured]:
    return st.session_state.setdefault("bench_history", [])


def _control(t: Translator, scenario: Scenario) -> None:
    """The button, or why there is none; while a run is under way, how far it is."""
    job = _bench().job
    if job is not None and job.running:
        _running(t)
        return
    reason = why_not()
    pressed = st.button(
        t("gpu.start"),
        key="bench_start",
        icon=":material/speed:",
        disabled=reason is not None,
        help=t(f"gpu.why_not.{reason}") if reason else t("gpu.start.help"),
    )
    if reason is not None:
        st.caption(t(f"gpu.why_not.{reason}"))
    if pressed:
        started = _bench().start(_owner(), query_string(encode(scenario)))
        if started is None:
            st.info(t("gpu.busy"), icon=":material/hourglass_empty:")
        else:
            st.rerun()
    if job is not None and job.owner == _owner():
        _ended(t, job)


@st.fragment(run_every=POLL_S)
def _running(t: Translator) -> None:
    """Progress; Cancel for whoever started it. Reruns the page once when it ends."""
    job = _bench().job
    if job is None or not job.running:
        st.rerun()
        return
    mine = job.owner == _owner()
    where = t(
        "gpu.progress", step=job.step, of=job.of or "?", seconds=round(time.time() - job.started)
    )
    st.progress(job.share, text=where if mine else t("gpu.progress.other", where=where))
    st.button(
        t("gpu.cancel"),
        key="bench_cancel",
        disabled=not mine,
        on_click=_cancel,
        help=None if mine else t("gpu.cancel.other"),
    )


def _cancel() -> None:
    _bench().cancel(_owner())


def _ended(t: Translator, job: Job) -> None:
    """Keep a new result; or one sentence on why there is none."""
    if job.result is not None:
        if all(job.result is not kept for kept in _history()):
            _keep(job.result)
    elif job.status == "cancelled":
        st.info(t("gpu.cancelled"), icon=":material/cancel:")
    elif job.status == "failed":
        known = job.code if job.code in KNOWN_CODES else "failed"
        st.warning(t(f"gpu.error.{known}"), icon=":material/error:")
        if job.message:
            st.code(job.message, language=None, wrap_lines=True)


def _keep(measured: Measured) -> None:
    history = _history()
    history.insert(0, measured)
    del history[HISTORY:]
    st.session_state.pop("bench_shown", None)


def _choose(t: Translator) -> Measured | None:
    """A result of this session, an uploaded one, or a recorded example."""
    left, right = st.columns(2, gap="medium", vertical_alignment="bottom")
    with right:
        _upload(t)
    choices = (*_history(), *_recorded())
    if not choices:
        return None
    with left:
        place = st.selectbox(
            t("gpu.shown"),
            range(len(choices)),
            key="bench_shown",
            format_func=lambda index: _title(t, choices[index]),
        )
    return choices[place or 0]


def _title(t: Translator, measured: Measured) -> str:
    key = "gpu.title.recorded" if measured.recorded else "gpu.title"
    words = {"gpu": bench_tables.plain(measured.machine.gpu), "created": measured.created}
    return t(key, model=bench_tables.plain(measured.model), **words)


def _upload(t: Translator) -> None:
    """A result from another machine; refused in one sentence if it is not one."""
    file = st.file_uploader(t("gpu.upload"), type="json", key="bench_upload", max_upload_size=1)
    if file is None or st.session_state.get("bench_uploaded") == file.file_id:
        return
    try:
        measured = read_result(file.getvalue())
    except CalcError as error:
        draw_error(t, error)
        return
    st.session_state["bench_uploaded"] = file.file_id
    _keep(measured)


def _result(t: Translator, measured: Measured) -> None:
    if measured.recorded:
        st.info(t("gpu.recorded"), icon=":material/history:")
    machine = measured.machine
    words = (machine.gpu, machine.driver, machine.cuda, machine.torch, measured.created)
    st.caption(t("gpu.machine"))
    st.code(" · ".join(words), language=None, wrap_lines=True)
    _cards(t, measured)
    rows = compared(measured)
    figure = bench_tables.chart(t, rows)
    parts.chart(t, "bench_chart", figure, t("gpu.chart"))
    for name, table in bench_tables.tables(t, measured, rows).items():
        if table:
            st.subheader(t(f"gpu.table.{name}"), anchor=False)
            st.dataframe(table, hide_index=True, width="stretch", key=f"bench_{name}")
            if note := t.get(f"gpu.note.{name}", ""):
                st.caption(note)
    _efficiency(t, measured)
    st.download_button(
        t("gpu.download"),
        measured.model_dump_json(indent=1, exclude_none=True),
        f"gpu-{measured.created[:10]}.json",
        "application/json",
        key="bench_download",
        icon=":material/download:",
    )
    st.caption(t("gpu.method", blocks=measured.method.blocks, samples=measured.method.samples))


def _cards(t: Translator, measured: Measured) -> None:
    """The ceilings, and how near the first kernel comes."""
    ceilings = measured.ceilings
    burst, sustained = ceilings.gemm_burst / 1e12, ceilings.gemm_sustained
    held = "–" if sustained is None else numbers.digits(round(sustained / 1e12))
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("gpu.card.read"),
            f"{ceilings.read / 1e12:.2f} TB/s",
            t("gpu.card.read.per", size=numbers.memory(ceilings.over_bytes)),
            t("gpu.card.read.help", copy=f"{ceilings.copy_rate / 1e12:.2f}"),
        )
        page.card(
            t("gpu.card.gemm"),
            f"{burst:.0f} TFLOP/s",
            t("gpu.card.gemm.per", sustained=held),
            t("gpu.card.gemm.help"),
        )
        for kernel in measured.kernels[:2]:
            best = kernel.best
            if best is None or best.timing is None:
                continue
            fraction = "–" if best.fraction is None else f"{best.fraction:.0%}"
            page.card(
                t(f"kind.{kernel.facts.kind}.short"),
                bench_tables.time_text(best.timing.us),
                t(
                    "gpu.card.kernel.per",
                    fraction=fraction,
                    side=t(f"gpu.side.{kernel.floor.side}"),
                ),
                t(f"gpu.verdict.{best.verdict}") if best.verdict else "",
            )


def _efficiency(t: Translator, measured: Measured) -> None:
    found = efficiency(measured)
    words = {
        name: "–" if value is None else f"{value:.0%}"
        for name, value in (("memory", found.memory), ("compute", found.compute))
    }
    st.markdown(t("gpu.efficiency", **words))
