"""Charts of a step: bytes and calls by layer kind, time by what it is spent on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import get_args

import plotly.graph_objects as go

from calc.collectives import Collective
from calc.exchange import BatchPoint, LinkBudget
from calc.timing import StepTime, TimePart
from calc.timing.step import Group
from calc.traffic import Stage
from calc.units import Number
from ui import numbers, plot
from ui.text import Translator

GROUPS: tuple[Group, ...] = get_args(Group)
LOADS = ("other", "experts", "cache_transfer")
NUMBERED = re.compile(r"_\d+$")
"""What tells equally named parts of a model apart."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""Lines of equal height show through each other."""
ROW, FRAME = 40, 130
"""Height of a bar with its gap, and of everything around the bars."""


def sent_by_source(
    stages: Sequence[Stage], t: Translator, scope: str, times: float = 1.0
) -> go.Figure:
    """Bytes that one rank sends by layer kind, stacked by collective: in a step, layer, second."""
    factors = _factors(stages, scope, times)
    per_second = "/s" if scope == "second" else ""

    def sent(stage: Stage) -> Number:
        item = stage.per_step
        return item.value * factors[stage.kind] if item is not None else 0

    def worded(value: Number) -> str:
        return numbers.traffic(value) + per_second

    return _by_collective(stages, sent, worded, t(f"chart.sent.{scope}"), t, True, per_second)


def calls_by_source(
    stages: Sequence[Stage], t: Translator, scope: str, times: float = 1.0
) -> go.Figure:
    """Collective calls of one rank in the order of ``sent_by_source``."""
    factors = _factors(stages, scope, times)
    return _by_collective(
        stages,
        lambda stage: stage.calls * factors[stage.kind],
        numbers.significant if scope != "step" else numbers.digits,
        t(f"chart.calls.{scope}"),
        t,
        False,
    )


def _factors(stages: Sequence[Stage], scope: str, times: float) -> dict[str, float]:
    """What a step's figure of each kind is multiplied by; 0 leaves a kind out."""
    kinds = {stage.kind for stage in stages}
    if scope != "layer":
        return dict.fromkeys(kinds, times if scope == "second" else 1)
    made = {}
    for kind in kinds:
        layers: dict[str, int] = {}
        for stage in stages:
            if stage.kind == kind and stage.per == "layer" and not stage.drafts:
                layers[stage.name] = layers.get(stage.name, 0) + stage.layers
        made[kind] = 1 / max(layers.values()) if layers else 0.0
    return made


def _by_collective(
    stages: Sequence[Stage],
    amount: Callable[[Stage], Number],
    worded: Callable[[Number], str],
    title: str,
    t: Translator,
    unit: bool,
    suffix: str = "",
) -> go.Figure:
    moving = [stage for stage in stages if stage.collective is not None]
    sources = list(dict.fromkeys(stage.kind for stage in moving if amount(stage)))
    sums = {
        collective: [
            sum(amount(s) for s in moving if s.collective is collective and s.kind == source)
            for source in sources
        ]
        for collective in Collective
    }
    labels = [t(f"kind.{source}.short") for source in sources]
    scale, name = 1, ""
    if unit:
        scale, name = decimal(max(map(sum, zip(*sums.values(), strict=True)), default=1))
    figure = plot.figure()
    for (collective, values), colour in zip(sums.items(), plot.PALETTE, strict=False):
        if any(values):
            figure.add_trace(
                bar(t(f"collective.{collective}"), labels, values, scale, worded, colour)
            )
    return stacked(figure, f"{title} ({name}{suffix})" if name else title, len(sources))


def bar(
    name: str,
    labels: Sequence[str],
    values: Sequence[Number],
    scale: float,
    worded: Callable[[Number], str],
    colour: str,
) -> go.Bar:
    """One component of horizontal stacked bars."""
    return go.Bar(
        name=name,
        orientation="h",
        x=[plot.rounded(value / scale) for value in values],
        y=list(labels),
        marker={"color": colour, "line": {"width": 0}},
        customdata=[worded(value) for value in values],
        hovertemplate="%{y}: %{customdata}<extra>%{fullData.name}</extra>",
    )


