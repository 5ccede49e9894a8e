"""Charts of the Learn view."""

from __future__ import annotations

from collections.abc import Sequence

from ui import plot

STEP = 46
"""Pixels of one stage."""


def pipeline(rows: Sequence[tuple[str, str, bool]]) -> plot.Spec:
    """Stages from top to bottom: what is done, what it makes or sends, whether it communicates."""
    shapes: list[plot.Spec] = []
    arrows: list[plot.Spec] = []
    last = len(rows) - 1
    for at, (_, _, moves) in enumerate(rows):
        box = {
            "type": "rect",
            "x0": 0,
            "y0": last - at - 0.36,
            "y1": last - at + 0.36,
            "fillcolor": plot.PALETTE[1 if moves else 0],
            "line": {"width": 0},
        }
        shapes += [box | {"x1": 1, "opacity": 0.18}, box | {"x1": 0.012}]
        if at < last:
            arrows.append(
                {
                    "x": 0.5,
                    "y": last - at - 0.64,
                    "ax": 0.5,
                    "ay": last - at - 0.36,
                    "axref": "x",
                    "ayref": "y",
                    "showarrow": True,
                    "arrowhead": 2,
                    "arrowwidth": 1.5,
                    "arrowcolor": plot.GREY,
                    "text": "",
                }
            )
    words = {
        "type": "scatter",
        "mode": "text",
        "x": [0.03] * len(rows),
        "y": [last - at for at in range(len(rows))],
        "text": [f"<b>{what}</b><br>{result}" for what, result, _ in rows],
        "textposition": "middle right",
        "hoverinfo": "skip",
    }
    return plot.figure(
        [words],
        shapes=shapes,
        annotations=arrows,
        height=STEP * 1.25 * len(rows) + 16,
        showlegend=False,
        hovermode=False,
        xaxis={"visible": False, "range": [0, 1]},
        yaxis={"visible": False, "range": [-0.5, last + 0.5]},
    )
