"""The command line: what it prints, its exit status, and that a user never sees a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calc.__main__ import main
from calc.errors import CalcError
from calc.link import encode, query_string
from calc.presets import preset_ids
from calc.report import evaluate
from calc.scenario import FIELDS, Scenario

ROOT = Path(__file__).resolve().parents[2]

# python -m calc evaluate --json must have at least these
KEYS = [
    "cache.growing_bytes_per_token_per_rank",
    "cache.window_bytes_per_request_per_rank",
    "cache.state_bytes_per_request_per_rank",
    "cache.bytes_per_request_per_rank",
    "cache.components",
    "capacity.kv_budget_bytes_per_rank",
    "capacity.max_requests",
    "capacity.max_context",
    "capacity.fits",
    "traffic.stages",
    "traffic.sent_bytes_per_rank_per_step",
    "traffic.sent_bytes_all_ranks_per_step",
]
KIMI_K3 = ["--preset", "kimi-k3", "--tp", "8", "--dcp", "8", "--batch", "64"]

STAGE_KEYS = {
    "name",
    "kind",
    "layers",
    "per",
    "collective",
    "group_size",
    "calls_per_step",
    "shape",
    "dtype",
    "payload_bytes",
    "sent_bytes_per_rank",
    "received_bytes_per_rank",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "calc", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON of an evaluation, in this process (starting Python takes most of a run)."""
    assert main(["evaluate", *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found: dict[str, Any] = json.loads(printed.out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What standard error says about an evaluation that exits with 2."""
    try:
        status = main(["evaluate", *arguments])
    except SystemExit as leaving:
        status = int(str(leaving.code))
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert "Traceback" not in printed.err
    return printed.err


# --- As a user runs it ----------------------------------------------------------------------------


def test_presets_are_listed_one_a_line() -> None:
    ran = run("presets")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == preset_ids()


def test_an_evaluation_is_one_json_object_with_the_promised_keys() -> None:
    ran = run("evaluate", *KIMI_K3, "--context", "1000000", "--kv-dtype", "bf16", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    for key in KEYS:
        section, _, name = key.partition(".")
        assert name in found[section], key
    assert found["cache"]["growing_bytes_per_token_per_rank"] == 3_456
    assert found["cache"]["state_bytes_per_request_per_rank"] == 56_171_520
    assert found["cache"]["bytes_per_request_per_rank"] == 3_456_000_000 + 56_171_520
    for row in found["traffic"]["stages"]:
        assert set(row) >= STAGE_KEYS


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["evaluate", "--preset", "kimi-k3", "--tp", "7"], "tp: 7 does not divide the 96 "),
        (["evaluate", "--preset", "kimi-k4"], "model: there is no preset 'kimi-k4'"),
        (["evaluate", "--preset", "kimi-k3", "--tpp", "3"], "--tpp"),
        (["evaluate"], "--preset"),
        (["evaluates"], "evaluates"),
        ([], "command"),
    ],
)
def test_what_cannot_be_exits_with_2_and_says_why(arguments: list[str], named: str) -> None:
    ran = run(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_reader_that_stops_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "calc", "presets"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()  # long before the process has started to write
        assert process.stderr.read() == ""
    assert process.returncode == 0


# --- Results --------------------------------------------------------------------------------------


def test_the_json_has_the_numbers_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, "--preset", "mimo-v2-flash", "--tp", "4", "--context", "100")
    report = evaluate(Scenario("mimo-v2-flash", tp=4, context=100))
    stage = report.cache.stage
    assert found["cache"]["growing_bytes_per_token_per_rank"] == stage.growing_per_token.value
    assert found["cache"]["window_bytes_per_request_per_rank"] == stage.window_per_request.value
    assert found["cache"]["bytes_per_request_per_rank"] == stage.per_request.value
    assert found["capacity"]["max_requests"] == report.fit.max_requests.value
    assert found["capacity"]["max_context"] == report.fit.max_context
    sent = report.step.sent_per_rank.value
    assert found["traffic"]["sent_bytes_per_rank_per_step"] == sent


def test_the_rows_of_a_step_add_up_to_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, *KIMI_K3)
    rows = found["traffic"]["stages"]
    total = sum(row["sent_bytes_per_rank"] * row["calls_per_step"] for row in rows)
    assert total == found["traffic"]["sent_bytes_per_rank_per_step"]
    computing = [row for row in rows if row["collective"] is None]
    assert computing
    assert all(row["sent_bytes_per_rank"] == row["calls_per_step"] == 0 for row in computing)


def test_a_deployment_that_does_not_fit_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, "--preset", "llama-3.1-70b", "--batch", "100", "--context", "131072")[
        "capacity"
    ]
    assert found["fits"] is False
    assert found["short_bytes_per_rank"] == 100 * 131_072 * 327_680 - 80 * 2**30


def test_a_link_evaluates_to_what_its_options_did(capsys: pytest.CaptureFixture[str]) -> None:
    by_options = evaluated(capsys, "--preset", "kimi-k3", "--tp", "8", "--dcp", "4")
    query = query_string(encode(Scenario("kimi-k3", tp=8, dcp=4)))
    for link in (query, f"?{query}", f"http://localhost:8501/?{query}"):
        assert evaluated(capsys, "--link", link) == by_options


def test_the_summary_ends_in_a_link_to_the_same_scenario(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["evaluate", "--preset", "kimi-k3", "--tp", "8"]) == 0
    summary = capsys.readouterr().out
    link = summary.split()[-1]
    assert main(["evaluate", "--link", link]) == 0
    assert capsys.readouterr().out == summary


def test_other_spellings_of_dtypes_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    spelt = evaluated(
        capsys, "--preset", "kimi-k3", "--kv-dtype", "bfloat16", "--state-dtype", "fp32"
    )
    assert spelt == evaluated(capsys, "--preset", "kimi-k3", "--state-dtype", "float32")


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_every_field_is_an_option(field: Any, capsys: pytest.CaptureFixture[str]) -> None:
    option = "--" + field.name.replace("_", "-")
    found = evaluated(capsys, "--preset", "deepseek-v3", option, field.format(field.default))
    assert found == evaluated(capsys, "--preset", "deepseek-v3")
    assert refused(capsys, "--preset", "deepseek-v3", option, "no such value").startswith(
        f"{field.name}: "
    )


def test_everything_about_presets_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == preset_ids()


# --- Faulty input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--preset", "kimi-k3", "--tp", "1_6"], "tp: '1_6' is not a whole number"),
        (["--preset", "kimi-k3", "--tp", "true"], "tp: 'true' is not a whole number"),
        (["--preset", "kimi-k3", "--tp", ""], "tp: '' is not a whole number"),
        (["--preset", "kimi-k3", "--tp", "0"], "tp: 0 is out of range; allowed: 1 to 1024"),
        (["--preset", "kimi-k3", "--tp=-8"], "tp: -8 is out of range"),
        (["--preset", "kimi-k3", "--batch", str(10**30)], "batch: '1000000000"),
        (["--preset", "kimi-k3", "--kv-cache-memory-gib", "NaN"], "kv_cache_memory_gib: 'NaN'"),
        (["--preset", "kimi-k3", "--tp", "8", "--dcp", "3"], "dcp: 3 does not divide tp = 8"),
        (["--preset", "kimi-k3", "--tp", "8", "--dcp", "16"], "dcp: 16 does not divide tp = 8"),
        (["--preset", "kimi-k3", "--pp", "94"], "pp: 94 stages"),
        (["--preset", "kimi-k3", "--kv-dtype", "fp4"], "kv_dtype: 'fp4' is not one of bf16"),
        (["--preset", "kimi-k3", "--dcp-backend", "fi_a2a"], "dcp_backend: vLLM has no"),
        (["--preset", "custom"], "spec: model is `custom`"),
        (["--preset", "kimi-k3", "--context"], "--context"),
        (["--preset", "kimi-k3", "--dc", "8"], "--dc"),
        (["--preset", "kimi-k3", "more"], "more"),
        (["--link", "v=2&model=kimi-k3"], "v: this page reads links of version 1, not '2'"),
        (["--link", "v=1&model=kimi-k3&tp=8.0"], "tp: '8.0' is not a whole number"),
        (["--link", "v=1&model=kimi-k3&tp=8&tp=8"], "tp: the key appears 2 times"),
        (["--link", "v=1&model=kimi-k3&tq=8"], "tq: this key is not part of a link"),
        (["--link", ""], "v: "),
        (["--link", "nonsense"], "link: "),
        (["--link", "v=1&model=kimi-k3&x=" + "9" * 100_000], "link: 100"),
        (["--link", "v=1&model=kimi-k3", "--tp", "8"], "tp: a link already says every field"),
        (["--link", "v=1&model=kimi-k3", "--preset", "kimi-k3"], "--preset"),
    ],
)
def test_faulty_input_names_the_field_and_the_reason(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refused(capsys, *arguments)


def test_a_fault_in_a_preset_file_is_no_traceback_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CalcError("preset_invalid", file="x.yaml", field="heads", reason="missing")

    monkeypatch.setattr("calc.scenario.load_preset", broken)
    assert refused(capsys, "--preset", "kimi-k3") == "x.yaml: heads: missing\n"
