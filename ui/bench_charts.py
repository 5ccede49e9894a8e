"""A benchmark result as charts: measured beside predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from calc.calibration import Compared, compared_collective
from calc.measured import Measured
from ui import numbers, plot
from ui.bench_tables import kind_name, plain, stage_name, title
from ui.text import Translator


def kernels(t: Translator, rows: Sequence[Compared]) -> plot.Spec:
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
    return plot.figure(
        _beside(t, names, measured, bars, {"measured": spread}),
        barmode="group",
        yaxis=plot.titled(t("gpu.axis"), tickformat=".0%", rangemode="tozero"),
    )


def _beside(
    t: Translator,
    names: Sequence[str],
    measured: Sequence[float],
    bars: Mapping[str, Sequence[float | None]],
    spreads: Mapping[str, dict[str, Any]],
) -> list[plot.Spec]:
    """Grouped bars, each over the measured time of its place."""
    traces = []
    order = ("floor", "measured", "predicted", "calibrated")
    for name, values in bars.items():
        if not any(values):
            continue
        traces.append(
            plot.bar(
                title(t(f"gpu.bar.{name}")),
                names,
                [us and us / base for us, base in zip(values, measured, strict=True)],
                plot.PALETTE[order.index(name)],
                "%{text} (%{y:.0%})",
                text=["" if us is None else numbers.duration(us) for us in values],
                textposition="inside",
                insidetextanchor="end",
                textangle=0,
                error_y=spreads.get(name),
            )
        )
    return traces


def collectives(t: Translator, measured: Measured) -> plot.Spec | None:
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
    # from left to right, so that many long names have room; the first on top
    lying = [
        bar
        | {"orientation": "h", "x": bar["y"], "y": bar["x"], "hovertemplate": "%{text} (%{x:.0%})"}
        for bar in _beside(t, names, measured_us, bars, {})
    ]
    return plot.figure(
        lying,
        barmode="group",
        height=90 + 58 * len(names),
        hovermode="y unified",
        xaxis=plot.titled(t("gpu.axis"), tickformat=".0%", rangemode="tozero"),
        yaxis={"autorange": "reversed"},
    )
