"""A benchmark result as a chart and tables. Its texts may be a stranger's: plain text only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from calc.calibration import Compared
from calc.measured import AttentionFacts, KernelResult, Measured
from calc.units import Number
from ui import numbers
from ui.plot import PALETTE
from ui.plot import figure as empty_figure
from ui.text import Translator

Table = list[dict[str, Any]]
UNSAFE = re.compile(r"[^\w .,()+/:-]")


def plain(text: str) -> str:
    """A name from a result without anything that Markdown or a chart would interpret."""
    return UNSAFE.sub("", text)[:80]


def time_text(us: Number) -> str:
    """A time in µs or ms with three digits.

    >>> time_text(3254.3), time_text(28.83)
    ('3.25 ms', '28.8 µs')
    """
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def chart(t: Translator, rows: Sequence[Compared]) -> go.Figure:
    """Bars in µs: the floor, measured (with its slowest and fastest block), predictions."""
    names = [f"{t(f'kind.{row.kind}.short')}<br>{plain(row.backend)}" for row in rows]
    figure = empty_figure()
    bars: dict[str, list[float | None]] = {
        "floor": [row.floor_us for row in rows],
        "measured": [row.measured_us for row in rows],
        "predicted": [row.predicted_us for row in rows],
        "calibrated": [row.calibrated_us for row in rows],
    }
    for (name, values), colour in zip(bars.items(), PALETTE, strict=False):
        if any(value is not None for value in values):
            spread = _spread(rows) if name == "measured" else None
            figure.add_bar(
                name=t(f"gpu.bar.{name}"),
                x=names,
                y=values,
                marker_color=colour,
                error_y=spread,
                hovertemplate="%{y:.4g} µs",
            )
    figure.update_layout(barmode="group", yaxis_title=t("gpu.axis"))
    if rows and max(row.measured_us for row in rows) > 20 * min(row.floor_us for row in rows):
        figure.update_yaxes(type="log")
    return figure


def _spread(rows: Sequence[Compared]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [row.slowest_us - row.measured_us for row in rows],
        "arrayminus": [row.measured_us - row.fastest_us for row in rows],
    }


def tables(t: Translator, measured: Measured, rows: Sequence[Compared]) -> dict[str, Table]:
    """All tables of a result by name; those without rows are empty."""
    return {
        "compared": [_compared(t, row) for row in rows],
        "backends": [row for kernel in measured.kernels for row in _backends(t, kernel)],
        "stages": _stages(t, measured),
        "merge": _merge(t, measured),
        "memory": _memory(t, measured),
        "collectives": _collectives(t, measured),
        "skipped": [
            {t("gpu.column.what"): part.what, t("gpu.column.reason"): part.reason}
            for part in measured.skipped
        ],
    }


def _compared(t: Translator, row: Compared) -> dict[str, Any]:
    return {
        t("column.kind"): t(f"kind.{row.kind}.short"),
        t("gpu.column.measured"): time_text(row.measured_us),
        t("gpu.bar.floor"): time_text(row.floor_us),
        t("gpu.bar.predicted"): _predicted(row.predicted_us, row.error),
        t("gpu.bar.calibrated"): _predicted(row.calibrated_us, row.calibrated_error),
    }


def _predicted(us: float | None, error: float | None) -> str:
    return "–" if us is None or error is None else f"{time_text(us)} ({error:+.0%})"


def _backends(t: Translator, kernel: KernelResult) -> Table:
    return [
        {
            t("column.kind"): t(f"kind.{kernel.facts.kind}.short"),
            t("gpu.column.shape"): shape_text(t, kernel),
            t("gpu.column.backend"): row.name,
            t("gpu.column.measured"): time_text(row.timing.us) if row.timing else "–",
            t("gpu.column.fraction"): "–" if row.fraction is None else f"{row.fraction:.2f}",
            t("gpu.column.tile_fraction"): (
                "–" if row.tile_fraction is None else f"{row.tile_fraction:.2f}"
            ),
            t("gpu.column.error"): "–" if row.out_error is None else f"{row.out_error:.1e}",
            t("gpu.column.verdict"): (
                t(f"gpu.verdict.{row.verdict}.short")
                if row.verdict
                else t(f"gpu.status.{row.status}", reason=row.reason or "")
            ),
        }
        for row in kernel.backends
    ]


def shape_text(t: Translator, kernel: KernelResult) -> str:
    """A kernel's shape in a few words; the tokens of the scenario where fewer were measured."""
    facts = kernel.facts
    if not isinstance(facts, AttentionFacts):
        words = (facts.heads, facts.key_dim, facts.value_dim)
        return t("gpu.shape.state", batch=facts.batch, size="×".join(map(str, words)))
    shape = t(
        "gpu.shape.attention",
        batch=facts.batch,
        tokens=numbers.digits(facts.tokens),
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        width=facts.k_dim,
    )
    if facts.tokens == facts.wanted_tokens:
        return shape
    return f"{shape} {t('gpu.shape.wanted', tokens=numbers.digits(facts.wanted_tokens))}"


def _stages(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("gpu.column.stage"): t.get(f"stage.{row.name}", row.name),
            t("gpu.column.measured"): time_text(row.timing.us) if row.timing else "–",
            t("gpu.bar.floor"): time_text(row.floor_us) if row.floor_us else "–",
        }
        for row in measured.stages
    ]


def _merge(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("gpu.column.parts"): row.parts,
            t("gpu.column.measured"): time_text(row.timing.us),
            t("gpu.bar.floor"): time_text(row.floor_us),
            t("gpu.column.error"): f"{row.merge_error:.1e}",
            t("gpu.column.plain_mean"): f"{row.plain_mean_error:.1e}",
            t("gpu.column.stripes"): (
                "–" if row.stripes_error is None else f"{row.stripes_error:.1e}"
            ),
        }
        for row in measured.merge
    ]


def _memory(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("column.kind"): t(f"kind.{row.kind}.short"),
            t("gpu.column.predicted_bytes"): numbers.exact(row.predicted_bytes),
            t("gpu.column.allocated_bytes"): numbers.exact(row.allocated_bytes),
            t("gpu.column.within"): t("gpu.yes" if row.within else "gpu.no"),
        }
        for row in measured.memory
    ]


def _collectives(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("gpu.column.stage"): row.name,
            t("gpu.column.collective"): row.collective,
            t("gpu.column.ranks"): row.ranks,
            t("gpu.column.payload"): numbers.traffic(row.payload_bytes),
            t("gpu.column.measured"): time_text(row.timing.us) if row.timing else "–",
            t("gpu.column.bus"): (
                "–" if row.bus_bytes_per_s is None else f"{row.bus_bytes_per_s / 1e9:.1f} GB/s"
            ),
        }
        for row in measured.collectives
    ]
