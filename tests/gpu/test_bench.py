"""The page's job control, against a worker that only pretends."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ui import bench
from ui.bench import Bench, Job, gpu_count, why_not, worker_command

FAKE = Path(__file__).with_name("fake_worker.py")


def fake(limit_s: float = 20.0) -> Bench:
    """A Bench whose "scenario" is what the fake worker shall do."""
    return Bench(lambda what, calibrate: [sys.executable, str(FAKE), what], limit_s)


def started(runner: Bench, what: str, owner: str = "anna") -> Job:
    job = runner.start(owner, what)
    assert job is not None
    return job


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(job: Job) -> Job:
    assert job.finished.wait(15)
    return job


@pytest.mark.parametrize("what", ["result", "noise"])
def test_a_run_ends_with_its_result(what: str) -> None:
    job = ended(started(fake(), what))
    assert (job.status, job.step, job.of, job.code) == ("done", 1, 3, "")
    assert job.result is not None
    assert job.result.model == "Kimi K3"


def test_progress_is_seen_while_it_runs() -> None:
    runner = fake()
    job = started(runner, "hang")
    until(lambda: job.step == 1)
    assert (job.running, job.of, job.name) == (True, 3, "machine")
    assert job.share == pytest.approx(1 / 3)
    assert runner.cancel("anna")
    ended(job)


def test_a_second_user_sees_busy_and_cannot_cancel() -> None:
    runner = fake()
    job = started(runner, "hang")
    assert runner.start("bert", "result") is None
    assert not runner.cancel("bert")
    assert job.running
    assert runner.job is job
    assert runner.cancel("anna")
    assert ended(job).status == "cancelled"
    assert ended(started(runner, "result", "bert")).status == "done"


def test_cancelling_ends_what_the_worker_started_too() -> None:
    runner = fake()
    job = started(runner, "child")
    until(lambda: job.step == 2)
    child = int(job.name)
    assert runner.cancel("anna")
    assert ended(job).status == "cancelled"

    def gone() -> bool:
        try:
            state = Path(f"/proc/{child}/stat").read_text(encoding="ascii").split()[2]
        except FileNotFoundError:
            return True
        return state == "Z"

    until(gone)


def test_a_worker_that_ignores_the_signal_is_ended_all_the_same() -> None:
    runner = fake()
    job = started(runner, "deaf")
    until(lambda: job.step == 2)
    assert runner.cancel("anna")
    assert ended(job).status == "cancelled"


def test_the_time_limit_ends_a_run() -> None:
    job = ended(started(fake(limit_s=0.5), "hang"))
    assert (job.status, job.code) == ("failed", "time_limit")


@pytest.mark.parametrize(
    ("what", "code"),
    [("crash", "killed"), ("exit", "crashed"), ("oom", "out_of_memory"), ("bad", "bad_result")],
)
def test_a_run_without_a_result_says_why(what: str, code: str) -> None:
    job = ended(started(fake(), what))
    assert (job.status, job.code, job.result) == ("failed", code, None)
    assert job.message
    assert "Traceback" not in job.message


def test_it_is_off_unless_the_server_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(bench.ALLOWED, raising=False)
    assert why_not() == "not_allowed"
    monkeypatch.setenv(bench.ALLOWED, "1")
    monkeypatch.setattr(bench, "gpu_count", lambda: 0)
    assert why_not() == "no_gpu"


def test_gpus_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    calls = tmp_path / "calls"
    program.write_text(f"#!/bin/sh\necho x >>{calls}\necho 'GPU 0: A (UUID: x)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    gpu_count.cache_clear()
    try:
        assert (gpu_count(), gpu_count()) == (1, 1)
        assert calls.read_text() == "x\n"
    finally:
        gpu_count.cache_clear()


def test_the_worker_gets_the_scenario_as_a_link() -> None:
    command = worker_command("v=1&model=kimi-k3")
    assert command[1:5] == ["-m", "gpu", "run", "--link"]
    assert command[5] == "v=1&model=kimi-k3"
    assert "--calibrate" not in command
    longer = worker_command("v=1&model=kimi-k3", calibrate=True)
    assert longer[-1] == "--calibrate"
    assert float(longer[7]) > float(command[7])
