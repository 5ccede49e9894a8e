"""``python -m calc import`` and ``--config``: what a config says, and why one cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calc.__main__ import main
from calc.presets import load_preset
from calc.weights import parameters

CONFIGS = Path(__file__).resolve().parents[1] / "data" / "configs"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_import_prints_the_spec_its_counts_and_what_decided_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(capsys, "import", str(CONFIGS / "kimi-k3.json"))
    counted = parameters(load_preset("kimi-k3"))
    assert found["name"] == "kimi-k3"
    assert found["parameters_total"] == counted.total.value
    assert found["parameters_active"] == counted.active.value
    counts: dict[str, int] = {}
    for run in found["layers"]:
        counts[run["kind"]] = counts.get(run["kind"], 0) + run["count"]
    assert counts == {"kda": 69, "mla": 24}
    assert found["findings"][0] == {
        "about": "mixer",
        "field": "linear_attn_config.kda_layers",
        "layers": {"kda": 69, "mla": 24},
    }
    assert found["warnings"] == []


def test_the_text_of_an_import_names_every_run_and_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["import", str(CONFIGS / "deepseek-v3.json")]) == 0
    text = capsys.readouterr().out
    assert "3 x mla, feed-forward dense" in text
    assert "58 x mla, feed-forward moe" in text
    assert "decided by first_k_dense_replace: 3 dense, 58 moe" in text


def test_a_warning_names_the_field_that_was_not_understood(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    file = tmp_path / "new-model.json"
    file.write_text(json.dumps(config | {"kv_cache_trick": 7}))
    found = printed(capsys, "import", str(file))
    assert found["warnings"][0]["code"] == "config_not_understood"
    assert found["warnings"][0]["field"] == "kv_cache_trick"
    assert main(["evaluate", "--config", str(file), "--json"]) == 0
    assert "kv_cache_trick" in capsys.readouterr().err


def test_a_config_stands_for_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    layout = ("--tp", "8", "--dcp", "8", "--batch", "3")
    read = printed(capsys, "evaluate", "--config", str(CONFIGS / "deepseek-v3.json"), *layout)
    known = printed(capsys, "evaluate", "--preset", "deepseek-v3", *layout)
    assert read["scenario"]["model"] == "custom"
    assert read["cache"] == known["cache"]
    assert read["weights"] == known["weights"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "cannot be read"),
        ("[1]", "not a JSON object"),
        ('{"model_type": "llama"}', "hidden_size"),
        ('{"hidden_size": 1}', "model_type"),
        ('{"a": 1, "a": 2}', "appears more than once"),
        (" " * 3_000_000, "at most 2000000"),
    ],
)
@pytest.mark.parametrize("command", [["import"], ["evaluate", "--config"]])
def test_a_file_that_is_no_config_ends_with_2_and_the_reason(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: list[str],
    content: str | None,
    said: str,
) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    assert main([*command, str(file)]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert said in caught.err


def test_weights_in_a_report_are_those_the_budget_takes_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One formula feeds both: what leaves the memory is the sum that the report prints."""
    layout = ("--preset", "deepseek-v3", "--tp", "8", "--gpu", "h200")
    for stored in ("checkpoint", "bf16", "nvfp4"):
        found = printed(capsys, "evaluate", *layout, "--weight-format", stored)
        weights = found["weights"]
        assert weights["format"] == stored
        assert weights["bytes_per_rank"] == sum(part["bytes_per_rank"] for part in weights["parts"])
        taken = found["capacity"]["budget"]["parts"]["weight_bytes"]
        assert taken == weights["bytes_per_rank"]
    names = {
        tensor
        for part in weights["parts"]
        if part["copies_in_tp_group"] == 8
        for tensor in part["tensors"]
    }
    assert {"kv_a_proj", "q_a_proj", "router"} <= names
    assert weights["replicated_bytes_per_rank"] > 0
