"""Charts of the Learn view."""

from __future__ import annotations

from collections.abc import Sequence

from ui import plot

STEP = 46
"""Pixels of one stage."""


def pipeline(rows: Sequence[tuple[str, str, bool]]) -> plot.Spec:
    """Stages from top to bottom: what is done, what it makes or sends, whether it communicates."""
    shapes: list[plot.Spec] = []
    words: list[plot.Spec] = []
    last = len(rows) - 1
    for at, (what, result, moves) in enumerate(rows):
        box = {
            "type": "rect",
            "x0": 0,
            "y0": last - at - 0.36,
            "y1": last - at + 0.36,
            "fillcolor": plot.PALETTE[1 if moves else 0],
            "line": {"width": 0},
        }
        shapes += [box | {"x1": 1, "opacity": 0.18}, box | {"x1": 0.012}]
        words.append(
            {
                "x": 0.03,
                "y": last - at,
                "text": f"<b>{what}</b><br>{result}",
                "xanchor": "left",
                "align": "left",
                "showarrow": False,
                "font": {"color": plot.INK},
            }
        )
    arrows = {
        "type": "scatter",
        "mode": "markers",
        "x": [0.5] * last,
        "y": [at + 0.5 for at in range(last)],
        "marker": {"symbol": "triangle-down", "size": 9, "color": plot.GREY},
        "hoverinfo": "skip",
    }
    return plot.figure(
        [arrows],
        shapes=shapes,
        annotations=words,
        height=STEP * 1.25 * len(rows) + 16,
        showlegend=False,
        hovermode=False,
        xaxis={"visible": False, "range": [0, 1]},
        yaxis={"visible": False, "range": [-0.5, last + 0.5]},
    )
