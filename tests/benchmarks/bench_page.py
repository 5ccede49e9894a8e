"""How long a reader waits for the page; prints figures and asserts nothing.

Run from the project's folder: ``.venv/bin/python -m tests.benchmarks.bench_page``

Every figure stands beside that of a page with one button and one number, measured in turns on the
same machine: the difference is what this page costs, the rest is Streamlit, Chromium and the load.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import find_chromium
from tests.browser.conftest import BROWSER_ARGS, LOOPBACK, _free_port, _healthy, settle

ROOT = Path(__file__).resolve().parents[2]
VISITS = 7
CHANGES = 10

BASELINE = """
import streamlit as st

state = st.session_state
state.setdefault("count", 1)
st.button("more", key="more", on_click=lambda: state.update(count=state.count + 1))
st.metric("count", state.count)
"""

NUMBERS = "[data-testid=stMetricValue]"

WATCH = """() => {
    window.asked = window.changed = undefined;
    for (const event of ["pointerdown", "keydown"])
        document.addEventListener(event, () => { window.asked = performance.now(); }, true);
    const digits = (node) => /[0-9]/.test(node.textContent ?? "");
    new MutationObserver((records) => {
        const nodes = (r) => r.type === "characterData" ? [r.target] : [...r.addedNodes];
        const drawn = records.flatMap(nodes);
        if (window.asked !== undefined && drawn.some(digits)) window.changed = performance.now();
    }).observe(
        document.querySelector("[data-testid=stMain]"),
        { subtree: true, childList: true, characterData: true },
    );
}"""


@contextlib.contextmanager
def served(script: Path, folder: Path) -> Iterator[str]:
    """The address of a Streamlit script, served as the tests serve the page."""
    port = _free_port()
    url = f"http://{LOOPBACK}:{port}"
    options = {"address": LOOPBACK, "port": port, "headless": "true", "fileWatcherType": "none"}
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    command += [f"--server.{name}={value}" for name, value in options.items()]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet) as process:
        try:
            while not _healthy(url):
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()


@contextlib.contextmanager
def visited(browser: Browser, url: str) -> Iterator[Page]:
    """A page in a browser context of its own: nothing is cached."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.goto(url)
        yield page
    finally:
        context.close()


def first_visit(browser: Browser, url: str) -> float:
    """Seconds from asking for the page to its first headline number."""
    start = time.perf_counter()
    with visited(browser, url) as page:
        page.wait_for_function(
            "() => [...document.querySelectorAll"
            f"('{NUMBERS}')].some(n => /[0-9]/.test(n.textContent))"
        )
        return time.perf_counter() - start


def answer(page: Page, act: Callable[[], None]) -> float:
    """Seconds from a key or a click to the last number that it changed on the page."""
    page.evaluate("window.asked = window.changed = undefined")
    act()
    page.wait_for_function("() => window.changed !== undefined", timeout=30_000)
    settle(page)
    return float(page.evaluate("(window.changed - window.asked) / 1000"))


def typed(page: Page, key: str) -> Callable[[int], None]:
    """Types a value into a number field and leaves it with Enter."""
    field = page.locator(f".st-key-{key} input")

    def act(value: int) -> None:
        field.fill(str(value))
        field.press("Enter")

    return act


def show(what: str, found: list[float]) -> None:
    """One line: median and range, in milliseconds."""
    low, middle, high = (1e3 * value for value in (min(found), median(found), max(found)))
    print(f"{what:<52}{middle:>8.0f} ms   ({low:.0f} to {high:.0f}, n={len(found)})")


def measure(browser: Browser, ours: str, baseline: str) -> None:
    """All figures, the two pages in turns."""
    visits: dict[str, list[float]] = {ours: [], baseline: []}
    for turn in range(VISITS + 1):
        for url, found in visits.items():
            taken = first_visit(browser, url)
            if turn:  # the first visit warms the server
                found.append(taken)
    show("visit to the first headline number", visits[ours])
    show("  one-button page", visits[baseline])

    with visited(browser, ours) as page, visited(browser, baseline) as simple:
        for each in (page, simple):
            settle(each)
            each.evaluate(WATCH)
        batch = typed(page, "batch")
        pills = page.locator(".st-key-quick_context button")
        button = simple.locator(".st-key-more button")
        numbers: list[float] = []
        clicks: list[float] = []
        plain: list[float] = []
        for turn in range(CHANGES):
            numbers.append(answer(page, lambda turn=turn: batch(65 + turn)))  # type: ignore[misc]
            clicks.append(answer(page, pills.nth(turn % 2).click))
            plain.append(answer(simple, button.click))
        show("another batch size to the last changed number", numbers)
        show("another context by its button, the same", clicks)
        show("  one-button page", plain)


def main() -> None:
    """Serve both pages, measure, print."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        script = Path(folder) / "baseline.py"
        script.write_text(BASELINE, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_ARGS)
        with served(ROOT / "ui/server.py", ROOT) as ours, served(script, Path(folder)) as baseline:
            measure(browser, ours, baseline)
        browser.close()


if __name__ == "__main__":
    main()
