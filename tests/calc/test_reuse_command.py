"""``python -m calc reuse``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calc.__main__ import main
from calc.link import encode, query_string
from calc.presets import preset_ids
from calc.reuse import Rule, usable
from calc.reuse_groups import reuse_groups
from calc.scenario import Scenario


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["reuse", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_usable_prefix_of_kimi_k3_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    k3 = ["--preset", "kimi-k3", "--tp", "8", "--prefix", "100000"]
    found = answer(capsys, *k3, "--missing", "state=129")["reuse"]
    assert (found["alignment_tokens"], found["usable_tokens"]) == (768, 98_304 + 768)
    assert (found["reason"], found["binding_group"]) == ("snapshot", "state")
    striped = answer(capsys, *k3, "--dcp", "8")["reuse"]
    assert (striped["alignment_tokens"], striped["usable_tokens"]) == (6144, 98_304)


@pytest.mark.parametrize("rule", ["ideal", "vllm", "sglang", "lmcache"])
def test_every_rule_answers_for_every_kind_of_model(
    capsys: pytest.CaptureFixture[str], rule: str
) -> None:
    for model in ("deepseek-v4-flash", "llama-4-scout", "falcon-mamba-7b"):
        found = answer(capsys, "--preset", model, "--rule", rule, "--prefix", "20000")
        assert 19_000 < found["reuse"]["usable_tokens"] <= 20_000
        assert found["storage"]["objects"]
        assert len(found["identity"]["digest"]) == 64


@pytest.mark.parametrize("rule", Rule)
def test_every_preset_has_groups(rule: Rule) -> None:
    for preset in preset_ids():
        groups = reuse_groups(Scenario(preset), rule)
        assert usable(groups, 9_000, {}, rule).tokens > 3_000


def test_two_scenarios_are_compared_and_the_move_between_them_is_weighed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = query_string(encode(Scenario("deepseek-v3", tp=4, dcp=4, kv_dtype="fp8")))
    found = answer(capsys, "--preset", "deepseek-v3", "--tp", "8", "--other", f"?{link}")["other"]
    assert not found["compatible"]
    assert found["first_difference"] == "kv_dtype"
    assert found["transfer"]["moved_bytes"] == 70_272 * 8192
    other = query_string(encode(Scenario("kimi-k3", tp=8)))
    different = answer(capsys, "--preset", "deepseek-v3", "--other", other)["other"]
    assert different["transfer"] is None
    assert different["first_difference"] == "model"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--missing", "state"], "missing"),
        (["--missing", "growing=99999"], "has no chunk 99999"),
        (["--missing", "growing=1,1"], "more than once"),
        (["--missing", "growing=1", "--missing", "growing=2"], "more than once"),
        (["--missing", "window=1"], "no group"),
        (["--prefix", "0"], "prefix"),
        (["--prefix", "many"], "prefix"),
        (["--new-tokens", "-1"], "new_tokens"),
        (["--rule", "sglang", "--interval", "100", "--block-size", "64"], "interval"),
        (["--lora-version", "2"], "lora"),
    ],
)
def test_what_cannot_be_ends_with_status_2_and_a_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["reuse", "--preset", "deepseek-v3", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_window_larger_than_the_prefix_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse", "--preset", "gemma-3-27b", "--prefix", "512"]) == 2
    assert "window of 1024" in capsys.readouterr().err
