"""Charts of the Learn view."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from ui import plot

STEP = 46
"""Pixels of one stage."""


def pipeline(rows: Sequence[tuple[str, str, bool]]) -> go.Figure:
    """Stages from top to bottom: what is done, what it makes or sends, whether it communicates."""
    figure = plot.figure()
    last = len(rows) - 1
    for at, (what, result, moves) in enumerate(rows):
        colour = plot.PALETTE[1 if moves else 0]
        low, high = last - at - 0.36, last - at + 0.36
        figure.add_shape(
            type="rect", x0=0, x1=1, y0=low, y1=high, opacity=0.18, fillcolor=colour, line_width=0
        )
        figure.add_shape(
            type="rect", x0=0, x1=0.012, y0=low, y1=high, fillcolor=colour, line_width=0
        )
        figure.add_annotation(
            x=0.03,
            y=last - at,
            text=f"<b>{what}</b><br>{result}",
            xanchor="left",
            align="left",
            showarrow=False,
        )
        if at < last:
            figure.add_annotation(
                x=0.5,
                y=last - at - 0.64,
                ax=0.5,
                ay=last - at - 0.36,
                axref="x",
                ayref="y",
                showarrow=True,
                arrowhead=2,
                arrowwidth=1.5,
                arrowcolor=plot.GREY,
                text="",
            )
    axis = {"visible": False, "fixedrange": True}
    figure.update_layout(
        height=STEP * 1.25 * len(rows) + 16,
        showlegend=False,
        hovermode=False,
        xaxis=axis | {"range": [0, 1]},
        yaxis=axis | {"range": [-0.5, last + 0.5]},
    )
    return figure
