"""Where Chromium is. As a command: prints the path, or exits with 1 when none runs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def _candidates() -> Iterator[str]:
    if named := os.environ.get("CHROMIUM"):
        yield named
        return
    yield from filter(None, map(shutil.which, NAMES))
    with sync_playwright() as playwright:
        yield playwright.chromium.executable_path


def _runs(path: str) -> bool:
    # Ubuntu's chromium-browser only says where to get the snap: its existence proves nothing.
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@cache
def find_chromium() -> str | None:
    """The first browser that runs: ``$CHROMIUM``, one on the PATH, or Playwright's own."""
    return next(filter(_runs, _candidates()), None)


if __name__ == "__main__":
    sys.exit(print(path) if (path := find_chromium()) else 1)
