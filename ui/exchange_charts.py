"""Charts of what DCP trades: time and cache against context, and the roofline."""

from __future__ import annotations

from collections.abc import Sequence

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
) -> plot.Spec:
    """Attention and DCP communication of a step for each dcp, and where each begins to pay."""
    sizes = [int(size) for size in found.curves[0].contexts]
    traces = [
        plot.line(
            f"DCP {curve.dcp}",
            sizes,
            [float(value) for value in curve.time],
            _colour(place),
            numbers.duration,
            WIDE if curve.dcp == chosen else NARROW,
        )
        for place, curve in enumerate(found.curves)
    ]
    one = found.curves[0]
    for place, curve in enumerate(found.curves):
        at = crossovers.get(curve.dcp)
        if at:
            traces.append(_crossing(t, curve, at, one, _colour(place)))
    values = [float(value) for curve in found.curves for value in curve.time]
    here = next(curve for curve in found.curves if curve.dcp == chosen)
    at_context = float(here.time[sizes.index(context)])
    name = t("chart.here", value=numbers.duration(at_context))
    traces.append(plot.point(name, context, at_context))
    title = t("chart.time_per_step")
    return plot.figure(
        traces,
        xaxis=plot.context_axis(sizes, t),
        yaxis=plot.decimal_axis(min(values), max(values), numbers.duration, title),
    )


def _crossing(t: Translator, curve: DcpCurve, at: float, one: DcpCurve, colour: str) -> plot.Spec:
    """A mark on the line of DCP 1 where a curve falls below it."""
    place = int((one.contexts <= at).sum()) - 1
    low, high = one.contexts[place], one.contexts[place + 1]
    share = (at - low) / (high - low)
    value = one.time[place] + share * (one.time[place + 1] - one.time[place])
    name = t("chart.crossover", dcp=curve.dcp, context=numbers.digits(round_tokens(at)))
    mark = {"color": colour, "size": 11, "symbol": "circle-open", "line": {"width": 3}}
    return {
        "type": "scatter",
        "name": name,
        "x": [round_tokens(at)],
        "y": [plot.rounded(float(value))],
        "mode": "markers",
        "marker": mark,
        "hovertemplate": "%{fullData.name}<extra></extra>",
        "showlegend": False,
    }


def round_tokens(context: float) -> int:
    """A crossover as it can be known: two digits."""
    return int(float(f"{context:.2g}"))


def cache_against_context(found: Exchange, chosen: int, context: int, t: Translator) -> plot.Spec:
    """Cache of one request on a rank for each dcp, in the layers that dcp concerns."""
    sizes = [int(size) for size in found.curves[0].contexts]
    traces = [
        plot.line(
            f"DCP {curve.dcp}",
            sizes,
            [float(value) for value in curve.kv_bytes],
            _colour(place),
            numbers.memory,
            WIDE if curve.dcp == chosen else NARROW,
        )
        for place, curve in enumerate(found.curves)
    ]
    here = next(curve for curve in found.curves if curve.dcp == chosen)
    value = float(here.kv_bytes[sizes.index(context)])
    traces.append(plot.point(t("chart.here", value=numbers.memory(value)), context, value))
    values = [float(value) for curve in found.curves for value in curve.kv_bytes]
    title = t("chart.per_request_per_rank")
    return plot.figure(
        traces,
        xaxis=plot.context_axis(sizes, t),
        yaxis=plot.log_axis(min(values), max(values), numbers.memory, title),
    )


def _colour(place: int) -> str:
    """One a size; the point of the scenario has the sixth."""
    colours = [colour for index, colour in enumerate(plot.PALETTE) if index != 5]
    return colours[place % len(colours)]


def roofline(
    bend: Item, points: Sequence[RooflinePoint], names: dict[str, str], t: Translator
) -> plot.Spec:
    """Decode attention on the roofline; kinds at one place share a mark."""
    ridge = float(bend.value)
    rate = float(_plain(bend, "memory_rate"))
    peak = float(_plain(bend, "flop_rate"))
    seen = [float(point.intensity.value) for point in points]
    low, high = min([*seen, ridge]) / 2, max([*seen, ridge]) * 2
    roof = [low, ridge, high]
    grey = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    traces: list[plot.Spec] = [
        grey
        | {
            "name": t("chart.roof"),
            "x": roof,
            "y": [plot.rounded(min(size * rate, peak)) for size in roof],
            "line": {"color": plot.GREY, "width": 2},
        },
        grey
        | {
            "name": t("chart.ridge", ridge=numbers.significant(ridge)),
            "x": [ridge, ridge],
            "y": [plot.rounded(low * rate), plot.rounded(peak)],
            "line": {"color": plot.GREY, "width": 1.5, "dash": "dash"},
        },
    ]
    for place, (name, point) in enumerate(_merged(points, names).items()):
        attainable = float(point.attainable.value)
        traces.append(
            {
                "type": "scatter",
                "name": name,
                "x": [plot.rounded(float(point.intensity.value))],
                "y": [plot.rounded(attainable)],
                "mode": "markers",
                "marker": {
                    "color": plot.PALETTE[place % len(plot.PALETTE)],
                    "size": 13,
                    "symbol": "circle" if point.dcp == 1 else "diamond",
                },
                "customdata": [flop_rate(attainable)],
                "hovertemplate": "%{fullData.name}: %{x:.3g} FLOP/B, %{customdata}<extra></extra>",
            }
        )
    return plot.figure(
        traces,
        xaxis=plot.log_axis(low, high, lambda value: f"{value:g}", t("chart.intensity")),
        yaxis=plot.decimal_axis(low * rate, peak * 1.4, flop_rate, t("chart.attainable")),
        hovermode="closest",
        height=TALL,
    )


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
