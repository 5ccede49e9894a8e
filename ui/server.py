"""The page as an ASGI application: compressed, with security headers, warm before the first visit.

``bin/serve`` and the container start it: ``streamlit run ui/server.py``.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import importlib
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import streamlit
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.starlette import App

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

HEAVY = ("numpy", "pandas", "plotly.graph_objects", "pydantic", "calc.report", "calc.timing.report")
"""What the first visit would otherwise wait for."""


def inline_scripts() -> str:
    """Hashes of the scripts that stand in Streamlit's own page, which a policy may then allow."""
    page = Path(streamlit.__file__).with_name("static") / "index.html"
    found = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    digests = (hashlib.sha256(script.encode()).digest() for script in found)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


CONTENT_POLICY = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' 'wasm-unsafe-eval' {inline_scripts()}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "frame-ancestors 'self'",
    )
)
"""Nothing from any other host; styles in elements are how the page is drawn."""
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # an address holds the whole scenario
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-frame-options": "SAMEORIGIN",
}


class SecurityHeaders:
    """Adds ``HEADERS`` to every answer that has not set them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in there
                    ),
                ]
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class CompressedOnce:
    """Keeps the compressed answer for each file whose name changes with its content.

    Otherwise every new visitor would have 9 MB compressed again, in the thread that serves all.
    """

    ASKED_ANEW = (b"range", b"if-none-match", b"if-modified-since")

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.kept: dict[str, tuple[Message, ...]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = dict(scope["headers"]) if scope["type"] == "http" else {}
        zipped = b"gzip" in asked.get(b"accept-encoding", b"")
        if not zipped or scope["method"] != "GET" or any(name in asked for name in self.ASKED_ANEW):
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if path in self.kept:
            for message in self.kept[path]:
                await send(message)
            return
        sent: list[Message] = []

        async def recorded(message: Message) -> None:
            sent.append(message)
            await send(message)

        await self.app(scope, receive, recorded)
        headers = dict(sent[0].get("headers", ()))
        if sent[0].get("status") == 200 and b"immutable" in headers.get(b"cache-control", b""):
            self.kept[path] = tuple(sent)


@asynccontextmanager
async def warm(app: App) -> AsyncIterator[dict[str, Any] | None]:
    """Import what is slow, and compute one scenario, before anybody waits for it."""
    for name in HEAVY:
        importlib.import_module(name)
    from calc.report import evaluate  # after the path is set
    from ui.state import START

    evaluate(START)
    gc.collect()
    gc.freeze()  # what is loaded stays: no later collection walks through it
    yield None


app = App(
    ROOT / "app.py",
    lifespan=warm,
    middleware=[
        Middleware(SecurityHeaders),
        Middleware(CompressedOnce),
        Middleware(GZipMiddleware, minimum_size=1024, compresslevel=6),
    ],
)
