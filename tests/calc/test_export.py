"""Files and launch flags: what is in them, and that nothing of them is computed or rendered."""

import csv
import io
from dataclasses import replace

import pytest

from calc.errors import CalcError
from calc.export import csv_text, markdown, plan_csv, report_csv, sweep_csv
from calc.launch import launch_command
from calc.link import decode_query
from calc.planner import plan
from calc.report import evaluate
from calc.scenario import Scenario
from calc.sweep import listed, sweep_over

KIMI = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131_072)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def flags(scenario: Scenario) -> dict[str, str]:
    words = launch_command(scenario).command
    return {
        word: "" if at + 1 == len(words) or words[at + 1].startswith("--") else words[at + 1]
        for at, word in enumerate(words)
        if word.startswith("--")
    }


def test_flags_of_vllm_carry_its_names() -> None:
    made = flags(replace(KIMI, dp=2, pp=2, ep="on", dcp_backend="a2a", kv_dtype="fp8"))
    assert made["--tensor-parallel-size"] == "8"
    assert made["--decode-context-parallel-size"] == "8"
    assert made["--dcp-comm-backend"] == "a2a"
    assert made["--data-parallel-size"] == made["--pipeline-parallel-size"] == "2"
    assert made["--kv-cache-dtype"] == "fp8"
    assert "--enable-expert-parallel" in made
    assert (made["--max-model-len"], made["--max-num-seqs"]) == ("131072", "64")


def test_sglang_counts_attention_replicas_inside_its_tp_group() -> None:
    made = replace(KIMI, engine="sglang", tp=8, dcp=4, dp=4, ep="on")
    found = flags(made)
    assert (found["--tp-size"], found["--attn-dp-size"], found["--dcp-size"]) == ("32", "4", "4")
    assert found["--ep-size"] == "32"
    assert found["--dcp-comm-backend"] == "a2a"
    assert launch_command(made).version == "0.5.23"


def test_what_has_no_flag_is_said() -> None:
    made = Scenario("llama-3.1-8b", engine="sglang", kv_dtype="int8_per_token_head")
    assert launch_command(made).left_out == ("kv_dtype",)
    assert "--kv-cache-dtype" not in flags(made)


def test_sglang_s_own_names_for_formats_and_query_replication() -> None:
    """SGLang 0.5.23 arg_groups/fields/model.py and parallel.py."""
    off = flags(replace(KIMI, engine="sglang", query_replication="off", kv_dtype="nvfp4"))
    assert "--no-dcp-replicate-q-proj" in off
    assert off["--kv-cache-dtype"] == "nvfp4"
    on = flags(replace(KIMI, engine="sglang", query_replication="on"))
    assert "--dcp-replicate-q-proj" in on


def test_an_illegal_layout_has_no_command() -> None:
    with pytest.raises(CalcError):
        launch_command(Scenario("deepseek-v3", tp=7))


def test_a_markdown_report_has_inputs_numbers_derivations_versions_and_a_link_that_opens() -> None:
    text = markdown(evaluate(KIMI), "https://calc.example/")
    for title in ("Inputs", "Numbers", "Derivations", "Launch command", "Versions", "Link"):
        assert f"\n## {title}\n" in text
    assert "509,156,352" in text
    assert "452{,}984{,}832" in text
    assert "vLLM 0.33" in text
    link = next(line for line in text.splitlines() if line.startswith("https://"))
    assert decode_query(link.partition("?")[2]).scenario == KIMI


def test_rows_of_a_report_a_plan_and_a_sweep_are_read_back() -> None:
    figures = {row["figure"]: row["value"] for row in read(report_csv(evaluate(KIMI)))}
    assert figures["cache.bytes_per_request_per_rank"] == "509156352"
    found = plan(replace(KIMI, gpu="h200"), 8)
    rows = read(plan_csv(found))
    assert len(rows) == len(found.rows)
    assert rows[0]["tp"] == str(found.rows[0].scenario.tp)
    points = read(sweep_csv(sweep_over(KIMI, "request_bytes", [listed("tp", [7, 8])])))
    assert points == [
        {"tp": "7", "request_bytes": ""},
        {"tp": "8", "request_bytes": "509156352"},
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1"])
def test_a_cell_is_never_a_spreadsheet_formula(text: str) -> None:
    assert read(csv_text([{"name": text}])) == [{"name": f"'{text}"}]
