"""What needs a GPU: ``pytest -m gpu tests/gpu``."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def device():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda", 0)


def run(*arguments: str, **environment: str):
    command = [sys.executable, "-m", "gpu", "run", "--json", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("tma", [True, False])
@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "k_dim", "v_dim", "latent", "tokens"),
    [
        (12, 1, 576, 512, True, 1000),
        (96, 1, 576, 512, True, 1024),
        (32, 8, 128, 128, False, 1000),
        (8, 1, 192, 128, False, 999),
        (71, 1, 64, 64, False, 320),
        (2, 1, 512, 512, False, 640),
    ],
)
def test_our_kernel_is_right(
    device, heads, kv_heads, k_dim, v_dim, latent, tokens, splits, tma
) -> None:
    from gpu.own import SplitDecode
    from gpu.problem import References, empty_cache, problem
    from gpu.shapes import AttentionShape

    shape = AttentionShape(
        "test", 1, 3, tokens, heads, kv_heads, k_dim, v_dim, latent, k_dim**-0.5, tokens
    )
    task = problem(shape, empty_cache(shape, device))
    decode = SplitDecode(shape, task.q, task.k, task.v, tma, splits)
    decode.out.fill_(math.nan)
    decode.lse.fill_(math.nan)
    assert References(task).check(*decode()).right


def test_a_small_card_gets_fewer_tokens(device) -> None:
    import torch

    from gpu.memory import allocate, drop_unused
    from gpu.problem import empty_cache
    from gpu.shapes import AttentionShape

    wanted = AttentionShape("mla", 1, 64, 65_536, 12, 1, 576, 512, True, 0.07, 65_536)
    drop_unused()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(2.0e9 / total)
    try:
        shape, cache, seen = allocate(wanted, lambda one: empty_cache(one, device))
        assert shape.tokens < wanted.tokens
        assert seen.within
        assert seen.seen == pytest.approx(cache.numel() * 2, abs=2 * 2**20)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_run_measures_and_a_second_one_is_refused(device, tmp_path: Path) -> None:
    from calc.measured import read_result
    from gpu.guard import only_one

    lock = tmp_path / "lock"
    options = ("--preset", "llama-3.1-70b", "--tp", "8", "--batch", "32", "--context", "16384")
    status, lines = run(*options, "--no-sustained", CALC_BENCH_LOCK=str(lock))
    assert status == 0
    result = read_result(json.dumps(lines[-1]["result"]))
    assert result.kernels[0].best is not None
    assert all(memory.within for memory in result.memory)
    assert all(merge.right for merge in result.merge)
    with only_one(lock):
        status, lines = run(*options, CALC_BENCH_LOCK=str(lock))
    assert (status, lines[-1]["error"]["code"]) == (1, "busy")


def test_the_time_limit_holds_while_a_kernel_runs(device, tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    status, lines = run("--preset", "kimi-k3", "--time-limit", "3", CALC_BENCH_LOCK=lock)
    assert (status, lines[-1]["error"]["code"]) == (124, "time_limit")
