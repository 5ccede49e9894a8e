"""Charts of a step: bytes and calls by layer kind, time by what it is spent on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

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
) -> plot.Spec:
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
) -> plot.Spec:
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
) -> plot.Spec:
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
    bars = [
        bar(t(f"collective.{collective}"), labels, values, scale, worded, colour)
        for (collective, values), colour in zip(sums.items(), plot.PALETTE, strict=False)
        if any(values)
    ]
    return stacked(bars, f"{title} ({name}{suffix})" if name else title, len(sources))


def bar(
    name: str,
    labels: Sequence[str],
    values: Sequence[Number],
    scale: float,
    worded: Callable[[Number], str],
    colour: str,
) -> plot.Spec:
    """One component of horizontal stacked bars."""
    return plot.bar(
        name,
        [plot.rounded(value / scale) for value in values],
        list(labels),
        colour,
        "%{y}: %{customdata}<extra>%{fullData.name}</extra>",
        orientation="h",
        customdata=[worded(value) for value in values],
    )


def stacked(bars: Sequence[plot.Spec], title: str, rows: int, **layout: Any) -> plot.Spec:
    """Horizontal bars, the first on top, as high as their number asks for."""
    return plot.figure(
        bars,
        barmode="stack",
        bargap=0.35,
        height=FRAME + ROW * rows,
        xaxis=plot.titled(title, rangemode="tozero"),
        yaxis={"autorange": "reversed", "showgrid": False},
        hovermode="closest",
        **layout,
    )


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


def time_by_kind(step: StepTime, t: Translator, whole: str) -> plot.Spec:
    """The whole, called ``whole``, then each layer kind, stacked by what the time is spent on."""
    first = [part for part in step.parts if part.group == "communication"]
    kinds = list(dict.fromkeys(part_kind(part) for part in (*first, *step.parts)))
    kinds = [kind for kind in kinds if kind != "model"] + ["model"] * ("model" in kinds)
    labels = [whole, *(t(f"kind.{kind}.short") for kind in kinds)]
    bars = []
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
            bars.append(bar(name, labels, values, 1000, numbers.duration, colour))
    return stacked(bars, t("chart.milliseconds"), len(labels))


def traffic_by_batch(points: Sequence[BatchPoint], t: Translator) -> plot.Spec:
    """Bytes one rank sends in a step at several batches, stacked by collective."""
    lines: list[plot.Spec] = []
    batches = [point.batch for point in points]
    for collective, colour in zip(Collective, plot.PALETTE, strict=False):
        values = [point.bytes_by_collective.get(collective.value, 0) for point in points]
        if any(values):
            line = plot.line(
                t(f"collective.{collective}"), batches, values, colour, numbers.traffic
            )
            line["line"]["dash"] = DASHES[len(lines) % len(DASHES)]
            lines.append(line | {"mode": "lines+markers"})
    seen = [value for point in points for value in point.bytes_by_collective.values() if value]
    title = t("chart.sent_per_step")
    return plot.figure(
        lines,
        xaxis=plot.titled(t("chart.batch"), type="log", **plot.labels(batches, numbers.digits)),
        yaxis=plot.decimal_axis(min(seen), max(seen), numbers.traffic, title)
        if seen
        else plot.titled(title),
    )


def links_in_use(budgets: Sequence[LinkBudget], t: Translator) -> plot.Spec:
    """The share of each link's rate, by what uses it, and the whole rate as a line."""
    labels = [t(f"step.link.{budget.link}") for budget in budgets]
    bars = []
    for load, colour in zip(LOADS, plot.PALETTE, strict=False):
        values = [
            float(budget.loads[load].value / budget.rate) if load in budget.loads else 0.0
            for budget in budgets
        ]
        if any(values):
            name = t(f"step.load.{load}")
            bars.append(bar(name, labels, values, 0.01, numbers.percent, colour))
    whole = plot.vertical(100, dash="dash")
    return stacked(bars, t("chart.link_share"), len(budgets), shapes=[whole])
