"""Eight CPU processes move a scenario's collectives: right, and as many bytes as predicted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    for name, counted, right in found["rows"]:
        assert right, name
        call = calls[name]
        passes = 2 if call.collective.value == "all_reduce" else 1
        predicted = passes * (RANKS - 1) * call.payload_bytes
        assert predicted <= counted < predicted * 1.03 + 60_000, name
    assert found["layer_error"] < 1e-5
