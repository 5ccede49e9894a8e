"""The tensors of the table, moved once for real: eight processes, torch.distributed over gloo."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calc.layers import Attention, LatentAttention, MoeFfn
from calc.model import Layer
from tests.calc.models import model, report

ROOT = Path(__file__).resolve().parents[2]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def payloads(backend: str) -> dict[str, int]:
    """Payload bytes of one layer of each kind, from the traffic table."""
    latent = LatentAttention(
        heads=16, kv_lora_rank=16, rope_dim=6, nope_dim=12, v_dim=10, q_lora_rank=20
    )
    striped = report(
        model(Layer(mixers=(latent,)), hidden_size=48), tp=8, dcp=8, batch=8, dcp_backend=backend
    )
    replicas = report(
        model(
            Layer(
                mixers=(Attention(heads=1, kv_heads=1, k_dim=4, v_dim=4),),
                ffns=(MoeFfn(experts=16, top_k=3, intermediate_size=16),),
            ),
            hidden_size=48,
        ),
        dp=8,
        batch=8,
        ep="on",
    )
    rows = [row for row in striped.step.stages if row.kind == "mla"]
    rows += [row for row in replicas.step.stages if row.kind == "moe"]
    return {row.name: row.payload.value for row in rows if row.payload is not None}


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("backend", ["ag_rs", "a2a"])
def test_eight_processes_move_the_tensors_of_the_table(backend: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.calc.gloo_step", str(tmp_path / "store"), backend],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["worst"] < 1e-10
    assert found["payload"] == payloads(backend)
