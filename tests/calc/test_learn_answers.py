"""Answers as people type them: read with their unit, or refused with an example of the form."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.learn.answers import EXAMPLES, UNITS, read_answer


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("68.6 KiB", "B", 68.6 * 1024),
        ("68.6KiB", "B", 68.6 * 1024),
        ("70272", "B", 70_272),
        ("70,272 B", "B", 70_272),
        ("7e4", "B", 70_000),
        (" ≈ 7.03e4 ", "B", 70_300),
        ("70.3 kB", "B", 70_300),
        ("70.3 KB", "B", 70_300),
        ("1.5 GiB", "B", 1.5 * 2**30),
        ("1.5GB", "B", 1.5e9),
        ("19 %", "%", 19),
        ("53.3x", "×", 53.3),
        ("53.3 ×", "×", 53.3),
        ("1.2 ms", "µs", 1200),
        ("128Ki", "tokens", 131_072),
        ("128k", "tokens", 128_000),
        ("99,840 tokens", "tokens", 99_840),
        ("168 requests", "requests", 168),
        (".5", "×", 0.5),
    ],
)
def test_an_answer_is_read_with_its_unit(text: str, unit: str, value: float) -> None:
    assert read_answer(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "many", "7,02", "1.234,5", "12 34", "-5", "nan", "inf", "1e999", "７０２７２",
     "68.6 KiB KiB", "<b>7</b>", "7 * 7", "0x10", "9" * 100, "7\u0660"],
)  # fmt: skip
def test_nonsense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CalcError, match=r"1\.5 MiB"):
        read_answer(text, "B")


@pytest.mark.parametrize(("text", "unit"), [("19 %", "B"), ("70 KiB", "tokens"), ("3 s", "×")])
def test_another_unit_is_named(text: str, unit: str) -> None:
    with pytest.raises(CalcError, match="no unit of this answer"):
        read_answer(text, unit)


@pytest.mark.parametrize("unit", UNITS)
def test_every_example_can_be_read(unit: str) -> None:
    for example in EXAMPLES[unit].split(", "):
        assert read_answer(example, unit) > 0


@given(st.text(max_size=80), st.sampled_from(sorted(UNITS)))
def test_any_text_is_a_number_or_a_named_error(text: str, unit: str) -> None:
    with contextlib.suppress(CalcError):
        assert math.isfinite(read_answer(text, unit))


def test_both_letters_for_micro_are_read() -> None:
    assert read_answer("1200 \u03bcs", "µs") == read_answer("1200 \u00b5s", "µs") == 1200


def test_the_allowed_units_are_all_visible() -> None:
    with pytest.raises(CalcError) as refused:
        read_answer("3 miles", "tokens")
    assert all(name.strip() for name in str(refused.value.values["allowed"]).split(", "))
    assert str(refused.value.values["allowed"]).startswith("k, ")
