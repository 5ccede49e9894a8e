"""Eight CPU processes move a scenario's collectives: right, and as many bytes as predicted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calc.measured import LayerFacts
from gpu.collective_plan import calls_for

pytest.importorskip("torch", reason="needs PyTorch (requirements-gpu.txt); a CPU build will do")

ROOT = Path(__file__).resolve().parents[2]
RANKS = 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_processes_move_what_the_calculator_counts(tmp_path: Path) -> None:
    from tests.gpu.gloo_ranks import SCENARIO

    command = [sys.executable, "-m", "tests.gpu.gloo_ranks", str(tmp_path / "store")]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(RANKS)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(RANKS)
    ]
    out, _ = processes[0].communicate(timeout=280)
    assert [process.wait(20) for process in processes] == [0] * RANKS
    found = json.loads(out.splitlines()[-1])
    calls = {call.name: call for call in calls_for(SCENARIO, RANKS)}
    assert {"mla.gather_query", "mla.exchange_partials", "model.embedding"} <= set(calls)
    for name, counted, right in found:
        assert right, name
        call = calls[name]
        passes = 2 if call.collective.value == "all_reduce" else 1
        predicted = passes * (RANKS - 1) * call.payload_bytes
        assert predicted <= counted < predicted * 1.03 + 60_000, name


def collectives(*options: str, ranks: int, tmp_path: Path) -> dict[str, Any]:
    """What the command says when it starts its processes itself."""
    command = [sys.executable, "-m", "gpu", "collectives", "--backend", "gloo"]
    done = subprocess.run(
        [*command, "--ranks", str(ranks), *options],
        cwd=ROOT,
        env=os.environ | {"CALC_BENCH_LOCK": str(tmp_path / "lock")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, "error" in said) == (0, False), said
    return said


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_layer_over_processes_equals_unsharded_attention_alone_and_loaded(
    ranks: int, tmp_path: Path
) -> None:
    options = ("--preset", "kimi-k3", "--tp", str(ranks), "--dcp", str(ranks), "--batch", "4")
    said = collectives(*options, "--loaded", ranks=ranks, tmp_path=tmp_path)
    assert {row["backend"] for row in said["collectives"]} == {"gloo"}
    assert [row["exchange"] for row in said["layers"]] == ["a2a", "ag_rs"]
    for row in said["layers"]:
        facts = LayerFacts.model_validate_json(json.dumps(row))
        assert (facts.right, facts.heads, facts.ranks) == (True, 96, ranks)
        assert facts.error < 1e-5
        assert facts.timing
        assert facts.expert
        assert facts.loaded
        assert facts.expert_payload_bytes == 4 // ranks * 16 * 3584 * 2


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_without_latent_layers_or_experts_the_command_says_so(tmp_path: Path) -> None:
    options = ("--preset", "llama-3.1-8b", "--tp", "2", "--loaded")
    said = collectives(*options, ranks=2, tmp_path=tmp_path)
    assert said["layers"] == []
    assert said["skipped"][0]["code"] == "no_layer"