def stacked(figure: go.Figure, title: str, rows: int) -> go.Figure:
    """Horizontal bars, the first on top, as high as their number asks for."""
    figure.update_layout(
        barmode="stack",
        bargap=0.35,
        height=FRAME + ROW * rows,
        xaxis={"title": title, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False},
        hovermode="closest",
    )
    return figure


def decimal(largest: Number) -> tuple[int, str]:
    """The unit in which bytes are drawn."""
    exponent = min(4, int(math.log10(max(largest, 1))) // 3)
    return 1000**exponent, numbers.DECIMAL[exponent]


def part_kind(part: TimePart) -> str:
    """The layer kind that a part of the time belongs to; matrix products name it in their key."""
    if part.group != "products":
        return part.kind
    known = ("norms", "final_norm", "head", "embedding")
    return "model" if part.name in known else NUMBERED.sub("", part.name)


def time_by_kind(step: StepTime, t: Translator, whole: str) -> go.Figure:
    """The whole, called ``whole``, then each layer kind, stacked by what the time is spent on."""
    first = [part for part in step.parts if part.group == "communication"]
    kinds = list(dict.fromkeys(part_kind(part) for part in (*first, *step.parts)))
    kinds = [kind for kind in kinds if kind != "model"] + ["model"] * ("model" in kinds)
    labels = [whole, *(t(f"kind.{kind}.short") for kind in kinds)]
    figure = plot.figure()
    for group, colour in zip(GROUPS, plot.PALETTE, strict=False):
        values: list[Number] = [step.group(group)]
        values += [
            sum(
                float(part.total.value)
                for part in step.parts
                if part.group == group and part_kind(part) == kind
            )
            for kind in kinds
        ]
        if any(values):
            name = t(f"step.group.{group}")
            figure.add_trace(bar(name, labels, values, 1000, numbers.duration, colour))
    return stacked(figure, t("chart.milliseconds"), len(labels))


def traffic_by_batch(points: Sequence[BatchPoint], t: Translator) -> go.Figure:
    """Bytes one rank sends in a step at several batches, stacked by collective."""
    figure = plot.figure()
    labels = [numbers.digits(point.batch) for point in points]
    for collective, colour in zip(Collective, plot.PALETTE, strict=False):
        values = [point.bytes_by_collective.get(collective.value, 0) for point in points]
        if any(values):
            name = t(f"collective.{collective}")
            figure.add_trace(
                go.Scatter(
                    name=name,
                    x=[point.batch for point in points],
                    y=[plot.rounded(value) for value in values],
                    mode="lines+markers",
                    line={"color": colour, "width": 2, "dash": DASHES[len(figure.data) % 4]},
                    customdata=[numbers.traffic(value) for value in values],
                    hovertemplate="%{customdata}",
                )
            )
    seen = [value for point in points for value in point.bytes_by_collective.values() if value]
    if seen:
        plot.decimal_axis(figure, "yaxis", min(seen), max(seen), numbers.traffic)
    figure.update_layout(
        xaxis={
            "type": "log",
            "tickvals": [point.batch for point in points],
            "ticktext": labels,
            "title": t("chart.batch"),
            "minor": {"ticks": ""},
        },
        yaxis_title=t("chart.sent_per_step"),
    )
    return figure


def links_in_use(budgets: Sequence[LinkBudget], t: Translator) -> go.Figure:
    """The share of each link's rate, by what uses it, and the whole rate as a line."""
    labels = [t(f"step.link.{budget.link}") for budget in budgets]
    figure = plot.figure()
    for load, colour in zip(LOADS, plot.PALETTE, strict=False):
        values = [
            float(budget.loads[load].value / budget.rate) if load in budget.loads else 0.0
            for budget in budgets
        ]
        if any(values):
            name = t(f"step.load.{load}")
            figure.add_trace(bar(name, labels, values, 0.01, numbers.percent, colour))
    stacked(figure, t("chart.link_share"), len(budgets))
    figure.add_vline(x=100, line={"color": plot.GREY, "width": 1.5, "dash": "dash"})
    return figure
