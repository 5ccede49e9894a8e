"""Charts of plans, comparisons and sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from calc.planner import Plan, Row
from calc.sweep import Sweep
from calc.units import Number
from ui import numbers, plot
from ui.text import Translator

MOST_LINES = 8
BYTES = ("B", "B/token")
TOKENS = ("context", "prefill_tokens", "shared_prefix", "window", "state_interval")
WIDE_RANGE = 50
"""From this ratio of the largest to the smallest on, an axis is logarithmic."""


def layouts(t: Translator, found: Plan, timed: bool) -> go.Figure:
    """Requests against a step's time (or what it sends): each row a point, the front a line."""

    def across(row: Row) -> float:
        return float(row.figures.step_us or 0) / 1e3 if timed else float(row.figures.sent_bytes)

    figure = plot.figure()
    fitting = [row for row in found.rows if not row.lacks]
    groups = (
        ("lacking", [row for row in found.rows if row.lacks], plot.GREY, "x-thin-open", 7),
        ("fitting", [row for row in fitting if not row.front], plot.PALETTE[0], "circle", 8),
        ("front", [row for row in fitting if row.front], plot.PALETTE[5], "star", 12),
    )
    for name, rows, colour, symbol, size in groups:
        figure.add_trace(
            go.Scatter(
                name=t(f"plan.chart.{name}"),
                x=[across(row) if timed else across(row) / 1e6 for row in rows],
                y=[row.concurrency for row in rows],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": size},
                customdata=[_named(row) for row in rows],
                hovertemplate="%{customdata}<br>%{x:,.4g} · %{y:,}",
            )
        )
    title = t("plan.chart.step" if timed else "plan.chart.sent")
    figure.update_layout(hovermode="closest", xaxis_title=title, yaxis_title=t("plan.chart.batch"))
    every = [row for row in found.rows if across(row) > 0]
    _log_where_wide(figure, "xaxis", [across(row) / (1 if timed else 1e6) for row in every], "")
    batches = [row.concurrency for row in found.rows if row.concurrency]
    _log_where_wide(figure, "yaxis", batches, "requests")
    return figure


def _named(row: Row) -> str:
    made = row.scenario
    return (
        f"TP {made.tp} DCP {made.dcp} DP {made.dp} PP {made.pp} EP {made.ep}"
        f" {made.engine} {made.kv_dtype}"
    )


def ratios(
    t: Translator, letters: Sequence[str], figures: Mapping[str, Sequence[Number | None]]
) -> go.Figure:
    """Each figure of each scenario as a multiple of the first one's: bars from 1, one scale."""
    figure = plot.figure()
    kept = {name: row for name, row in figures.items() if row[0]}
    every = [1.0]
    for at, letter in enumerate(letters):
        values = [
            None if not row[at] else float(row[at] or 0) / float(row[0] or 1)
            for row in kept.values()
        ]
        every += [value for value in values if value]
        figure.add_trace(
            go.Bar(
                name=letter,
                orientation="h",
                base=[1] * len(values),
                x=[None if value is None else value - 1 for value in values],
                y=list(kept),
                marker_color=plot.PALETTE[at],
                text=["" if value is None else f"{value:.3g}×" for value in values],
                textposition="outside",
                hovertemplate="%{text}",
            )
        )
    plot.log_axis(figure, "xaxis", min(every) / 1.5, max(every) * 1.5, lambda tick: f"{tick:g}×")
    figure.update_layout(
        barmode="group",
        height=140 + 18 * len(kept) * len(letters),
        hovermode="closest",
        xaxis_title=t("plan.compare.ratio"),
        yaxis={"autorange": "reversed"},
    )
    figure.add_vline(x=1, line={"color": plot.GREY, "width": 1.5})
    return figure


