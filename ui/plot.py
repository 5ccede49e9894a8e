"""Pieces of a chart: frame, line, mark, axes.

Colours are indices into the theme's palette, written as Streamlit's own Plotly template writes its
n-th colour; so they follow light and dark, and no colour stands in the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import plotly.graph_objects as go

from calc.units import Number
from ui import numbers
from ui.text import Translator

PALETTE = [f"#{index:06d}" for index in range(1, 11)]
GREY = "#000036"
HEIGHT = 360


LAYOUT = {
    "height": HEIGHT,
    "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
    "legend": {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "traceorder": "normal",
        "title": {"text": ""},
    },
    "hovermode": "x unified",
    "xaxis": {"automargin": True, "fixedrange": True},
    "yaxis": {"automargin": True, "fixedrange": True},
}


def figure() -> go.Figure:
    """An empty chart; its layout is given at once, which is seven times as fast as updating it."""
    return go.Figure(layout=LAYOUT)


def line(
    name: str,
    sizes: Sequence[int],
    values: Iterable[Number | None],
    colour: str,
    worded: Callable[[Number], str],
    width: int = 2,
) -> go.Scatter:
    kept = list(values)
    return go.Scatter(
        name=name,
        x=sizes,
        y=[None if value is None else rounded(value) for value in kept],
        mode="lines",
        line={"color": colour, "width": width},
        customdata=["" if value is None else worded(value) for value in kept],
        hovertemplate="%{customdata}",
    )


def limit(name: str, x: list[int], y: Number) -> go.Scatter:
    """A dashed line across the chart, named where it begins."""
    return go.Scatter(
        x=x,
        y=[rounded(y)] * 2,
        mode="lines+text",
        line={"color": GREY, "width": 1.5, "dash": "dash"},
        text=[name, ""],
        textposition="top right",
        hoverinfo="skip",
        showlegend=False,
    )


def point(name: str, x: int, y: Number) -> go.Scatter:
    """Where the user stands, named in the legend, where it covers no line."""
    return go.Scatter(
        name=name,
        x=[x],
        y=[rounded(y)],
        mode="markers",
        marker={"color": PALETTE[5], "size": 11, "symbol": "diamond"},
        hoverinfo="skip",
    )


def context_axis(figure: go.Figure, sizes: Sequence[int], t: Translator) -> None:
    log_axis(figure, "xaxis", sizes[0], sizes[-1], numbers.tokens)
    figure.update_layout(xaxis_title=t("chart.context"))


def log_axis(
    figure: go.Figure, axis: str, low: Number, high: Number, worded: Callable[[Number], str]
) -> None:
    """A logarithmic axis with labels at powers of two, at most eight of them."""
    first = math.floor(math.log2(low))
    last = max(first + 1, math.ceil(math.log2(high)))
    apart = next(step for step in (1, 2, 3, 4, 5, 10, 20) if (last - first) / step <= 7)
    ticks = [2**power for power in range(first, last + 1, apart)]
    margin = 0.02 * max(last - first, 1)
    figure.update_layout(
        {
            axis: {
                "type": "log",
                "range": [math.log10(2) * (first - margin), math.log10(2) * (last + margin)],
                "tickvals": ticks,
                "ticktext": [worded(tick) for tick in ticks],
                "minor": {"ticks": ""},
            }
        }
    )


def decimal_axis(
    figure: go.Figure, axis: str, low: Number, high: Number, worded: Callable[[Number], str]
) -> None:
    """A logarithmic axis for what is counted in tens: labels at 1, 10, 100, or at 2 and 5 too."""
    first, last = math.log10(low), math.log10(high)
    steps = (1, 2, 5) if last - first <= 2.5 else (1,)
    powers = range(math.floor(first), math.ceil(last) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    margin = 0.04 * max(last - first, 0.5)
    ends = (first - margin, last + margin)
    kept = [tick for tick in ticks if ends[0] <= math.log10(tick) <= ends[1]]
    figure.update_layout(
        {
            axis: {
                "type": "log",
                "range": [ends[0], ends[1]],
                "tickvals": kept,
                "ticktext": [worded(tick) for tick in kept],
                "minor": {"ticks": ""},
            }
        }
    )


def rounded(value: Number) -> Number:
    """Six digits: a change that a reader could not see sends an identical chart."""
    return float(f"{value:.6g}")
