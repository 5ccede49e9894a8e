"""Report -> figure, one function a chart; the same component has the same colour in each."""

from __future__ import annotations

import math
from collections.abc import Callable

from calc.capacity import Component, request_bytes, requests_that_fit
from calc.layers import Growth
from calc.report import Report
from calc.units import Number
from ui import numbers, plot
from ui.text import Translator

HEIGHT, PALETTE = plot.HEIGHT, plot.PALETTE
STEPS_AN_OCTAVE = 2
LEAST_CONTEXT, MOST_CONTEXT = 2**10, 2**20

GROUPS = ("one_copy", "replicated", "window", "state")
"""What the cache chart tells apart; the place is the colour."""
TOTAL_COLOUR, FIRST_COLOUR, SECOND_COLOUR = PALETTE[6], PALETTE[0], PALETTE[1]


def group_of(part: Component) -> str:
    """The line of the cache chart that a component belongs to."""
    if part.growth is Growth.STATE:
        return "state"
    if part.growth is not Growth.GROWING:
        return "window"
    return "replicated" if part.store.copies > 1 else "one_copy"


def cache_against_context(report: Report, t: Translator) -> plot.Spec:
    """Bytes of one request on the fullest rank, by what grows how; where the user stands."""
    scenario = report.scenario
    sizes = contexts(report)
    parts = report.cache.stage.components
    traces: list[plot.Spec] = []
    lines: list[list[Number]] = []
    for group, colour in zip(GROUPS, PALETTE, strict=False):
        chosen = [part for part in parts if group_of(part) == group]
        if chosen:
            values = [sum(part_bytes(part, size) for part in chosen) for size in sizes]
            lines.append(values)
            traces.append(plot.line(t(f"chart.{group}"), sizes, values, colour, numbers.memory))
    if len(lines) > 1:
        totals = [sum(column) for column in zip(*lines, strict=True)]
        traces.append(plot.line(t("chart.total"), sizes, totals, TOTAL_COLOUR, numbers.memory, 3))
        lines.append(totals)
    share = report.fit.budget_bytes / scenario.batch
    if share:
        name = t("chart.share", share=numbers.memory(share))
        traces.append(plot.limit(name, [sizes[0], sizes[-1]], share))
    value = report.cache.stage.per_request.value
    traces.append(plot.point(numbers.memory(value), scenario.context, value))
    seen = [value for value in [share, *(value for line in lines for value in line)] if value]
    title = t("chart.per_request_per_rank")
    return plot.figure(
        traces,
        xaxis=plot.context_axis(sizes, t),
        yaxis=plot.log_axis(min(seen), max(seen), numbers.memory, title),
    )


def batch_against_context(report: Report, without_dcp: Report | None, t: Translator) -> plot.Spec:
    """The largest batch at every context, with dcp and without, and the chosen point."""
    sizes = contexts(report)
    budget = report.fit.budget_bytes
    scenario = report.scenario
    traces: list[plot.Spec] = []
    curves = [(report, f"DCP {scenario.dcp}", FIRST_COLOUR, 3)]
    if without_dcp is not None:
        curves.append((without_dcp, "DCP 1", SECOND_COLOUR, 2))
    most = [scenario.batch]
    for shown, name, colour, width in curves:
        weights = [request_bytes(shown.cache, size) for size in sizes]
        whole = [requests_that_fit(budget, weight) for weight in weights]
        most += whole
        smooth = [
            budget / weight if fits else None for weight, fits in zip(weights, whole, strict=True)
        ]
        line = plot.line(name, sizes, smooth, colour, numbers.digits, width)
        traces.append(line | {"customdata": [_requests(t)(count) for count in whole]})
    fits = t("chart.fits" if report.fit.fits else "chart.fits_not")
    label = t("chart.chosen", batch=numbers.digits(scenario.batch), fits=fits)
    traces.append(plot.point(label, scenario.context, scenario.batch))
    return plot.figure(
        traces,
        xaxis=plot.context_axis(sizes, t),
        yaxis=plot.log_axis(1, max(most), numbers.digits, t("chart.requests_per_replica")),
    )


def part_bytes(part: Component, context: int) -> Number:
    """Bytes of one component for a request of another length."""
    return part.store.request_bytes(part.layers, context)


def contexts(report: Report) -> list[int]:
    """Where curves are drawn: two points an octave, the kinks of windows, the chosen context."""
    chosen = report.scenario.context
    low = min(math.log2(LEAST_CONTEXT), math.floor(math.log2(chosen)))
    high = max(math.log2(MOST_CONTEXT), math.ceil(math.log2(chosen)))
    steps = round((high - low) * STEPS_AN_OCTAVE)
    sizes = {round(2 ** (low + step / STEPS_AN_OCTAVE)) for step in range(steps + 1)}
    limits = {part.store.limit for part in report.cache.stage.components}
    return sorted(sizes | {size for size in limits if 2**low <= size <= 2**high} | {chosen})


def _requests(t: Translator) -> Callable[[Number], str]:
    return lambda value: t("chart.requests", count=numbers.digits(value))
