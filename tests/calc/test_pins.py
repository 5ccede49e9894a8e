"""Pinned scenarios travel together, and a damaged text is a named error."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.link import MAX_LENGTH, encode, query_string
from calc.pins import MOST_PINS, pack_pins, unpack_pins
from calc.presets import CUSTOM, load_preset
from calc.scenario import Scenario


def packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")


def test_four_scenarios_survive_the_trip_and_fit_in_a_link() -> None:
    custom = load_preset("kimi-k3").model_copy(update={"id": CUSTOM})
    pins = (
        Scenario("kimi-k3", tp=8, dcp=8),
        Scenario("deepseek-v3", tp=16, ep="on", engine="sglang", kv_dtype="fp8"),
        Scenario(CUSTOM, spec=custom, tp=8),
        Scenario("gpt-oss-120b", gpu="h100", lengths="4096x30-131072x2"),
    )
    text = pack_pins(pins)
    assert unpack_pins(text) == pins
    link = query_string(encode(pins[2], asked={"plan_pins": text}))
    assert len(link) < MAX_LENGTH / 2
    assert pack_pins(()) == ""
    assert unpack_pins("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "!",
        "eJwAAA",
        packed(b"{}"),
        packed(b"[]"),
        packed(b"[1]"),
        packed(b'[{"v":1}]'),
        packed(json.dumps([{"v": "1", "model": "kimi-k3"}] * 5).encode()),
        packed(b"[" * 30_000),
        packed(b" " * 10_000_000),
        packed(b'[{"v":"1","model":"kimi-k3","tp":"x"}]'),
        packed(b'[{"v":"1","model":"nobody"}]'),
        packed(b"\xff\xfe"),
        packed(b'[{"v":"1","model":"kimi-k3","tp":"8","tp":"4"}]'),
    ],
)
def test_what_cannot_be_read_is_a_named_error(text: str) -> None:
    with pytest.raises(CalcError, match=r"^pins: "):
        unpack_pins(text)


def test_more_than_four_are_refused() -> None:
    with pytest.raises(CalcError, match="at most 4"):
        pack_pins([Scenario("kimi-k3", tp=8)] * (MOST_PINS + 1))


@given(st.text(max_size=300))
def test_no_text_raises_anything_but_a_named_error(text: str) -> None:
    with contextlib.suppress(CalcError):
        assert len(unpack_pins(text)) <= MOST_PINS
