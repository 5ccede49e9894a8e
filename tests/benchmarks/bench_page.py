"""How long a reader waits for the page; prints figures and asserts nothing.

Run from the project's folder: ``.venv/bin/python -m tests.benchmarks.bench_page``

Every figure stands beside that of a minimal page, measured in turns on the same machine, and the
ratio of the two: the difference is what this page costs, the rest is Streamlit, Chromium and the
load. A number counts wherever it is drawn outside a chart, a chart until its last change.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright

from tests.benchmarks.serving import serving
from tests.browser.chromium import find_chromium
from tests.browser.conftest import BROWSER_ARGS, settle

VISITS = 7
CHANGES = 12

COUNTER = """
import streamlit as st

state = st.session_state
state.setdefault("count", 1)
st.button("more", key="more", on_click=lambda: state.update(count=state.count + 1))
st.metric("count", state.count)
"""
BASELINES = {
    "one-button page": COUNTER,
    "page of 15 inputs, 4 numbers, no chart": COUNTER
    + """
with st.sidebar:
    for at in range(15):
        st.number_input(f"input {at}", 0, 100, at, key=f"input_{at}")
for at, column in enumerate(st.columns(4)):
    column.metric(f"number {at}", at * state.count)
""",
    "page of two charts of four lines": COUNTER
    + """
for at in range(2):
    x = list(range(64))
    lines = [{"x": x, "y": [each + at + state.count * place for place in x]} for each in range(4)]
    st.plotly_chart({"data": lines, "layout": {"height": 360}}, key=f"chart_{at}")
""",
}
BUTTON, CHARTLESS, CHARTS = BASELINES
OURS = "this page"

WATCH = """() => {
    const digits = (node) => /[0-9]/.test(node.textContent ?? "");
    const element = (node) => node.nodeType === 1 ? node : node.parentElement;
    window.ask = () => { window.asked = performance.now(); window.number = window.chart = null; };
    window.asked = 0;
    window.number = window.chart = window.firstNumber = null;
    for (const event of ["pointerdown", "keydown"])
        document.addEventListener(event, window.ask, true);
    new MutationObserver((records) => {
        const now = performance.now();
        const drawn = records
            .flatMap((r) => r.type === "characterData" ? [r.target] : [...r.addedNodes])
            .filter((node) => node.isConnected && element(node)?.closest("[data-testid=stMain]"));
        for (const node of drawn) {
            if (element(node).closest("[data-testid=stPlotlyChart]")) window.chart = now;
            else if (digits(node)) window.number = now;
        }
        if (document.querySelector("[data-testid=stMetricValue]")) window.firstNumber ??= now;
    }).observe(document, { subtree: true, childList: true, characterData: true });
}"""


@contextlib.contextmanager
def visited(browser: Browser, url: str) -> Iterator[Page]:
    """A page in a browser context of its own, with nothing cached, once it has settled."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(f"({WATCH})()")
        page.goto(url)
        page.wait_for_selector("[data-testid=stMetricValue]")
        settle(page)
        yield page
    finally:
        context.close()


def seconds(page: Page, what: str) -> float | None:
    """From the last key, click or navigation to the moment kept under a name."""
    found = page.evaluate(f"window.{what} && (window.{what} - window.asked) / 1000")
    return None if found is None else float(found)


def first_visit(browser: Browser, url: str) -> tuple[float | None, float | None]:
    """Seconds from asking for a page to its first number and to its last chart."""
    with visited(browser, url) as page:
        return seconds(page, "firstNumber"), seconds(page, "chart")


def answer(page: Page, act: Callable[[], None]) -> tuple[float | None, float | None]:
    """Seconds from a key or a click to the last number and the last chart that it changed."""
    act()
    page.wait_for_function("() => window.number !== null", timeout=30_000)
    settle(page)
    return seconds(page, "number"), seconds(page, "chart")


def typed(page: Page, key: str) -> Callable[[int], None]:
    """Types a value into a number field and leaves it with Enter."""
    field = page.locator(f".st-key-{key} input")

    def act(value: int) -> None:
        field.fill(str(value))
        field.press("Enter")

    return act


class Times:
    """The times of one kind of event on several pages."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}

    def add(self, page: str, taken: float | None) -> None:
        if taken is not None:
            self.found.setdefault(page, []).append(taken)

    def show(self, what: str, *pages: str, beside: str) -> None:
        """Median and range of each page in milliseconds, and its ratio to the last one's median."""
        print(what)
        for page in (*pages, beside):
            found = self.found[page]
            low, middle, high = (1e3 * value for value in (min(found), median(found), max(found)))
            ratio = middle / (1e3 * median(self.found[beside]))
            print(f"  {page:<48}{middle:>8.0f} ms {ratio:>6.2f}x   ({low:.0f} to {high:.0f})")


def measure_visits(browser: Browser, urls: Mapping[str, str]) -> None:
    """Cold visits, the pages in turns; the first of each only warms its server."""
    numbers, charts = Times(), Times()
    for turn in range(VISITS + 1):
        for name, url in urls.items():
            number, chart = first_visit(browser, url)
            if turn:
                numbers.add(name, number)
                charts.add(name, chart)
    numbers.show("first visit to the first number", OURS, BUTTON, beside=CHARTLESS)
    charts.add(CHARTLESS, median(numbers.found[CHARTLESS]))
    charts.show("first visit to the last chart", OURS, CHARTS, beside=CHARTLESS)


def measure_changes(browser: Browser, urls: Mapping[str, str]) -> None:
    """Changes of inputs, the pages in turns."""
    batches, contexts, charts = Times(), Times(), Times()
    with contextlib.ExitStack() as stack:
        pages = {name: stack.enter_context(visited(browser, url)) for name, url in urls.items()}
        ours = pages.pop(OURS)
        batch, pills = typed(ours, "batch"), ours.locator(".st-key-quick_context button")
        for turn in range(CHANGES):
            batches.add(OURS, answer(ours, partial(batch, 65 + turn))[0])
            number, chart = answer(ours, pills.nth(turn % 2).click)
            contexts.add(OURS, number)
            charts.add(OURS, chart)
            for name, page in pages.items():
                number, chart = answer(page, page.locator(".st-key-more button").click)
                batches.add(name, number)
                contexts.add(name, number)
                charts.add(name, chart)
    batches.show("another batch size to the last changed number", OURS, CHARTLESS, beside=BUTTON)
    contexts.show("another context to the last changed number", OURS, CHARTLESS, beside=BUTTON)
    charts.show("another context to the last changed chart", OURS, beside=CHARTS)


def main() -> None:
    """Serve all pages, measure, print."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: apt-get install chromium")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {OURS: stack.enter_context(serving())[0]}
        for at, (name, text) in enumerate(BASELINES.items()):
            script = folder / f"baseline_{at}.py"
            script.write_text(text, encoding="utf-8")
            urls[name] = stack.enter_context(serving(script, folder))[0]
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_ARGS)
        measure_visits(browser, urls)
        measure_changes(browser, urls)
        browser.close()


if __name__ == "__main__":
    main()
