"""Pieces that every view is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import streamlit as st

from calc.capacity import Component
from calc.items import Item
from calc.report import NOT_COUNTED, Report
from ui.plot import Spec
from ui.text import Translator

FIRST_PAUSE = 0.5
"""Seconds before the first charts of a visit: the browser has to read 5 MB of Plotly for them, and
meanwhile would draw no number."""
_waiting: ContextVar[list[Callable[[], None]] | None] = ContextVar("charts", default=None)


@contextmanager
def charts_last() -> Iterator[None]:
    """Charts of the block are built and sent after everything else in it: numbers come first."""
    waiting: list[Callable[[], None]] = []
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
    if waiting and not st.session_state.get("_charts_seen"):
        st.session_state["_charts_seen"] = True
        time.sleep(FIRST_PAUSE)
    for draw in waiting:
        draw()


def chart(t: Translator, name: str, figure: Callable[[], Spec], title: str) -> None:
    """A titled chart without a mode bar, described for those who cannot see it."""
    st.markdown(f"**{title}**")
    place = st.container()

    def draw() -> None:
        place.plotly_chart(
            figure(),
            key=name,
            config={"displayModeBar": False, "scrollZoom": False},
            alt=t(f"alt.{name}"),
        )

    waiting = _waiting.get()
    if waiting is None:
        draw()
    else:
        waiting.append(draw)


def store_name(t: Translator, part: Component) -> str:
    """What a component keeps, and whether MTP layers keep it while they draft."""
    name = t(f"store.{part.store.name}", kind=t(f"kind.{part.store.kind}.short"))
    return t("store.of_drafts", store=name) if part.drafts else name


def derivations(
    t: Translator,
    view: str,
    items: Mapping[str, Item],
    draw_steps: Callable[[Translator, Item], None],
    named: Callable[[str], str] | None = None,
) -> None:
    """The arithmetic behind a number of the reader's choice; drawn only when it is open.

    ``named`` words the choices whose names are not in the catalogue.
    """
    kept = st.expander(
        t("derivation.title"),
        key=f"derivation_{view}",
        icon=":material/function:",
        on_change="rerun",
    )
    if not kept.open:
        return
    with kept:
        chosen = st.selectbox(
            t("derivation.which"),
            list(items),
            key=f"derived_{view}",
            format_func=named or (lambda name: t(f"derived.{name}")),
        )
        draw_steps(t, items[chosen])


def not_counted(t: Translator, report: Report | None) -> None:
    """What the figures of the page leave out."""
    names = NOT_COUNTED if report is None else report.not_counted()
    words = t("not_counted.separator").join(t(f"not_counted.{name}") for name in names)
    st.caption(f"**{t('not_counted.title')}** {words}")
