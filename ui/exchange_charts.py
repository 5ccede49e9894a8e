"""Charts of what DCP trades: time and cache against context, and the roofline."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from calc.exchange import DcpCurve, Exchange, RooflinePoint
from calc.items import Item
from calc.units import Number
from ui import numbers, plot
from ui.text import Translator

WIDE, NARROW = 3, 1.5
TALL = 420
"""Leaves room for a legend that takes several lines on a phone."""


def time_against_context(
    found: Exchange, crossovers: dict[int, float | None], chosen: int, context: int, t: Translator
) -> go.Figure:
    """Attention and DCP communication of a step for each dcp, and where each begins to pay."""
    figure = plot.figure()
    sizes = [int(size) for size in found.curves[0].contexts]
    for place, curve in enumerate(found.curves):
        line = plot.line(
            f"DCP {curve.dcp}",
            sizes,
            [float(value) for value in curve.time],
            _colour(place),
            numbers.duration,
        )
        line.line.width = WIDE if curve.dcp == chosen else NARROW
        figure.add_trace(line)
    one = found.curves[0]
    for place, curve in enumerate(found.curves):
        at = crossovers.get(curve.dcp)
        if at:
            figure.add_trace(_crossing(t, curve, at, one, _colour(place)))
    values = [float(value) for curve in found.curves for value in curve.time]
    here = next(curve for curve in found.curves if curve.dcp == chosen)
    at_context = float(here.time[sizes.index(context)])
    figure.add_trace(
        plot.point(t("chart.here", value=numbers.duration(at_context)), context, at_context)
    )
    plot.context_axis(figure, sizes, t)
    plot.decimal_axis(figure, "yaxis", min(values), max(values), numbers.duration)
    figure.update_layout(yaxis_title=t("chart.time_per_step"))
    return figure


def _crossing(t: Translator, curve: DcpCurve, at: float, one: DcpCurve, colour: str) -> go.Scatter:
    """A mark on the line of DCP 1 where a curve falls below it."""
    place = int((one.contexts <= at).sum()) - 1
    low, high = one.contexts[place], one.contexts[place + 1]
    share = (at - low) / (high - low)
    value = one.time[place] + share * (one.time[place + 1] - one.time[place])
    return go.Scatter(
        name=t("chart.crossover", dcp=curve.dcp, context=numbers.digits(round_tokens(at))),
        x=[round_tokens(at)],
        y=[plot.rounded(float(value))],
        mode="markers",
        marker={
            "color": colour,
            "size": 11,
            "symbol": "circle-open",
            "line": {"width": 3},
        },
        hovertemplate="%{fullData.name}<extra></extra>",
        showlegend=False,
    )


def round_tokens(context: float) -> int:
    """A crossover as it can be known: two digits."""
    return int(float(f"{context:.2g}"))


def cache_against_context(found: Exchange, chosen: int, context: int, t: Translator) -> go.Figure:
    """Cache of one request on a rank for each dcp, in the layers that dcp concerns."""
    figure = plot.figure()
    sizes = [int(size) for size in found.curves[0].contexts]
    for place, curve in enumerate(found.curves):
        line = plot.line(
            f"DCP {curve.dcp}",
            sizes,
            [float(value) for value in curve.kv_bytes],
            _colour(place),
            numbers.memory,
        )
        line.line.width = WIDE if curve.dcp == chosen else NARROW
        figure.add_trace(line)
    here = next(curve for curve in found.curves if curve.dcp == chosen)
    value = float(here.kv_bytes[sizes.index(context)])
    figure.add_trace(plot.point(t("chart.here", value=numbers.memory(value)), context, value))
    values = [float(value) for curve in found.curves for value in curve.kv_bytes]
    plot.context_axis(figure, sizes, t)
    plot.log_axis(figure, "yaxis", min(values), max(values), numbers.memory)
    figure.update_layout(yaxis_title=t("chart.per_request_per_rank"))
    return figure


def _colour(place: int) -> str:
    """One a size; the point of the scenario has the sixth."""
    colours = [colour for index, colour in enumerate(plot.PALETTE) if index != 5]
    return colours[place % len(colours)]


def roofline(
    bend: Item, points: Sequence[RooflinePoint], names: dict[str, str], t: Translator
) -> go.Figure:
    """Decode attention on the roofline; kinds at one place share a mark."""
    figure = plot.figure()
    ridge = float(bend.value)
    rate = float(_plain(bend, "memory_rate"))
    peak = float(_plain(bend, "flop_rate"))
    seen = [float(point.intensity.value) for point in points]
    low, high = min([*seen, ridge]) / 2, max([*seen, ridge]) * 2
    roof = [low, ridge, high]
    figure.add_trace(
        go.Scatter(
            name=t("chart.roof"),
            x=roof,
            y=[plot.rounded(min(size * rate, peak)) for size in roof],
            mode="lines",
            line={"color": plot.GREY, "width": 2},
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            name=t("chart.ridge", ridge=numbers.significant(ridge)),
            x=[ridge, ridge],
            y=[plot.rounded(low * rate), plot.rounded(peak)],
            mode="lines",
            line={"color": plot.GREY, "width": 1.5, "dash": "dash"},
            hoverinfo="skip",
        )
    )
    for place, (name, point) in enumerate(_merged(points, names).items()):
        figure.add_trace(
            go.Scatter(
                name=name,
                x=[plot.rounded(float(point.intensity.value))],
                y=[plot.rounded(float(point.attainable.value))],
                mode="markers",
                marker={
                    "color": plot.PALETTE[place % len(plot.PALETTE)],
                    "size": 13,
                    "symbol": "circle" if point.dcp == 1 else "diamond",
                },
                customdata=[flop_rate(float(point.attainable.value))],
                hovertemplate="%{fullData.name}: %{x:.3g} FLOP/B, %{customdata}<extra></extra>",
            )
        )
    plot.log_axis(figure, "xaxis", low, high, lambda value: f"{value:g}")
    plot.decimal_axis(figure, "yaxis", low * rate, peak * 1.4, flop_rate)
    figure.update_layout(
        xaxis_title=t("chart.intensity"),
        yaxis_title=t("chart.attainable"),
        hovermode="closest",
        height=TALL,
    )
    return figure


def _merged(points: Sequence[RooflinePoint], names: dict[str, str]) -> dict[str, RooflinePoint]:
    """Points by what they are called; those at the same place together."""
    together: dict[tuple[float, int], list[RooflinePoint]] = {}
    for point in points:
        together.setdefault((float(point.intensity.value), point.dcp), []).append(point)
    made = {}
    for (_, dcp), group in together.items():
        kinds = ", ".join(names[point.name] for point in group)
        made[f"{kinds} · DCP {dcp}" if dcp > 1 else kinds] = group[0]
    return made


def _plain(item: Item, name: str) -> Number:
    found = item.arguments[name]
    return found.value if isinstance(found, Item) else found


def flop_rate(value: Number) -> str:
    """Operations a second."""
    for unit, size in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12)):
        if value >= 0.9995 * size:
            return f"{float(f'{value / size:.3g}'):g} {unit}"
    return f"{float(f'{value / 1e9:.3g}'):g} GFLOP/s"
