"""How the page is served: compressed, with headers, warm, and from this host alone."""

import urllib.request

from tests.browser.conftest import OpenPage
from ui.server import HEADERS

MOST_MEGABYTES = 3.0
"""What a first visit may move."""


def test_every_answer_carries_the_headers(server: str) -> None:
    with urllib.request.urlopen(server) as answer:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_scripts_are_compressed_and_kept(server: str) -> None:
    with urllib.request.urlopen(server) as answer:
        name = answer.read().decode().partition('src="./static/js/')[2].partition('"')[0]
    request = urllib.request.Request(
        f"{server}/static/js/{name}", headers={"Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "immutable" in answer.headers["Cache-Control"]


def test_a_first_visit_moves_little_and_breaks_no_policy(open_page: OpenPage) -> None:
    page = open_page()
    moved = page.evaluate(
        "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0)"
    )
    assert 0.5e6 < moved < MOST_MEGABYTES * 1e6
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.reload()
    page.wait_for_timeout(1500)
    assert not faults
