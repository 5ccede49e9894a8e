"""Pieces of a chart: frame, line, mark, axes, each as the dict that Plotly reads.

Plain dicts are validated once, when Streamlit draws them: half the time of ``graph_objects``.

Colours are indices into the theme's palette, written as Streamlit's own Plotly template writes its
n-th colour; so they follow light and dark, and no colour stands in the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from calc.units import Number
from ui import numbers
from ui.text import Translator

Spec = dict[str, Any]
"""A figure, a trace, an axis or a shape."""

PALETTE = [f"#{index:06d}" for index in range(1, 11)]
GREY, INK = "#000036", "#000037"
"""Lines; and words, which Streamlit's own template writes too pale to be read with ease."""
HEIGHT = 360
TITLE, LETTER = 36, 7
"""Pixels of an axis title with the space around it, and of a letter of a label."""


AXIS: Spec = {"automargin": True, "fixedrange": True, "tickfont": {"color": INK}}
LAYOUT: Spec = {
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
        "font": {"color": INK},
    },
    "font": {"color": INK},
    "hovermode": "x unified",
    "xaxis": AXIS,
    "yaxis": AXIS,
}


def figure(traces: Iterable[Spec], **layout: Any) -> Spec:
    """A chart; what is said of an axis adds to what every axis is."""
    made: Spec = dict(LAYOUT)
    for name, value in layout.items():
        frame = LAYOUT.get(name)
        made[name] = frame | value if isinstance(frame, dict) else value
    if "ticktext" in made["xaxis"] and "ticktext" in made["yaxis"]:
        _fix_margins(made)
    return {"data": list(traces), "layout": made}


def _fix_margins(layout: Spec) -> None:
    """Room for labels that are known; Plotly draws a chart twice to find out how wide they are."""
    widest = max(map(len, layout["yaxis"]["ticktext"]), default=0)
    layout["margin"] = {"l": TITLE + LETTER * widest, "r": 12, "t": 40, "b": 52}
    for name in ("xaxis", "yaxis"):
        layout[name] = layout[name] | {"automargin": False}


def bar(
    name: str, x: Sequence[Any], y: Sequence[Any], colour: str, hover: str, **more: Any
) -> Spec:
    """Bars of one colour without an outline."""
    return {
        "type": "bar",
        "name": name,
        "x": x,
        "y": y,
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": hover,
    } | more


def line(
    name: str,
    sizes: Sequence[int],
    values: Iterable[Number | None],
    colour: str,
    worded: Callable[[Number], str],
    width: float = 2,
) -> Spec:
    kept = list(values)
    return {
        "type": "scatter",
        "name": name,
        "x": sizes,
        "y": [None if value is None else rounded(value) for value in kept],
        "mode": "lines",
        "line": {"color": colour, "width": width},
        "customdata": ["" if value is None else worded(value) for value in kept],
        "hovertemplate": "%{customdata}",
    }


def limit(name: str, x: list[int], y: Number) -> Spec:
    """A dashed line across the chart, named where it begins."""
    return {
        "type": "scatter",
        "x": x,
        "y": [rounded(y)] * 2,
        "mode": "lines+text",
        "line": {"color": GREY, "width": 1.5, "dash": "dash"},
        "text": [name, ""],
        "textposition": "top right",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def point(name: str, x: int, y: Number) -> Spec:
    """Where the user stands, named in the legend, where it covers no line."""
    return {
        "type": "scatter",
        "name": name,
        "x": [x],
        "y": [rounded(y)],
        "mode": "markers",
        "marker": {"color": PALETTE[5], "size": 11, "symbol": "diamond"},
        "hoverinfo": "skip",
    }


def vertical(x: Number, width: float = 1.5, dash: str = "solid") -> Spec:
    """A line over the whole height of the chart."""
    stroke = {"color": GREY, "width": width, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "yref": "y domain", "y0": 0, "y1": 1, "line": stroke}


def titled(text: str, **axis: Any) -> Spec:
    """An axis with words beside it."""
    return {"title": {"text": text, "font": {"color": INK}}} | axis


def context_axis(sizes: Sequence[int], t: Translator) -> Spec:
    return log_axis(sizes[0], sizes[-1], numbers.tokens, t("chart.context"))


def log_axis(low: Number, high: Number, worded: Callable[[Number], str], title: str) -> Spec:
    """A logarithmic axis with labels at powers of two, at most eight of them."""
    first = math.floor(math.log2(low))
    last = max(first + 1, math.ceil(math.log2(high)))
    apart = next(step for step in (1, 2, 3, 4, 5, 10, 20) if (last - first) / step <= 7)
    ticks = [2**power for power in range(first, last + 1, apart)]
    margin = 0.02 * max(last - first, 1)
    ends = [math.log10(2) * (first - margin), math.log10(2) * (last + margin)]
    return titled(title, type="log", range=ends, **labels(ticks, worded))


def decimal_axis(low: Number, high: Number, worded: Callable[[Number], str], title: str) -> Spec:
    """A logarithmic axis for what is counted in tens: labels at 1, 10, 100, or at 2 and 5 too."""
    first, last = math.log10(low), math.log10(high)
    steps = (1, 2, 5) if last - first <= 2.5 else (1,)
    powers = range(math.floor(first), math.ceil(last) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    margin = 0.04 * max(last - first, 0.5)
    ends = [first - margin, last + margin]
    kept = [tick for tick in ticks if ends[0] <= math.log10(tick) <= ends[1]]
    return titled(title, type="log", range=ends, **labels(kept, worded))


def labels(ticks: Sequence[Number], worded: Callable[[Any], str]) -> Spec:
    """Labels at chosen places and nowhere else."""
    words = [worded(tick) for tick in ticks]
    return {"tickvals": ticks, "ticktext": words, "minor": {"ticks": ""}}


def rounded(value: Number) -> Number:
    """Six digits: a change that a reader could not see sends an identical chart."""
    return float(f"{value:.6g}")
