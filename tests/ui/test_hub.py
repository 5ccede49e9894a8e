"""Fetching a config.json by id, against a server on the loopback that stands for the Hub."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ui import hub

pytest.importorskip("huggingface_hub")

CONFIG = {"model_type": "llama", "hidden_size": 4096}


class Hub(BaseHTTPRequestHandler):
    """Answers by the name of the repository; remembers what it was asked."""

    asked: list[tuple[str, str | None]] = []  # noqa: RUF012 - one a test server

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("authorization")))
        match self.path.split("/")[2]:
            case "gated":
                self._answer(401, b"no")
            case "absent":
                self._answer(404, b"no")
            case "broken":
                self._answer(500, b"no")
            case "moved":
                self._redirect("/acme/model/resolve/main/config.json")
            case "away":
                self._redirect("http://127.0.0.2:9/acme/model/resolve/main/config.json")
            case "circle":
                self._redirect(self.path)
            case "large":
                self._answer(200, b"x", length=10**9)
            case "endless":
                self._endless()
            case "slow":
                self._slow()
            case _:
                self._answer(200, json.dumps(CONFIG).encode())

    def _answer(self, status: int, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _redirect(self, place: str) -> None:
        self.send_response(307)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            return

    def _slow(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Nothing on the screen."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    """What the Hub on the loopback was asked: (path, authorization)."""
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield Hub.asked
    server.shutdown()
    server.server_close()
    thread.join()


def refused(repo: str, revision: str = "") -> hub.HubError:
    with pytest.raises(hub.HubError) as caught:
        hub.fetch_config(repo, revision)
    return caught.value


def test_the_configured_hub_is_asked_without_a_token(asked: list[tuple[str, str | None]]) -> None:
    assert json.loads(hub.fetch_config("acme/model")) == CONFIG
    assert json.loads(hub.fetch_config("acme/model", "refs/pr/3")) == CONFIG
    assert asked == [
        ("/acme/model/resolve/main/config.json", None),
        ("/acme/model/resolve/refs%2Fpr%2F3/config.json", None),
    ]


def test_a_redirect_inside_the_hub_is_followed(asked: list[tuple[str, str | None]]) -> None:
    assert json.loads(hub.fetch_config("acme/moved")) == CONFIG
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("repo", "code"),
    [
        ("acme/gated", "gated"),
        ("acme/absent", "not_found"),
        ("acme/broken", "status"),
        ("acme/away", "elsewhere"),
        ("acme/circle", "elsewhere"),
        ("acme/large", "too_long"),
        ("acme/endless", "too_long"),
    ],
)
@pytest.mark.usefixtures("asked")
def test_what_cannot_be_fetched_is_said(repo: str, code: str) -> None:
    assert refused(repo).code == code


@pytest.mark.usefixtures("asked")
def test_a_slow_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SECONDS", 0.3)
    started = time.monotonic()
    assert refused("acme/slow").code == "timeout"
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("repo", "revision", "code"),
    [
        ("", "", "bad_id"),
        ("../etc", "", "bad_id"),
        ("a/b/c", "", "bad_id"),
        ("https://evil.example/x", "", "bad_id"),
        ("acme/model?x", "", "bad_id"),
        ("acme/model", "../main", "bad_revision"),
        ("acme/model", "a b", "bad_revision"),
    ],
)
def test_an_id_that_is_none_is_not_even_sent(
    asked: list[tuple[str, str | None]], repo: str, revision: str, code: str
) -> None:
    assert refused(repo, revision).code == code
    assert asked == []


def test_without_a_network_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused("acme/model").code == "offline"


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(hub, "installed", lambda: False)
    assert refused("acme/model").code == "not_installed"
