"""What this machine's GPU does with the scenario's kernels: measured beside predicted."""

from __future__ import annotations

import functools

import streamlit as st

from calc.calibration import compared
from calc.errors import CalcError
from calc.link import LinkError, decode_query
from calc.measured import Measured, read_result
from calc.scenario import Scenario
from ui import bench_charts, bench_control, bench_rates, bench_tables, numbers, page
from ui.bench import ROOT
from ui.errors import draw as draw_error
from ui.state import Result, fill
from ui.tables import draw as draw_table
from ui.text import Translator
from ui.views import parts

RECORDED = ROOT / "gpu" / "recorded"


def draw(t: Translator, result: Result) -> None:
    """The whole view."""
    st.markdown(t("gpu.what"))
    if result.scenario is not None and result.report is not None:
        bench_control.draw(t, result.scenario)
    shown = _choose(t)
    if shown is not None:
        _result(t, shown, result.scenario if result.report is not None else None)


@functools.cache
def _recorded() -> tuple[Measured, ...]:
    return tuple(
        read_result(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))
    )


def _choose(t: Translator) -> Measured | None:
    """A result of this session, an uploaded one, or a recorded example."""
    place = st.container()
    _upload(t)
    choices = (*bench_control.history(), *_recorded())
    if not choices:
        return None
    chosen = place.selectbox(
        t("gpu.shown"),
        range(len(choices)),
        key="bench_shown",
        format_func=lambda index: _title(t, choices[index]),
    )
    return choices[chosen or 0]


def _title(t: Translator, measured: Measured) -> str:
    key = "gpu.title.recorded" if measured.recorded else "gpu.title"
    words = {"gpu": bench_tables.plain(measured.machine.gpu), "created": _when(measured)}
    return t(key, model=bench_tables.plain(measured.model), **words)


def _when(measured: Measured) -> str:
    """Date and time, UTC; to the second, since a choice is known by its words."""
    return f"{measured.created[:10]} {measured.created[11:19]}"


def _upload(t: Translator) -> None:
    """A result from another machine; refused in one sentence if it is not one."""
    with st.expander(t("gpu.upload"), icon=":material/upload_file:"):
        file = st.file_uploader(
            t("gpu.upload"),
            type="json",
            key="bench_upload",
            max_upload_size=1,
            label_visibility="collapsed",
        )
        if file is None or st.session_state.get("bench_uploaded") == file.file_id:
            return
        try:
            measured = read_result(file.getvalue())
        except CalcError as error:
            draw_error(t, error)
            return
    st.session_state["bench_uploaded"] = file.file_id
    bench_control.keep(measured)


def _result(t: Translator, measured: Measured, scenario: Scenario | None) -> None:
    _origin(t, measured, scenario)
    _cards(t, measured)
    rows = compared(measured)
    parts.chart(t, "bench_chart", lambda: bench_charts.kernels(t, rows), t("gpu.chart"))
    tables = bench_tables.tables(t, measured, rows)
    _table(t, "compared", tables)
    bench_rates.draw(t, measured, scenario)
    _collectives(t, measured, tables)
    _backends(t, measured)
    for name in ("calibration", "stages", "merge", "memory"):
        if tables[name]:
            with st.expander(t(f"gpu.table.{name}")):
                _rows(t, name, tables)
    _table(t, "skipped", tables)
    st.download_button(
        t("gpu.download"),
        measured.model_dump_json(indent=1, exclude_none=True),
        f"gpu-{measured.created[:10]}.json",
        "application/json",
        key="bench_download",
        icon=":material/download:",
        on_click="ignore",
    )
    st.caption(t("gpu.method", blocks=measured.method.blocks, samples=measured.method.samples))


def _origin(t: Translator, measured: Measured, scenario: Scenario | None) -> None:
    """Where a result is from, and whether it is of the scenario that the page shows."""
    if measured.recorded:
        st.info(t("gpu.recorded"), icon=":material/history:")
    machine = measured.machine
    words = (machine.gpu, machine.driver, machine.cuda, machine.torch)
    gpu, driver, cuda, torch = map(bench_tables.plain, words)
    of = None
    lines = [t("gpu.machine", gpu=gpu, driver=driver, cuda=cuda, torch=torch, when=_when(measured))]
    try:
        of = decode_query(measured.scenario).scenario
    except LinkError:
        lines.append(t("gpu.of_unknown"))
    else:
        key = "gpu.of_same" if _same(of, scenario) else "gpu.of"
        lines.append(t(key, scenario=page.summary(t, of)))
    st.caption("  \n".join(lines))
    if of is not None and not _same(of, scenario):
        st.button(
            t("gpu.open"),
            key="bench_open",
            type="tertiary",
            icon=":material/open_in_new:",
            on_click=fill,
            args=(of,),
        )


def _same(measured: Scenario, shown: Scenario | None) -> bool:
    """Whether both say the same to the kernels."""
    names = ("model", "spec", "tp", "dcp", "pp", "context", "batch", "state_dtype", "kv_dtype")
    return shown is not None and all(
        getattr(measured, name) == getattr(shown, name) for name in names
    )


def _table(t: Translator, name: str, tables: dict[str, bench_tables.Table]) -> None:
    if tables[name]:
        st.subheader(t(f"gpu.table.{name}"), anchor=False)
        _rows(t, name, tables)


def _rows(t: Translator, name: str, tables: dict[str, bench_tables.Table]) -> None:
    draw_table(tables[name], t(f"gpu.table.{name}"))
    if note := t.get(f"gpu.note.{name}", ""):
        st.caption(note)


def _backends(t: Translator, measured: Measured) -> None:
    """Every backend on every shape, one table a shape."""
    st.subheader(t("gpu.table.backends"), anchor=False)
    for kernel in measured.kernels:
        kind = bench_tables.kind_name(t, kernel.facts.kind)
        st.markdown(f"**{kind}** · {bench_tables.shape_text(t, kernel)}")
        if rows := bench_tables.backends(t, kernel):
            draw_table(rows, t("gpu.table.backends"))
        if missing := bench_tables.unavailable(kernel):
            st.caption(t("gpu.unavailable", backends=missing))
    st.caption(t("gpu.note.backends"))


def _collectives(t: Translator, measured: Measured, tables: dict[str, bench_tables.Table]) -> None:
    """Exchanges between GPUs, or why they were not measured."""
    st.subheader(t("gpu.table.collectives"), anchor=False)
    through = {row.backend for row in measured.collectives}
    if "gloo" in through | {row.backend for row in measured.layers}:
        st.warning(t("gpu.on_cpu"), icon=":material/memory:")
    if not measured.collectives and not measured.layers:
        reasons = [part for part in measured.skipped if part.what == "collectives"]
        reason = bench_tables.reason(t, reasons[0]) if reasons else t("gpu.skipped.switched_off")
        st.markdown(t("gpu.no_collectives", reason=reason))
        return
    figure = bench_charts.collectives(t, measured)
    if figure is not None:
        parts.chart(t, "bench_collectives_chart", lambda: figure, t("gpu.chart_collectives"))
    for name in ("collectives", "layers"):
        if tables[name]:
            _rows(t, name, tables)


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
                bench_tables.kind_name(t, kernel.facts.kind),
                numbers.duration(best.timing.us),
                t(
                    "gpu.card.kernel.per",
                    fraction=fraction,
                    side=t(f"gpu.side.{kernel.floor.side}"),
                ),
                t(f"gpu.verdict.{best.verdict}") if best.verdict else "",
            )
