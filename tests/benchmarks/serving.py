"""The page, or another Streamlit script, in a process of its own on a free port of the loopback."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.browser.conftest import LOOPBACK, START_SECONDS, _free_port, _healthy

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def serving(
    script: Path = ROOT / "ui/server.py", folder: Path = ROOT
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and the process; it ends with the block."""
    port = _free_port()
    url = f"http://{LOOPBACK}:{port}"
    options = {"address": LOOPBACK, "port": port, "headless": "true", "fileWatcherType": "none"}
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    command += [f"--server.{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait(10)