def sweep(t: Translator, made: Sweep, worded: dict[str, str], here: Any) -> go.Figure:
    """Lines over the first input, one a value of the second; a heat map where there are many."""
    first = made.axes[0]
    second = made.axes[1] if len(made.axes) > 1 else None
    unit = f"{worded['output']} ({made.output.unit})"
    if second is not None and len(second.values) > MOST_LINES:
        return _heat(made, worded, unit)
    figure = plot.figure()
    columns = [made.values] if second is None else list(made.values.T)
    names = [worded["output"]]
    if second is not None:
        names = [f"{worded[second.name]} {value}" for value in second.values]
    numeric = all(isinstance(value, int | float) for value in first.values)
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        values = [None if value is None else float(value) for value in column.tolist()]
        figure.add_trace(
            go.Scatter(
                name=name,
                x=list(first.values) if numeric else [str(value) for value in first.values],
                y=values,
                mode="lines+markers" if len(values) <= 64 else "lines",
                line={"color": plot.PALETTE[at], "width": 2},
                hovertemplate="%{y:,.6g}",
            )
        )
    if here is not None and here[0] in first.values:
        figure.add_trace(plot.point(t("plan.sweep.here"), here[0], here[1]))
    figure.update_layout(
        xaxis_title=worded[first.name], yaxis_title=unit, showlegend=len(figure.data) > 1
    )
    if numeric:
        _log_where_wide(figure, "xaxis", first.values, "tokens" if first.name in TOKENS else "")
    _log_where_wide(figure, "yaxis", _numbers(made), made.output.unit)
    return figure


def _numbers(made: Sweep) -> list[float]:
    return [float(value) for value in made.values.ravel().tolist() if value is not None]


def _wide(values: Sequence[Any]) -> bool:
    kept = [float(value) for value in values]
    return bool(kept) and min(kept) > 0 and max(kept) > WIDE_RANGE * min(kept)


def _log_where_wide(figure: go.Figure, axis: str, values: Sequence[Any], unit: str) -> None:
    """A logarithmic axis for values far apart; bytes in the words of bytes in any case."""
    if not values:
        return
    low, high = float(min(values)), float(max(values))
    if _wide(values):
        if unit in BYTES:
            plot.log_axis(figure, axis, low, high, numbers.memory)
        elif unit == "tokens":
            plot.log_axis(figure, axis, low, high, lambda value: numbers.tokens(int(value)))
        else:
            plot.decimal_axis(figure, axis, low, high, lambda value: f"{value:,g}")
    elif unit in BYTES and high > 0:
        ticks = [high * at / 4 for at in range(5)]
        worded = [numbers.memory(tick) for tick in ticks]
        figure.update_layout({axis: {"tickvals": ticks, "ticktext": worded, "rangemode": "tozero"}})


def _heat(made: Sweep, worded: dict[str, str], unit: str) -> go.Figure:
    first, second = made.axes
    figure = plot.figure()
    every = _numbers(made)
    wide = _wide(every)
    bar = {"title": {"text": unit, "side": "right"}} | _bar(made.output.unit, every, wide)
    figure.add_trace(
        go.Heatmap(
            x=[str(value) for value in first.values],
            y=[str(value) for value in second.values],
            z=[[_height(value, wide) for value in row] for row in made.values.T.tolist()],
            customdata=[
                [shown(value, made.output.unit) for value in row] for row in made.values.T.tolist()
            ],
            colorscale=[[at / 9, f"#{index:06d}"] for at, index in enumerate(range(11, 21))],
            colorbar=bar,
            hovertemplate="%{x} · %{y}<br>%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(
        hovermode="closest",
        xaxis={"title": worded[first.name], "type": "category"},
        yaxis={"title": worded[second.name], "type": "category"},
    )
    return figure


def _height(value: Any, wide: bool) -> float | None:
    """What a cell's colour says: the value, or its logarithm where values are far apart."""
    if value is None:
        return None
    return math.log10(float(value)) if wide else float(value)


def _bar(unit: str, every: Sequence[float], wide: bool) -> dict[str, Any]:
    """The scale beside a heat map in the words of its unit."""
    if not every:
        return {}
    low, high = (_height(end, wide) or 0.0 for end in (min(every), max(every)))
    ticks = [low + (high - low) * at / 5 for at in range(6)]
    values = [10**tick if wide else tick for tick in ticks]
    return {"tickvals": ticks, "ticktext": [shown(float(value), unit) for value in values]}


def shown(value: Number | None, unit: str) -> str:
    """An output in the words of its unit."""
    if value is None:
        return "–"
    match unit:
        case "sent B":
            return numbers.traffic(value)
        case "B" | "B/token":
            return numbers.memory(value)
        case "µs":
            return f"≈ {numbers.duration(value)}"
        case "tokens/s":
            return f"≈ {numbers.significant(value)}"
        case _:
            return numbers.digits(value) if isinstance(value, int) else numbers.significant(value)
