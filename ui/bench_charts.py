"""A benchmark result as charts: measured beside predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from calc.calibration import Compared, compared_collective
from calc.measured import Measured
from ui import numbers
from ui.bench_tables import kind_name, plain, stage_name, title
from ui.plot import PALETTE
from ui.plot import figure as empty_figure
from ui.text import Translator


def kernels(t: Translator, rows: Sequence[Compared]) -> go.Figure:
    """Bars for each kernel as shares of its measured time, labelled with the times themselves.

    Kernels differ a hundredfold: on one linear axis of times the short ones would vanish, and on a
    logarithmic one lengths of bars would say nothing.
    """
    names = [f"{kind_name(t, row.kind)}<br>{plain(row.backend)}" for row in rows]
    measured = [row.measured_us for row in rows]
    bars: dict[str, list[float | None]] = {
        "floor": [row.floor_us for row in rows],
        "measured": list(measured),
        "predicted": [row.predicted_us for row in rows],
        "calibrated": [row.calibrated_us for row in rows],
    }
    spread = {
        "type": "data",
        "symmetric": False,
        "array": [row.slowest_us / row.measured_us - 1 for row in rows],
        "arrayminus": [1 - row.fastest_us / row.measured_us for row in rows],
    }
    return _beside(t, names, measured, bars, {"measured": spread})


def _beside(
    t: Translator,
    names: Sequence[str],
    measured: Sequence[float],
    bars: Mapping[str, Sequence[float | None]],
    spreads: Mapping[str, dict[str, Any]],
) -> go.Figure:
    """Grouped bars, each over the measured time of its place."""
    figure = empty_figure()
    order = ("floor", "measured", "predicted", "calibrated")
    for name, values in bars.items():
        if not any(values):
            continue
        figure.add_bar(
            name=title(t(f"gpu.bar.{name}")),
            x=names,
            y=[us and us / base for us, base in zip(values, measured, strict=True)],
            text=["" if us is None else numbers.duration(us) for us in values],
            textposition="inside",
            insidetextanchor="end",
            textangle=0,
            marker_color=PALETTE[order.index(name)],
            error_y=spreads.get(name),
            hovertemplate="%{text} (%{y:.0%})",
        )
    figure.update_layout(
        barmode="group", yaxis_title=t("gpu.axis"), yaxis_tickformat=".0%", yaxis_rangemode="tozero"
    )
    return figure


def collectives(t: Translator, measured: Measured) -> go.Figure | None:
    """Bars of what has both a measured and a predicted time; None without any."""
    found = [(row, compared_collective(measured, row)) for row in measured.collectives]
    rows = [(row, pair) for row, pair in found if pair is not None and pair.predicted_us]
    if not rows:
        return None
    names = [
        "<br>".join([*wrap(stage_name(t, row.name), 18), numbers.traffic(row.payload_bytes)])
        for row, _ in rows
    ]
    measured_us = [pair.measured_us for _, pair in rows]
    bars: dict[str, list[float | None]] = {
        "measured": list(measured_us),
        "predicted": [pair.predicted_us for _, pair in rows],
    }
    return _lying(_beside(t, names, measured_us, bars, {}))


def _lying(figure: go.Figure) -> go.Figure:
    """Bars from left to right, so that many long names have room; the first on top."""
    for bar in figure.data:
        bar.update(
            orientation="h", x=bar.y, y=bar.x, textangle=0, hovertemplate="%{text} (%{x:.0%})"
        )
    figure.update_layout(
        height=90 + 58 * len(figure.data[0].y),
        hovermode="y unified",
        xaxis_title=figure.layout.yaxis.title.text,
        xaxis_tickformat=".0%",
        xaxis_rangemode="tozero",
        yaxis_title=None,
        yaxis_tickformat="",
        yaxis_autorange="reversed",
    )
    return figure
