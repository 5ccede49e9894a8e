"""What keeps a run within its bounds: one at a time, a time limit, no orphans."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu.progress import fail

TIME_LIMIT_STATUS = 124


class BusyError(Exception):
    """Another run holds the lock."""


def lock_path() -> Path:
    """One path for all users of the machine; ``CALC_BENCH_LOCK`` names another."""
    named = os.environ.get("CALC_BENCH_LOCK")
    return Path(named) if named else Path(tempfile.gettempdir()) / "calc-gpu-benchmark.lock"


@contextmanager
def only_one(path: Path | None = None) -> Iterator[None]:
    """Hold the lock; the kernel drops it when the process ends, however it ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path or lock_path(), flags, 0o666)
    except PermissionError:  # another user's file in a shared folder
        handle = os.open(path or lock_path(), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BusyError from None
    try:
        yield
    finally:
        os.close(handle)


def end_after(seconds: float, with_parent: bool = False) -> None:
    """End this process after a time, or when its parent is gone, from a thread.

    A signal handler would wait for a call into the driver to return; this does not.
    """
    parent = os.getppid()
    deadline = time.monotonic() + seconds

    def watch() -> None:
        while time.monotonic() < deadline:
            if with_parent and os.getppid() != parent:
                os._exit(1)
            time.sleep(0.25)
        fail("time_limit", f"stopped after the time limit of {seconds:g} s")
        os._exit(TIME_LIMIT_STATUS)

    threading.Thread(target=watch, daemon=True, name="time limit").start()
