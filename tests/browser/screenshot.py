"""Draws docs/screenshot.png anew: ``.venv/bin/python -m tests.browser.screenshot``."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.benchmarks.serving import serving
from tests.browser.chromium import find_chromium
from tests.browser.conftest import BROWSER_ARGS, ROOT, settle

PICTURE = ROOT / "docs" / "screenshot.png"


def draw(path: Path) -> None:
    """The page as a new visitor sees it."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: apt-get install chromium")
    with serving() as (url, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_ARGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, locale="en-US")
        page.goto(url)
        settle(page)
        page.wait_for_timeout(1500)  # until the plots have faded in
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    draw(PICTURE)
