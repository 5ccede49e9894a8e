"""Makes a mix of request lengths: a median with a tail, or a list that somebody pasted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import streamlit as st

from calc.fields import ListField
from calc.scenario import FIELDS
from ui.text import Translator

MOST_LETTERS = 400
"""What the field of the sidebar holds."""
MOST_NUMBERS = 100_000
MOST_PASTED = 10**6
FOLD = "mix_maker"


def draw(t: Translator) -> None:
    """The folded maker; what it makes goes into the sidebar's field."""
    fold = st.expander(t("mix.title"), key=FOLD, icon=":material/tune:", on_change="rerun")
    if not fold.open:
        return
    with fold:
        left, right = st.columns(2, gap="medium")
        with left:
            _median_and_tail(t)
        with right:
            _pasted(t)
        if st.session_state.get("mix_fault"):
            st.error(t("mix.fault"), icon=":material/error:")


def _median_and_tail(t: Translator) -> None:
    st.markdown(f"**{t('mix.median_tail')}**")
    with st.grid(2, min_column_width=120, gap="small"):
        st.number_input(t("mix.median"), 1, 2**30, 4096, step=1, key="mix_median")
        st.number_input(t("mix.count"), 2, 2**20, 64, step=1, key="mix_count")
        st.number_input(t("mix.tail"), 1, 2**30, 131072, step=1, key="mix_tail")
        st.number_input(t("mix.share"), 1, 99, 5, step=1, key="mix_share", help=t("mix.share.help"))
    st.button(t("mix.use"), key="mix_use", on_click=_use_median)


def _pasted(t: Translator) -> None:
    st.markdown(f"**{t('mix.list')}**")
    st.text_area(
        t("mix.list_label"),
        key="mix_text",
        height=110,
        max_chars=MOST_PASTED,
        placeholder="512, 2048, 2048, 131072",
        help=t("mix.list.help"),
    )
    st.button(t("mix.use_list"), key="mix_use_list", on_click=_use_list)


def _use_median() -> None:
    kept = st.session_state
    lengths = median_and_tail(
        kept["mix_median"], kept["mix_tail"], kept["mix_share"], kept["mix_count"]
    )
    _keep(written(lengths))


def _use_list() -> None:
    _keep(written(numbers_in(st.session_state.get("mix_text") or "")))


def _keep(text: str) -> None:
    field = FIELDS["lengths"]
    assert isinstance(field, ListField)
    st.session_state["mix_fault"] = not field.pairs(text)
    if field.pairs(text):
        st.session_state["lengths"] = text


def median_and_tail(median: int, tail: int, percent: int, count: int) -> list[int]:
    """``percent`` of the requests are as long as the tail, at least one; the others the median.

    >>> median_and_tail(4096, 131072, 5, 64).count(131072)
    3
    """
    long = max(1, round(count * percent / 100))
    return [median] * (count - long) + [tail] * long


def numbers_in(text: str) -> list[int]:
    """The whole numbers of a pasted text, each a length; 4,096 in a list is two numbers.

    >>> numbers_in("512 2048\\n2048;131072")
    [512, 2048, 2048, 131072]
    """
    found = re.findall(r"(?<![\d.])[0-9]{1,10}(?![\d.])", text[:MOST_PASTED], re.ASCII)
    return [int(number) for number in found[:MOST_NUMBERS] if 0 < int(number) <= 2**30]


def written(lengths: Iterable[int]) -> str:
    """Lengths as the field writes them; rounded up together while there are too many to write.

    >>> written([4096, 131072, 4096])
    '4096x2-131072x1'
    """
    counts = Counter(lengths)
    step = 1
    while True:
        merged: Counter[int] = Counter()
        for length, count in counts.items():
            merged[-(-length // step) * step] += count
        text = "-".join(f"{length}x{count}" for length, count in sorted(merged.items()))
        if len(text) <= MOST_LETTERS and len(merged) <= 64:
            return text
        step *= 2
