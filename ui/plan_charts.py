"""Charts of plans, comparisons and sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

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


def layouts(t: Translator, found: Plan, timed: bool) -> plot.Spec:
    """Requests against a step's time (or what it sends): each row a point, the front a line."""

    def across(row: Row) -> float:
        if timed:
            return float(row.figures.step_us or 0) / 1e3
        return float(row.figures.sent_bytes) / 1e6

    fitting = [row for row in found.rows if not row.lacks]
    groups = (
        ("lacking", [row for row in found.rows if row.lacks], plot.GREY, "x-thin-open", 7),
        ("fitting", [row for row in fitting if not row.front], plot.PALETTE[0], "circle", 8),
        ("front", [row for row in fitting if row.front], plot.PALETTE[5], "star", 12),
    )
    traces = [
        {
            "type": "scatter",
            "name": t(f"plan.chart.{name}"),
            "x": [across(row) for row in rows],
            "y": [row.concurrency for row in rows],
            "mode": "markers",
            "marker": {"color": colour, "symbol": symbol, "size": size},
            "customdata": [_named(row) for row in rows],
            "hovertemplate": "%{customdata}<br>%{x:,.4g} · %{y:,}",
        }
        for name, rows, colour, symbol, size in groups
    ]
    title = t("plan.chart.step" if timed else "plan.chart.sent")
    spread = [across(row) for row in found.rows if across(row) > 0]
    batches = [row.concurrency for row in found.rows if row.concurrency]
    return plot.figure(
        traces,
        hovermode="closest",
        xaxis=_log_where_wide(spread, "", title),
        yaxis=_log_where_wide(batches, "requests", t("plan.chart.batch")) | {"rangemode": "tozero"},
    )


def _named(row: Row) -> str:
    made = row.scenario
    return (
        f"TP {made.tp} DCP {made.dcp} DP {made.dp} PP {made.pp} EP {made.ep}"
        f" {made.engine} {made.kv_dtype}"
    )


def ratios(
    t: Translator, letters: Sequence[str], figures: Mapping[str, Sequence[Number | None]]
) -> plot.Spec:
    """Each figure of each scenario as a multiple of the first one's: bars from 1, one scale."""
    traces = []
    kept = {name: row for name, row in figures.items() if row[0]}
    every = [1.0]
    for at, letter in enumerate(letters):
        values = [
            None if not row[at] else float(row[at] or 0) / float(row[0] or 1)
            for row in kept.values()
        ]
        every += [value for value in values if value]
        traces.append(
            plot.bar(
                letter,
                [None if value is None else value - 1 for value in values],
                list(kept),
                plot.PALETTE[at],
                "%{text}",
                orientation="h",
                base=[1] * len(values),
                text=["" if value is None else f"{value:.3g}×" for value in values],
                textposition="outside",
                cliponaxis=False,
            )
        )
    low, high = min(every) / 3, max(every) * 3
    return plot.figure(
        traces,
        shapes=[plot.vertical(1)],
        barmode="group",
        height=140 + 18 * len(kept) * len(letters),
        hovermode="closest",
        xaxis=plot.log_axis(low, high, lambda tick: f"{tick:g}×", t("plan.compare.ratio")),
        yaxis={"autorange": "reversed"},
    )


def sweep(t: Translator, made: Sweep, worded: dict[str, str], here: Any) -> plot.Spec:
    """Lines over the first input, one a value of the second; a heat map where there are many."""
    first = made.axes[0]
    second = made.axes[1] if len(made.axes) > 1 else None
    unit = worded["output"]
    if made.output.unit != "B":  # bytes are labelled with theirs
        unit = f"{unit} ({made.output.unit})"
    if second is not None and len(second.values) > MOST_LINES:
        return _heat(made, worded, unit)
    traces = []
    columns = [made.values] if second is None else list(made.values.T)
    names = [worded["output"]]
    if second is not None:
        names = [f"{worded[second.name]} {value}" for value in second.values]
    numeric = all(isinstance(value, int | float) for value in first.values)
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        values = [None if value is None else float(value) for value in column.tolist()]
        traces.append(
            {
                "type": "scatter",
                "name": name,
                "x": list(first.values) if numeric else [str(value) for value in first.values],
                "y": values,
                "mode": "lines+markers" if len(values) <= 64 else "lines",
                "line": {"color": plot.PALETTE[at], "width": 2},
                "hovertemplate": "%{y:,.6g}",
            }
        )
    if here is not None and here[0] in first.values:
        traces.append(plot.point(t("plan.sweep.here"), here[0], here[1]))
    counted = "tokens" if first.name in TOKENS else ""
    return plot.figure(
        traces,
        showlegend=len(traces) > 1,
        xaxis=_log_where_wide(first.values if numeric else (), counted, worded[first.name]),
        yaxis=_log_where_wide(_numbers(made), made.output.unit, unit),
    )


def _numbers(made: Sweep) -> list[float]:
    return [float(value) for value in made.values.ravel().tolist() if value is not None]


def _wide(values: Sequence[Any]) -> bool:
    kept = [float(value) for value in values]
    return bool(kept) and min(kept) > 0 and max(kept) > WIDE_RANGE * min(kept)


def _log_where_wide(values: Sequence[Any], unit: str, title: str) -> plot.Spec:
    """A logarithmic axis for values far apart; bytes in the words of bytes in any case."""
    if not values:
        return plot.titled(title)
    low, high = float(min(values)), float(max(values))
    if _wide(values):
        if unit in BYTES:
            return plot.log_axis(low, high, numbers.memory, title)
        if unit == "tokens":
            return plot.log_axis(low, high, lambda value: numbers.tokens(int(value)), title)
        return plot.decimal_axis(low, high, lambda value: f"{value:,g}", title)
    if unit in BYTES and high > 0:
        ticks = [high * at / 4 for at in range(5)]
        return plot.titled(title, rangemode="tozero", **plot.labels(ticks, numbers.memory))
    return plot.titled(title)


def _heat(made: Sweep, worded: dict[str, str], unit: str) -> plot.Spec:
    first, second = made.axes
    every = _numbers(made)
    wide = _wide(every)
    bar = {"title": {"text": unit, "side": "right"}} | _bar(made.output.unit, every, wide)
    rows = made.values.T.tolist()
    heat = {
        "type": "heatmap",
        "x": [_tick(first.name, value) for value in first.values],
        "y": [_tick(second.name, value) for value in second.values],
        "z": [[_height(value, wide) for value in row] for row in rows],
        "customdata": [[shown(value, made.output.unit) for value in row] for row in rows],
        "colorscale": [[at / 9, f"#{index:06d}"] for at, index in enumerate(range(11, 21))],
        "colorbar": bar,
        "hovertemplate": "%{x} · %{y}<br>%{customdata}<extra></extra>",
    }
    return plot.figure(
        [heat],
        hovermode="closest",
        xaxis=plot.titled(worded[first.name], type="category"),
        yaxis=plot.titled(worded[second.name], type="category"),
    )


def _tick(name: str, value: Any) -> str:
    """A value of an input as an axis names it."""
    return numbers.tokens(value) if name in TOKENS and isinstance(value, int) else str(value)


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
    return {"tickvals": ticks, "ticktext": [shown(_whole(value, unit), unit) for value in values]}


def _whole(value: float, unit: str) -> Number:
    """Requests and tokens come whole."""
    return round(value) if unit in ("requests", "tokens") else float(value)


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
