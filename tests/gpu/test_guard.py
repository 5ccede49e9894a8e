"""One run at a time on a machine, a time limit, and one sentence where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.guard import BusyError, only_one

ROOT = Path(__file__).resolve().parents[2]
HOLD = (
    "from gpu.guard import only_one\nwith only_one():\n    print('held', flush=True)\n    input()"
)


def python(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_process_is_refused_and_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with python("-c", HOLD, CALC_BENCH_LOCK=str(path)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError), only_one(path):
            pass
        holder.kill()
        holder.wait()
    with only_one(path):
        pass


def test_the_time_limit_ends_a_process_that_is_stuck() -> None:
    code = "import time\nfrom gpu.guard import end_after\nend_after(0.3)\ntime.sleep(30)"
    with python("-c", code) as process:
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 124
    assert json.loads(out)["error"]["code"] == "time_limit"


def last_line(*arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    with python("-m", "gpu", *arguments, **environment) as process:
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in out + err
    return process.returncode, json.loads(out.splitlines()[-1])


def test_without_a_gpu_a_run_ends_with_one_sentence(tmp_path: Path) -> None:
    status, said = last_line(
        *("run", "--preset", "kimi-k3", "--tp", "8", "--json"),
        CALC_BENCH_LOCK=str(tmp_path / "lock"),
        CUDA_VISIBLE_DEVICES="",
    )
    assert status == 1
    assert said["error"]["code"] in ("no_torch", "no_cuda")


def test_a_scenario_that_cannot_be_is_named() -> None:
    status, said = last_line("run", "--preset", "kimi-k3", "--tp", "7", "--dcp", "x", "--json")
    assert status == 2
    assert said["error"]["message"].startswith("dcp:")


def test_a_second_run_says_that_one_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with only_one(path):
        status, said = last_line("run", "--preset", "kimi-k3", CALC_BENCH_LOCK=str(path))
    assert (status, said["error"]["code"]) == (1, "busy")


def test_facts_need_neither_torch_nor_a_gpu() -> None:
    with python("-m", "gpu", "facts") as process:
        out, _ = process.communicate(timeout=60)
    facts = json.loads(out)
    assert set(facts) >= {"gpus", "libraries", "ready"}
    assert facts["ready"] or facts["reason"]
