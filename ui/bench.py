"""Job control of the GPU benchmark: one run at a time on this server, whoever asks. No Streamlit.

The benchmark is a process of its own (``python -m gpu run``), so that a faulty
kernel or a hung driver cannot take the page down. It prints one JSON line a
step; the last one is the result, or an error of one sentence.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from calc.errors import CalcError
from calc.measured import MAX_BYTES, Measured, read_result

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = "CALC_BENCH"
"""Environment variable that lets visitors start the benchmark; "1" on a machine with a GPU."""
PYTHON = "CALC_BENCH_PYTHON"
"""Environment variable that names the interpreter with torch, if it is not the page's own."""
TIME_LIMIT_S = 90.0
CALIBRATION_S = 150.0
"""What a calibration may take longer."""
GRACE_S = 15.0
"""The worker ends itself at its limit; this much later the page ends it."""
LONGEST_LINE = MAX_BYTES + 4096

Status = Literal["running", "done", "failed", "cancelled"]
Reason = Literal["not_allowed", "no_gpu", "no_torch"]


@dataclass(slots=True)
class Job:
    """One run, as the reader thread sees it."""

    owner: str
    started: float
    process: subprocess.Popen[bytes]
    step: int = 0
    of: int = 0
    name: str = ""
    status: Status = "running"
    result: Measured | None = None
    code: str = ""
    message: str = ""
    stopped: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def running(self) -> bool:
        return self.status == "running"

    @property
    def share(self) -> float:
        """How much of the run is done, 0 to 1."""
        return min(1.0, self.step / self.of) if self.of else 0.0


@functools.cache
def gpu_count() -> int:
    """GPUs that the driver lists; asked once. Nothing large is imported."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        answer = subprocess.run([program, "-L"], capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith(b"GPU ") for line in answer.stdout.splitlines())


def why_not() -> Reason | None:
    """Why the benchmark cannot be started from here, or None."""
    if os.environ.get(ALLOWED) != "1":
        return "not_allowed"
    if gpu_count() == 0:
        return "no_gpu"
    own_python = PYTHON not in os.environ
    if own_python and importlib.util.find_spec("torch") is None:
        return "no_torch"
    return None


def worker_command(query: str, calibrate: bool = False) -> list[str]:
    """The command that measures the scenario of a share link's query."""
    python = os.environ.get(PYTHON, sys.executable)
    limit = f"{TIME_LIMIT_S + CALIBRATION_S * calibrate:g}"
    command = [python, "-m", "gpu", "run", "--link", query, "--time-limit", limit, "--json"]
    return command + ["--calibrate"] * calibrate


class Bench:
    """The server's one benchmark. ``start`` returns None while another run is under way."""

    def __init__(
        self,
        command: Callable[[str, bool], Sequence[str]] = worker_command,
        limit_s: float = TIME_LIMIT_S + GRACE_S,
    ) -> None:
        self._command = command
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._job: Job | None = None

    @property
    def job(self) -> Job | None:
        """The present run, else the last one."""
        return self._job

    def start(self, owner: str, query: str, calibrate: bool = False) -> Job | None:
        """Start a run for one session; None when a run is under way."""
        with self._lock:
            if self._job is not None and self._job.running:
                return None
            process = subprocess.Popen(
                list(self._command(query, calibrate)),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            job = self._job = Job(owner, time.time(), process)
        limit_s = self._limit_s + CALIBRATION_S * calibrate
        watchdog = threading.Timer(limit_s, _stop, (job, "time_limit"))
        watchdog.daemon = True
        watchdog.start()
        threading.Thread(target=_read, args=(job, watchdog), daemon=True).start()
        return job

    def cancel(self, owner: str) -> bool:
        """End the run of this owner, with everything it started; False if it is not theirs."""
        job = self._job
        if job is None or not job.running or job.owner != owner:
            return False
        _stop(job, "cancelled")
        return True


def _stop(job: Job, why: str) -> None:
    """End the whole process group: the worker may have ranks of its own."""
    if not job.running:
        return
    job.stopped = job.stopped or why
    for ending in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(job.process.pid, ending)
        except ProcessLookupError:
            return
        if job.finished.wait(2.0):
            return


def _read(job: Job, watchdog: threading.Timer) -> None:
    """Follow the worker's lines to their end, then say how it ended."""
    assert job.process.stdout is not None
    with job.process.stdout as lines:
        _follow(job, lines)
    status = job.process.wait()
    watchdog.cancel()
    job.status = _ended(job, status)
    job.finished.set()


def _follow(job: Job, lines: IO[bytes]) -> None:
    while line := lines.readline(LONGEST_LINE):
        try:
            said = json.loads(line)
        except ValueError:
            continue  # a library wrote to standard output
        if isinstance(said, dict):
            _take(job, said)


def _take(job: Job, said: dict[str, object]) -> None:
    match said:
        case {"step": int(step), "of": int(of), "name": str(name)}:
            job.step, job.of, job.name = step, of, name[:80]
        case {"error": {"code": str(code), "message": str(message)}}:
            job.code, job.message = code[:40], message[:400]
        case {"result": dict(result)}:
            try:
                job.result = read_result(json.dumps(result))
            except CalcError as error:
                job.code, job.message = "bad_result", str(error)


def _ended(job: Job, status: int) -> Status:
    if job.stopped == "cancelled":
        return "cancelled"
    if job.result is not None:
        return "done"
    if job.stopped:
        job.code = job.stopped
    elif not job.code:
        job.code = "killed" if status < 0 else "crashed"
        job.message = f"signal {-status}" if status < 0 else f"exit status {status}"
    return "failed"
