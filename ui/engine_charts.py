"""Charts of the engine's account: where a GPU's memory goes, and formula against allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.items import Item
from calc.units import Number
from ui import numbers, plot
from ui.text import Translator

PALETTE = plot.PALETTE
ROW, FRAME = 38, 70
"""Pixels of a row of bars, and of all that is around the rows."""
LEGEND_ROW = 22
ROOM = 1.24
"""How far the axis goes beyond the longest bar, for the number at its end."""
COLOURS = {"whole": PALETTE[6], "less": PALETTE[1], "rest": PALETTE[2], "short": PALETTE[5]}
CAUSES = (
    "last_block",
    "admission_reserve",
    "kept_whole",
    "page_padding",
    "padding_layers",
    "extra_state_slots",
    "last_page",
    "window_page",
)
"""Why more is allocated than kept, vLLM's and SGLang's; the place is the colour."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of the budget: from ``start`` on, ``size`` bytes, in the role of ``kind``."""

    label: str
    start: Number
    size: Number
    kind: str


def budget_bars(bars: Sequence[Bar], t: Translator) -> plot.Spec:
    """A GPU's memory, what is taken off it one after the other, and what is left."""
    scale, unit = binary(max(bar.start + bar.size for bar in bars))
    traces = []
    for kind, colour in COLOURS.items():
        chosen = [bar for bar in bars if bar.kind == kind]
        if chosen:
            traces.append(
                plot.bar(
                    kind,
                    [plot.rounded(bar.size / scale) for bar in chosen],
                    [bar.label for bar in chosen],
                    colour,
                    "%{y}: %{customdata}<extra></extra>",
                    orientation="h",
                    base=[plot.rounded(bar.start / scale) for bar in chosen],
                    text=[_signed(bar) for bar in chosen],
                    textposition="outside",
                    cliponaxis=False,
                    customdata=[numbers.exact(bar.size) for bar in chosen],
                    showlegend=False,
                )
            )
    longest = max(bar.start + bar.size for bar in bars) / scale
    least = min(bar.start for bar in bars) / scale
    return plot.figure(
        traces,
        barmode="overlay",
        bargap=0.3,
        height=FRAME + ROW * len(bars),
        hovermode="closest",
        xaxis=plot.titled(t("budget.axis", unit=unit), range=[least, longest * ROOM]),
        yaxis={
            "categoryorder": "array",
            "categoryarray": [bar.label for bar in bars],
            "autorange": "reversed",
            "showgrid": False,
        },
    )


def _signed(bar: Bar) -> str:
    sign = "−" if bar.kind in ("less", "short") else ""
    return f"{sign}{numbers.memory(bar.size)}"


def allocation_bars(
    formula: Item, allocated: Item, wastes: Sequence[Item], t: Translator
) -> plot.Spec:
    """One request: what the formulas count, what the engine allocates, and the difference."""
    rows = [t("engine.bar_formula"), t("engine.bar_allocated"), t("engine.bar_waste")]
    found = [(cause, item) for cause in CAUSES for item in wastes if cause_of(item) == cause]
    found = [(cause, item) for cause, item in found if item.value]
    scale, unit = binary(allocated.value)
    kept = [formula.value, formula.value, 0]
    traces = [_bar(t("engine.kept"), rows, kept, scale, PALETTE[0])]
    for cause, item in found:
        colour = PALETTE[1 + CAUSES.index(cause)]
        values = [0, item.value, item.value]
        traces.append(_bar(t(f"waste.{cause}"), rows, values, scale, colour))
    wasted = allocated.value - formula.value
    ends = [formula.value, allocated.value, wasted]
    traces.append(
        {
            "type": "scatter",
            "mode": "text",
            "y": rows,
            "x": [plot.rounded(end / scale) for end in ends],
            "text": [f" {numbers.memory(end)}" for end in ends],
            "textposition": "middle right",
            "cliponaxis": False,
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    longest = max(allocated.value, 1) / scale
    return plot.figure(
        traces,
        barmode="stack",
        bargap=0.3,
        height=FRAME + ROW * len(rows) + LEGEND_ROW * (1 + len(found)),
        hovermode="closest",
        xaxis=plot.titled(t("engine.axis", unit=unit), range=[0, longest * ROOM]),
        yaxis={"autorange": "reversed", "showgrid": False},
    )


def cause_of(item: Item) -> str:
    """The cause that a waste item is keyed by."""
    return item.key.removeprefix("waste.")


def _bar(
    name: str, rows: list[str], values: Sequence[Number], scale: int, colour: str
) -> plot.Spec:
    return plot.bar(
        name,
        [plot.rounded(value / scale) for value in values],
        rows,
        colour,
        "%{y}: %{customdata}<extra>%{fullData.name}</extra>",
        orientation="h",
        customdata=[numbers.exact(value) for value in values],
    )


def binary(largest: Number) -> tuple[int, str]:
    """The binary unit in which a number has one to four digits before the point.

    >>> binary(3 * 2**30), binary(5)
    ((1073741824, 'GiB'), (1, 'B'))
    """
    exponent = max(0, min(len(numbers.BINARY) - 1, (int(largest).bit_length() - 1) // 10))
    return 1024**exponent, numbers.BINARY[exponent]
