"""The layers of a model as a picture: one cell a layer, rows of equal length, stages apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.architecture import LayerMap, layer_map
from calc.layers import SlidingWindowAttention
from calc.layers.base import Block
from calc.report import Report
from ui import numbers, plot
from ui.text import Translator

COLUMNS = (24, 48, 96, 192)
"""Cells in a row; multiples of the usual periods, so that patterns line up."""
MOST_ROWS = 10
LONGEST_STAGE = 40
MIXER_COLOURS = [plot.PALETTE[index] for index in (0, 1, 2, 3, 4, 5, 8, 9)]
FFN_COLOURS = {"dense": plot.PALETTE[6], "moe": plot.PALETTE[7]}
ROW_PIXELS, FRAME_PIXELS, STAGE_GAP = 34, 40, 0.35
LEGEND_PIXELS = 16
"""For each name of the legend, which stand one below the other on a phone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell stands: its column and the top of its row."""

    column: int
    top: float


def part_labels(t: Translator, parts: Sequence[Block]) -> dict[Block, str]:
    """A short name for each distinct part; a letter tells those of one kind apart."""
    made: dict[Block, str] = {}
    names = [_name(t, part) for part in parts]
    seen: dict[str, int] = {}
    for part, name in zip(parts, names, strict=True):
        seen[name] = seen.get(name, 0) + 1
        several = names.count(name) > 1
        made[part] = f"{name} {_letter(seen[name])}" if several else name
    return made


def _letter(number: int) -> str:
    return chr(64 + number) if number <= 26 else str(number)


def _name(t: Translator, part: Block) -> str:
    name = t(f"kind.{part.kind}.short")
    if isinstance(part, SlidingWindowAttention):
        name = f"{name} {numbers.tokens(part.window)}"
    return t("map.reads", kind=name) if getattr(part, "reads_other_layer", False) else name


def draw_map(report: Report, t: Translator) -> plot.Spec:
    """Above in each cell the mixer, below it the feed-forward part."""
    scenario, model = report.scenario, report.model
    sizes = scenario.layout.stage_layers or model.stage_sizes(scenario.pp)
    found = layer_map(model, sizes)
    columns = _columns(sizes)
    places, ticks = _places(t, found, sizes, columns)
    traces = []
    labels = [_joined(t, found, parts) for parts in found.mixers]
    fed = [_fed(t, parts) for parts in found.ffns]
    for index, label in enumerate(labels):
        cells = [cell for cell in found.cells if cell.mixers == index]
        hover = [
            t(
                "map.hover",
                number=cell.number,
                mixer=label,
                ffn=fed[cell.ffns],
                stage=cell.stage + 1,
                stages=len(sizes),
            )
            for cell in cells
        ]
        at = [places[cell.number - 1] for cell in cells]
        colour = MIXER_COLOURS[index % len(MIXER_COLOURS)]
        traces.append(_bars(label, at, 0.04, 0.56, colour, hover))
    kinds = list(dict.fromkeys(_ffn_kind(parts) for parts in found.ffns))
    for kind in kinds:
        at = [places[c.number - 1] for c in found.cells if _ffn_kind(found.ffns[c.ffns]) == kind]
        if kind in FFN_COLOURS:
            name = t(f"kind.{kind}.short")
            traces.append(_bars(name, at, 0.64, 0.2, FFN_COLOURS[kind], None))
    bottom = max(place.top for place in places) + 1
    return plot.figure(
        traces,
        barmode="overlay",
        bargap=0,
        height=round(FRAME_PIXELS + ROW_PIXELS * bottom + LEGEND_PIXELS * len(traces)),
        hovermode="closest",
        xaxis={
            "range": [0.4, columns + 0.6],
            "showgrid": False,
            "zeroline": False,
            "showticklabels": False,
        },
        yaxis={
            "range": [-bottom, 0],
            "showgrid": False,
            "zeroline": False,
            "tickvals": [-top - 0.4 for top, _ in ticks],
            "ticktext": [text for _, text in ticks],
        },
    )


def _columns(sizes: Sequence[int]) -> int:
    """Cells in a row: a whole pipeline stage where there are several and it is not too long."""
    longest, layers = max(sizes), sum(sizes)
    if len(sizes) > 1 and longest <= LONGEST_STAGE:
        return longest
    return next((size for size in COLUMNS if layers <= size * MOST_ROWS), COLUMNS[-1])


def _places(
    t: Translator, found: LayerMap, sizes: Sequence[int], columns: int
) -> tuple[list[Place], list[tuple[float, str]]]:
    """The place of every cell; a pipeline stage begins a row. And the words beside each row."""
    places: list[Place] = []
    ticks = []
    top, first = 0.0, 1
    for stage, size in enumerate(sizes):
        for start in range(0, size, columns):
            count = min(columns, size - start)
            places += [Place(column + 1, top) for column in range(count)]
            words = f"{first + start}–{first + start + count - 1}"
            if len(sizes) > 1 and start == 0:
                words = t("map.stage", number=stage + 1, layers=words)
            ticks.append((top, words))
            top += 1
        top += STAGE_GAP if len(sizes) > 1 else 0
        first += size
    return places, ticks


def _bars(
    name: str, at: list[Place], below: float, tall: float, colour: str, hover: list[str] | None
) -> plot.Spec:
    return plot.bar(
        name,
        [place.column for place in at],
        [tall] * len(at),
        colour,
        "%{customdata}<extra></extra>" if hover else "",
        base=[round(-place.top - below - tall, 3) for place in at],
        width=0.9,
        customdata=hover,
        hoverinfo=None if hover else "skip",
    )


def _joined(t: Translator, found: LayerMap, parts: tuple[Block, ...]) -> str:
    everyone = list(dict.fromkeys(part for mixed in found.mixers for part in mixed))
    labels = part_labels(t, everyone)
    return " + ".join(labels[part] for part in parts) or t("kind.none.short")


def _ffn_kind(parts: tuple[Block, ...]) -> str:
    kinds = {part.kind for part in parts}
    return "moe" if "moe" in kinds else next(iter(kinds), "none")


def _fed(t: Translator, parts: tuple[Block, ...]) -> str:
    return " + ".join(t(f"kind.{part.kind}.short") for part in parts) or t("map.no_ffn")
