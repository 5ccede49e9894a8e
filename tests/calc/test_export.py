"""Files and launch flags: what is in them, and that nothing of them is computed or rendered."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from calc.errors import CalcError
from calc.export import (
    csv_text,
    markdown,
    plan_csv,
    report_csv,
    report_json,
    sweep_csv,
    sweep_json,
)
from calc.launch import NO_FLAG, OTHER_ENGINE, launch_command
from calc.link import decode_query
from calc.planner import plan
from calc.report import evaluate
from calc.scenario import FIELDS, Scenario
from calc.sweep import listed, steps, sweep_over
from calc.sweep_command import axis_texts
from calc.version import FORMULAS

KIMI = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131_072)


def read(text: str) -> list[dict[str, str]]:
    told = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    return list(csv.DictReader(io.StringIO("".join(told))))


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
    assert launch_command(made).left_out == ("kv_dtype", "kv_cache_memory_gib")
    onto = replace(made, gpu="h100")
    assert launch_command(onto).left_out == ("kv_dtype",)
    assert "--kv-cache-dtype" not in flags(made)


def test_sglang_s_own_names_for_formats_and_query_replication() -> None:
    """SGLang 0.5.23 arg_groups/fields/model.py and parallel.py."""
    off = flags(replace(KIMI, engine="sglang", query_replication="off", kv_dtype="nvfp4"))
    assert "--no-dcp-replicate-q-proj" in off
    assert off["--kv-cache-dtype"] == "nvfp4"
    on = flags(replace(KIMI, engine="sglang", query_replication="on"))
    assert "--dcp-replicate-q-proj" in on


@pytest.mark.parametrize(
    ("preset", "fields", "code"),
    [
        ("deepseek-v3", {"tp": 7}, "tp_heads"),
        ("llama-3.1-8b", {"kv_dtype": "fp8_ds_mla"}, "format_kind"),
        ("deepseek-v3", {"tp": 8, "ep": "on", "moe_backend": "gather_scatter"}, ""),
        ("deepseek-v3", {"tp": 8, "query_dtype": "fp8"}, ""),
        ("deepseek-v3", {"tp": 8, "batch": 16_384}, "launch_batched"),
    ],
)
def test_what_cannot_be_has_no_command(preset: str, fields: dict[str, Any], code: str) -> None:
    """The last: vLLM 0.33 config/scheduler.py, max_num_batched_tokens >= max_num_seqs."""
    with pytest.raises(CalcError) as refused:
        launch_command(Scenario(preset, **fields))
    assert not code or refused.value.code == code


@pytest.mark.parametrize(
    ("preset", "engine", "asked", "flag"),
    [
        ("glm-5", "vllm", "auto", "--dcp-q-replicate"),
        ("glm-5", "vllm", "off", "--no-dcp-q-replicate"),
        ("deepseek-v3", "vllm", "on", "--dcp-q-replicate"),
        ("deepseek-v3", "vllm", "auto", "--no-dcp-q-replicate"),
        ("deepseek-v3", "sglang", "auto", "--no-dcp-replicate-q-proj"),
        ("glm-5", "sglang", "auto", "--dcp-replicate-q-proj"),
    ],
)
def test_the_engine_is_told_what_was_counted_of_the_query(
    preset: str, engine: str, asked: str, flag: str
) -> None:
    """vLLM 0.33 engine/arg_utils.py, SGLang 0.5.23 arg_groups/fields/parallel.py: bool or unset."""
    made = Scenario(preset, engine=engine, tp=8, dcp=8, query_replication=asked)
    found = launch_command(made)
    assert flag in found.command
    assert "query_replication" not in found.left_out


def test_dense_replicas_of_sglang_are_whole_engines() -> None:
    """SGLang 0.5.23 models/llama.py has no attention DP: 32 heads over 64 ranks would not start."""
    dense = flags(Scenario("llama-3.1-8b", engine="sglang", tp=8, dp=8, batch=4))
    assert (dense["--tp-size"], dense["--dp-size"]) == ("8", "8")
    assert "--attn-dp-size" not in dense
    assert dense["--max-running-requests"] == "4"


CHANGED: dict[str, tuple[Any, dict[str, Any]]] = {
    "engine": ("sglang", {}),
    "tp": (16, {}),
    "dcp": (4, {}),
    "dp": (2, {}),
    "pp": (2, {}),
    "pcp": (2, {"dcp": 1, "preset": "deepseek-v3"}),
    "context": (4_096, {}),
    "batch": (7, {}),
    "kv_dtype": ("fp8", {}),
    "conv_dtype": ("float32", {}),
    "state_dtype": ("bf16", {}),
    "dcp_backend": ("a2a", {}),
    "query_replication": ("on", {"preset": "deepseek-v3"}),
    "kv_cache_memory_gib": (40.0, {}),
    "ep": ("on", {}),
    "speculative_tokens": (1, {"preset": "deepseek-v3"}),
    "moe_backend": ("deepep_low_latency", {"preset": "deepseek-v3", "ep": "on", "dp": 2}),
    "dispatch_dtype": ("bf16", {"preset": "deepseek-v3", "ep": "on", "dp": 2}),
    "query_dtype": ("fp8", {"preset": "deepseek-v3", "kv_dtype": "fp8"}),
    "sequence_parallel": ("on", {"preset": "llama-3.1-8b", "dcp": 1}),
    "gpu_memory_utilization": (0.8, {"gpu": "h200"}),
    "mem_fraction_static": (0.8, {"gpu": "h200", "engine": "sglang"}),
    "max_num_batched_tokens": (4_096, {}),
    "async_scheduling": ("off", {}),
    "block_size": (128, {}),
    "prefix_caching": ("off", {}),
    "hybrid_kv_manager": ("off", {}),
    "swa_full_tokens_ratio": (0.5, {"engine": "sglang"}),
    "mamba_full_memory_ratio": (0.5, {"engine": "sglang"}),
    "pp_layers": ("46-47", {"pp": 2}),
    "weight_format": ("bf16", {}),
}
"""For each field a value and what else it takes to be meant."""


def test_every_field_is_a_flag_is_said_to_have_none_or_needs_none() -> None:
    assert set(CHANGED) | set(NO_FLAG) == set(FIELDS)
    assert not set(CHANGED) & set(NO_FLAG)


@pytest.mark.parametrize("name", CHANGED)
def test_a_field_that_changes_shows_in_the_command_or_is_named(name: str) -> None:
    value, given = CHANGED[name]
    fields = {"tp": 8, "dcp": 8, "batch": 64} | given
    base = Scenario(fields.pop("preset", "kimi-k3"), **fields)
    before, after = launch_command(base), launch_command(replace(base, **{name: value}))
    assert after.command != before.command or name in after.left_out


@pytest.mark.parametrize("engine", OTHER_ENGINE)
def test_a_field_of_the_other_engine_is_no_flag_of_this_one(engine: str) -> None:
    for name in OTHER_ENGINE[engine]:
        base = Scenario("kimi-k3", engine=engine, tp=8)
        change: dict[str, Any] = {
            name: "off" if name in ("async_scheduling", "hybrid_kv_manager") else 0.5
        }
        assert launch_command(replace(base, **change)) == launch_command(base)


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


def test_a_sweep_says_what_it_is_of_and_its_link_asks_it_again() -> None:
    made = sweep_over(KIMI, "batch_bytes", [steps("context", 1024, 4096, 1024), listed("tp", [8])])
    text = sweep_csv(made)
    told = [line for line in text.splitlines() if line.startswith("# ")]
    assert any("batch_bytes in B, vllm, kimi-k3" in line for line in told)
    link = next(line for line in told if line.startswith("# ?")).removeprefix("# ?")
    opened = decode_query(link)
    assert opened.scenario == KIMI
    assert axis_texts(opened.asked) == ["context=1024:4096:1024", "tp=8"]
    assert opened.asked["plan_output"] == "batch_bytes"
    assert sweep_json(made)["link"] == f"?{link}"


def test_files_tell_how_their_numbers_come_about() -> None:
    told = json.loads(report_json(evaluate(replace(KIMI, gpu="h200"))))
    assert set(told["derivations"]) == {
        *("request", "growing", "requests", "batch", "budget", "weights", "sent", "step")
    }
    last = told["derivations"]["request"][-1]
    assert (last["value"], last["unit"]) == (509_156_352, "B")
    assert last["filled"]
    figures = {row["figure"]: row["value"] for row in read(report_csv(evaluate(KIMI)))}
    assert decode_query(figures["link"].lstrip("?")).scenario == KIMI
    rows = read(plan_csv(plan(replace(KIMI, gpu="h200"), 8)))
    assert all(row["formulas"] == str(FORMULAS) for row in rows)


def test_a_report_words_fractions_and_shortages_for_readers() -> None:
    text = markdown(evaluate(Scenario("kimi-k3", tp=6, batch=7)))
    assert "40,881,493.33" in text
    assert ".333333" not in text.partition("## Derivations")[0]
    short = markdown(evaluate(Scenario("kimi-k3", gpu="b200", pp=8, batch=16, context=131_072)))
    assert "| Fits | no, short of 38,369,265,362 B on each rank |" in short
    crowd = markdown(evaluate(Scenario("deepseek-v3", tp=8, batch=16_384)))
    assert "vLLM refuses 8192 with 16384 requests at once" in crowd
