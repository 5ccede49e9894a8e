"""What stands between the page and the network, without a network."""

import asyncio
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ui.server import CompressedOnce

SCRIPT = "var x = 1;\n" * 500
FOREVER = "public, immutable, max-age=31536000"


class Files:
    """Counts how often each path was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        cache = FOREVER if scope["path"].startswith("/static/") else "no-cache"
        status = 404 if "missing" in scope["path"] else 200
        answer = Response(SCRIPT, status, {"cache-control": cache}, "text/javascript")
        await answer(scope, receive, send)


def ask(app: Any, path: str, method: str = "GET", **headers: str) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": named}
    asyncio.run(app(scope, receive, send))
    return sent


def served() -> tuple[Files, CompressedOnce]:
    files = Files()
    return files, CompressedOnce(GZipMiddleware(files, minimum_size=100))


def test_a_file_that_never_changes_is_compressed_once() -> None:
    files, app = served()
    first = ask(app, "/static/a.js", accept_encoding="gzip, br")
    assert dict(first[0]["headers"])[b"content-encoding"] == b"gzip"
    assert ask(app, "/static/a.js", accept_encoding="gzip") == first
    assert ask(app, "/static/b.js", accept_encoding="gzip")[0]["status"] == 200
    assert files.asked == ["/static/a.js", "/static/b.js"]


def test_everything_else_is_asked_for_every_time() -> None:
    files, app = served()
    for _ in range(2):
        ask(app, "/page", accept_encoding="gzip")
        ask(app, "/static/missing.js", accept_encoding="gzip")
        ask(app, "/static/a.js", method="HEAD", accept_encoding="gzip")
        plain = ask(app, "/static/a.js")
        assert b"content-encoding" not in dict(plain[0]["headers"])
        ask(app, "/static/a.js", accept_encoding="gzip", range="bytes=0-9")
        ask(app, "/static/a.js", accept_encoding="gzip", if_none_match='"1"')
    assert len(files.asked) == 12
