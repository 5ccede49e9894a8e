"""The page in a real browser: one server and one Chromium a session, a fresh context a visit.

``open_page()`` visits the page as a new user and hands it over once its first run is over; ``page``
is one such visit with the defaults. A test fails when anything it opened asked another host than
this machine.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.chromium import find_chromium

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
START_SECONDS = 60
RUN_SECONDS = 60
BROWSER_ARGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

OpenPage = Callable[..., Page]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder needs Chromium, so that no test can forget its marker."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, served by a process of its own; if it dies, its log is shown."""
    log = tmp_path_factory.mktemp("server") / "log"
    url = f"http://{LOOPBACK}:{(port := _free_port())}"
    options = {"address": LOOPBACK, "port": port, "headless": "true", "fileWatcherType": "none"}
    command = [sys.executable, "-m", "streamlit", "run", "ui/server.py"]
    command += [f"--server.{name}={value}" for name, value in options.items()]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text()}", pytrace=False)
            time.sleep(0.1)
        yield url
        if process.poll() is not None:
            pytest.fail(f"the server died during the tests:\n{log.read_text()}", pytrace=False)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; without one the tests are skipped, but never in CI."""
    path = find_chromium()
    if path is None:
        reason = "no Chromium found: apt-get install chromium fonts-noto-cjk"
        if os.environ.get("CI", "") not in ("", "0", "false"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGS)
        yield chromium
        chromium.close()


def settle(page: Page) -> None:
    """Wait until the script is over, has stayed so for a moment, and no placeholder is drawn.

    The moment is for a click or a key whose request has not left the browser yet.
    """
    page.evaluate("delete window.quietSince")
    page.wait_for_function(
        """() => {
            const app = document.querySelector("[data-testid=stApp]");
            const quiet = app?.dataset.testScriptState === "notRunning"
                && !document.querySelector("[data-testid=stSkeleton]");
            window.quietSince = quiet ? window.quietSince ?? performance.now() : undefined;
            return quiet && performance.now() - window.quietSince > 200;
        }""",
        timeout=RUN_SECONDS * 1000,
    )


@pytest.fixture
def open_page(server: str, browser: Browser) -> Iterator[OpenPage]:
    """Visits the page as a new user: ``open_page("?v=1&...", width=390, color_scheme="dark")``."""
    contexts: list[BrowserContext] = []
    foreign: set[str] = set()

    def note(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != LOOPBACK:
            foreign.add(url)

    def visit(
        path: str = "",
        *,
        width: int = 1440,
        height: int = 900,
        color_scheme: Literal["light", "dark"] = "light",
        locale: str = "en-US",
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=color_scheme,
            locale=locale,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        context.on("request", lambda request: note(request.url))
        context.on("page", lambda page: page.on("websocket", lambda ws: note(ws.url)))
        page = context.new_page()
        page.goto(f"{server}/{path}")
        settle(page)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not foreign, f"the page asked other hosts: {sorted(foreign)}"


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """One visit with the defaults: 1440 px, light, English."""
    return open_page()
