"""``python -m calc plan|sweep|export``: what they print, and what they refuse."""

from __future__ import annotations

import csv
import io
import json

import pytest

from calc.__main__ import main
from calc.link import decode_query, encode, query_string
from calc.plan_inputs import SWEEP_OUTPUTS
from calc.report import evaluate
from calc.scenario import Scenario
from calc.sweep_outputs import OUTPUTS

K3 = ["--preset", "kimi-k3", "--gpu", "h200", "--context", "131072", "--batch", "64"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_a_plan_in_json_opens_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "plan", *K3, "--gpus", "16", "--top", "3", "--json"))
    assert found["fitting"] >= len(found["rows"]) == 3
    for row in found["rows"]:
        opened = evaluate(decode_query(row["link"].removeprefix("?")).scenario)
        assert opened.fit.max_requests.value * row["dp"] == row["concurrency"]
    assert found["winner_binds"]["by"] == "memory"
    assert found["version"]["formulas"] >= 1


def test_a_plan_for_a_terminal_says_what_binds_or_what_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "bound by memory" in printed(capsys, "plan", *K3, "--gpus", "16")
    nothing = printed(capsys, "plan", *K3, "--gpus", "1")
    assert "nothing fits; the nearest lacks" in nothing
    assert "B on each rank of memory" in nothing


def test_all_rows_of_a_plan_are_in_the_csv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "plan", *K3, "--gpus", "8", "--csv"))))
    found = json.loads(printed(capsys, "plan", *K3, "--gpus", "8", "--json"))
    assert len(rows) == found["layouts"]


def test_a_link_plans_what_its_sender_planned(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"plan_gpus": 4, "plan_objective": "traffic", "plan_top": 2}
    link = query_string(encode(Scenario("llama-3.1-8b", gpu="h100"), asked=asked))
    found = json.loads(printed(capsys, "plan", "--link", link, "--json"))
    assert (found["objective"], len(found["rows"]), found["rows"][0]["gpus"]) == ("traffic", 2, 4)


def test_a_sweep_prints_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    axes = ["--axis", "dcp=1,2,3", "--axis", "context=1000,2000"]
    made = json.loads(printed(capsys, "sweep", "--preset", "kimi-k3", "--tp", "8", *axes, "--json"))
    one = evaluate(Scenario("kimi-k3", tp=8, dcp=2, context=2000))
    assert made["values"][1][1] == one.cache.stage.per_request.value
    assert made["values"][2] == [None, None]
    assert "3 does not divide tp" in made["faults"][0]["reason"]
    rows = printed(capsys, "sweep", "--preset", "kimi-k3", "--tp", "8", *axes, "--csv")
    assert len([row for row in rows.splitlines() if not row.startswith("#")]) == 7


def test_the_outputs_that_can_be_asked_for_are_those_that_there_are() -> None:
    assert set(SWEEP_OUTPUTS) == set(OUTPUTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", *K3, "--gpus", "0"], "gpus"),
        (["plan", *K3, "--objective", "beauty"], "objective"),
        (["plan", *K3, "--gpus", "8", "--max-step-ms", "fast"], "max_step_ms"),
        (["sweep", *K3], "one or two"),
        (["sweep", *K3, "--axis", "context=1:1000000000:1", "--axis", "batch=1:99:1"], "at most"),
        (["sweep", *K3, "--axis", "context=10:1:1"], "backwards"),
        (["sweep", *K3, "--axis", "context="], "no value"),
        (["sweep", *K3, "--axis", "colour=1,2"], "sweep"),
        (["sweep", *K3, "--output", "beauty", "--axis", "tp=1"], "output"),
        (["export", *K3, "--tp", "7"], "tp"),
    ],
)
def test_what_cannot_be_ends_with_status_2_and_a_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "begins"),
    [
        ("markdown", "# Capacity"),
        ("csv", "figure,value"),
        ("json", "{"),
        ("launch", "# vLLM 0.33\nvllm serve MODEL"),
    ],
)
def test_a_scenario_is_exported(
    capsys: pytest.CaptureFixture[str], format: str, begins: str
) -> None:
    text = printed(capsys, "export", *K3, "--tp", "8", "--format", format)
    assert text.startswith(begins)
    if format == "json":
        found = json.loads(text)
        assert decode_query(found["link"].removeprefix("?")).scenario.tp == 8
        assert found["version"]["package"]
