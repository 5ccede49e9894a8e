"""Charts of the Reuse view: which chunks are there, snapshots, loading against computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from calc.checkpoints import Interval
from calc.layers import Growth
from calc.reuse import GroupHit, Hit
from calc.storage import LoadPoint
from ui import numbers, plot
from ui.text import Translator

MOST_CELLS = 400
"""Chunks drawn one by one; longer strips are drawn as runs of equal chunks."""
COLOURS = {
    "needed": plot.PALETTE[0],
    "spare": plot.PALETTE[8],
    "gone": plot.PALETTE[1],
    "blocking": plot.PALETTE[5],
}
ROW_PIXELS, FRAME_PIXELS = 62, 120


def strips(t: Translator, hit: Hit, labels: Mapping[str, str]) -> plot.Spec:
    """A row for each group, a cell for each chunk; where the usable prefix ends."""
    traces = []
    cells = [(one, *cell) for one in hit.groups for cell in _cells(one, hit)]
    for status, colour in COLOURS.items():
        chosen = [cell for cell in cells if cell[3] == status]
        if not chosen:
            continue
        traces.append(
            plot.bar(
                t(f"reuse.chunk.{status}"),
                [(end - first) * one.group.chunk for one, first, end, _ in chosen],
                [labels[one.group.id] for one, *_ in chosen],
                colour,
                "%{text}<extra></extra>",
                orientation="h",
                base=[first * one.group.chunk for one, first, _, _ in chosen],
                width=0.55,
                marker={"color": colour, "line": {"width": 0.6, "color": "rgba(128,128,128,0.6)"}},
                customdata=[[one.group.id, first, end] for one, first, end, _ in chosen],
                text=[_hover(t, one, first, end) for one, first, end, _ in chosen],
                textposition="none",
            )
        )
    return plot.figure(
        traces,
        shapes=[plot.vertical(hit.tokens, 2, "dash")],
        barmode="overlay",
        height=FRAME_PIXELS + ROW_PIXELS * len(hit.groups),
        hovermode="closest",
        dragmode=False,
        xaxis=plot.titled(t("reuse.axis"), range=[0, hit.prefix * 1.01], tickformat=",d"),
        yaxis={"autorange": "reversed"},
    )


def _cells(one: GroupHit, hit: Hit) -> list[tuple[int, int, str]]:
    """(first chunk, end, status); neighbours of one status are joined in a long strip."""
    count = one.group.chunks(hit.prefix)
    gone = one.missing
    stop = hit.blocking if hit.binding == one.group.id else None

    def status(chunk: int) -> str:
        if chunk == stop:
            return "blocking"
        if chunk in gone:
            return "gone"
        return "needed" if chunk in one.needed else "spare"

    if count <= MOST_CELLS:
        return [(chunk, chunk + 1, status(chunk)) for chunk in range(count)]
    edges = {0, count, one.needed.start, one.needed.stop}
    edges |= {edge for run in gone.runs for edge in (run.start, run.stop)}
    edges |= set() if stop is None else {stop, stop + 1}
    kept = sorted(edge for edge in edges if 0 <= edge <= count)
    runs: list[tuple[int, int, str]] = []
    for first, end in pairwise(kept):
        if runs and runs[-1][2] == status(first):
            runs[-1] = (runs[-1][0], end, runs[-1][2])
        else:
            runs.append((first, end, status(first)))
    return runs


def _hover(t: Translator, one: GroupHit, first: int, end: int) -> str:
    size = one.group.chunk
    if one.group.growth is Growth.STATE:
        return t("reuse.hover_state", chunk=numbers.digits(first), at=numbers.digits(end * size))
    which = numbers.digits(first) if end == first + 1 else f"{first:,}–{end - 1:,}"
    return t(
        "reuse.hover",
        chunk=which,
        start=numbers.digits(first * size),
        end=numbers.digits(end * size),
    )


def snapshots(t: Translator, intervals: Sequence[Interval], chosen: Interval) -> plot.Spec:
    """What an interval costs: computing again, writing, and both; the cheapest is marked."""
    sizes = [one.tokens for one in intervals]
    written = [_written(one) for one in intervals]
    costs = [float(one.cost.value) for one in intervals]
    lines = (
        ("recompute", [cost - write for cost, write in zip(costs, written, strict=True)], 0),
        ("write", written, 1),
        ("both", costs, 6),
    )
    traces = [
        plot.line(
            t(f"reuse.cost.{name}"),
            sizes,
            values,
            plot.PALETTE[colour],
            numbers.duration,
            3 if name == "both" else 2,
        )
        for name, values, colour in lines
    ]
    label = t("reuse.best", interval=numbers.digits(chosen.tokens))
    traces.append(plot.point(label, chosen.tokens, chosen.cost.value))
    last, most = max(sizes[-1], sizes[0] + 1), max(costs)
    low = max(min(value for value in [*costs, *written] if value > 0), most / 1e5)
    return plot.figure(
        traces,
        xaxis=plot.log_axis(sizes[0], last, numbers.tokens, t("reuse.interval")),
        yaxis=plot.log_axis(low, most, numbers.duration, t("reuse.cost_axis")),
    )


def _written(one: Interval) -> float:
    arguments = one.cost.arguments
    return float(one.storage.value) / float(arguments["link_rate"]) * 1e6  # type: ignore[arg-type]


def loading(t: Translator, points: Mapping[str, Sequence[LoadPoint]], here: LoadPoint) -> plot.Spec:
    """Time to load from each tier and time to compute, against the prefix."""
    every = next(iter(points.values()))
    sizes = [point.tokens for point in every]
    computed = [float(point.recomputed.value) for point in every]
    traces = [plot.line(t("reuse.compute"), sizes, computed, plot.PALETTE[6], numbers.duration, 3)]
    seen = [value for value in computed if value > 0]
    for place, (tier, row) in enumerate(points.items()):
        values = [float(point.loaded.value) for point in row]
        seen += [value for value in values if value > 0]
        traces.append(
            plot.line(t(f"reuse.tier.{tier}"), sizes, values, plot.PALETTE[place], numbers.duration)
        )
    name = t("reuse.here", tokens=numbers.tokens(here.tokens))
    traces.append(plot.point(name, here.tokens, here.recomputed.value))
    low, high = min(seen), max(seen)
    return plot.figure(
        traces,
        xaxis=plot.log_axis(sizes[0], sizes[-1], numbers.tokens, t("reuse.prefix")),
        yaxis=plot.log_axis(low, high, numbers.duration, t("reuse.time_axis")),
    )
