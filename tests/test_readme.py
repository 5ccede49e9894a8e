"""The README says what the program does: commands, numbers, presets, files."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

from calc.presets import read_preset
from calc.report import evaluate
from calc.scenario import Scenario
from tests.readme import EXCERPT, README, ROOT, output_of, rewritten

TEXT = README.read_text(encoding="utf-8")


def contains(whole: Any, part: Any) -> bool:
    """Whether a JSON excerpt is part of a JSON value: fewer keys and rows, the same values."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list) and any(isinstance(row, dict) for row in part):
        return all(any(contains(row, wanted) for row in whole) for wanted in part)
    return bool(whole == part)


def test_generated_parts_are_current() -> None:
    assert rewritten(TEXT) == TEXT, "run: python -m tests.readme"


def test_json_excerpts_are_what_the_commands_print() -> None:
    excerpts = list(EXCERPT.finditer(TEXT))
    assert excerpts
    for found in excerpts:
        assert contains(json.loads(output_of(found["command"])), json.loads(found["json"]))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"a": 1}, True),
        ({"a": 2}, False),
        ({"c": 1}, False),
        ({"b": [{"x": 1}]}, True),
        ({"b": [{"x": 3}]}, False),
        ({"d": [1]}, False),
    ],
)
def test_an_excerpt_is_compared_value_by_value(part: Any, expected: bool) -> None:
    whole = {"a": 1, "b": [{"x": 0, "y": 5}, {"x": 1}], "d": [1, 2]}
    assert contains(whole, part) is expected


def test_the_library_example_runs_as_printed() -> None:
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried > 5
    assert failed == 0


def test_the_sums_by_hand_come_out() -> None:
    """Each bold number of the README is one of the report's."""
    report = evaluate(
        Scenario(
            "kimi-k3",
            engine="sglang",
            tp=8,
            dcp=8,
            batch=64,
            context=131_072,
            dcp_backend="fi_a2a",
            query_replication="off",
        )
    )
    stage = report.cache.stage
    latent = [row.per_step for row in report.step.stages if row.kind == "mla"]
    expected = {
        stage.growing_per_token.value,
        stage.state_per_request.value,
        stage.per_request.value,
        report.fit.max_requests.value,
        sum(item.value for item in latent if item is not None),
    }
    bold = {int(text.replace(",", "")) for text in re.findall(r"\*\*([0-9,]+)(?: B)?\*\*", TEXT)}
    assert bold == expected


def test_the_preset_shown_can_be_read(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(.*?)```", TEXT, re.S)
    assert shown
    path = tmp_path / "my-model.yaml"
    path.write_text(shown[1], encoding="utf-8")
    assert read_preset(path).layer_count == 48


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:bin|calc|docs|gpu|presets|tests|ui)/[\w./]*|\w+\.(?:txt|py))`", TEXT)
    linked = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert len(named) > 8
    missing = [path for path in named + linked if not (ROOT / path).exists()]
    assert missing == []
