"""Fetches a model's config.json from the Hugging Face Hub; the only place that talks to it.

``huggingface_hub`` is optional. Only the configured endpoint (``HF_ENDPOINT``) is asked, redirects
to other hosts are not followed, no token is sent, and what comes is bounded in size and time.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import time
from typing import Any
from urllib.parse import urljoin, urlsplit

ENDPOINT = "https://huggingface.co"
FILE = "config.json"
MAX_BYTES = 1_000_000
SECONDS = 10.0
"""For the whole answer."""
MAX_REDIRECTS = 3
HEADERS = {"accept-encoding": "identity", "user-agent": "inference-capacity-calculator"}
"""Ours alone: those of the package carry a token and details of this machine."""
NAME = re.compile(r"(?!.*(\.\.|--))[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]{0,99}", re.ASCII)


class HubError(Exception):
    """Why nothing was fetched: a code that the page words, with values of ours only."""

    def __init__(self, code: str, **values: Any) -> None:
        self.code, self.values = code, values
        super().__init__(f"{code} {values}")


def installed() -> bool:
    """Whether the optional package is there."""
    return importlib.util.find_spec("huggingface_hub") is not None


def endpoint() -> str:
    """The configured Hub."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def fetch_config(repo: str, revision: str = "") -> bytes:
    """The bytes of a repository's config.json; raises HubError."""
    if not NAME.fullmatch(repo):
        raise HubError("bad_id")
    if revision and not REVISION.fullmatch(revision):
        raise HubError("bad_revision")
    if not installed():
        raise HubError("not_installed")
    hub = importlib.import_module("huggingface_hub")
    url = hub.hf_hub_url(repo, FILE, revision=revision or None, endpoint=endpoint())
    try:
        return _get(hub, url)
    except HubError:
        raise
    except Exception as error:  # whatever the client of the installed version raises
        raise _worded(error) from None


def _get(hub: Any, url: str) -> bytes:
    """One GET with few redirects inside the endpoint, and a deadline for all of it."""
    deadline = time.monotonic() + SECONDS
    for _ in range(MAX_REDIRECTS + 1):
        if _origin(url) != _origin(endpoint()):
            raise HubError("elsewhere")
        with hub.get_session().stream(
            "GET", url, headers=HEADERS, timeout=SECONDS, follow_redirects=False
        ) as answer:
            if answer.is_redirect:
                url = urljoin(url, answer.headers.get("location", ""))
                continue
            _check(answer)
            return _read(answer, deadline)
    raise HubError("elsewhere")


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _check(answer: Any) -> None:
    status = answer.status_code
    if status in (401, 403):
        raise HubError("gated")
    if status == 404:
        raise HubError("not_found")
    if status != 200:
        raise HubError("status", status=int(status))
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise HubError("status", status=int(status))
    length = answer.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MAX_BYTES:
        raise HubError("too_long", maximum=MAX_BYTES)


def _read(answer: Any, deadline: float) -> bytes:
    found = b""
    for piece in answer.iter_raw():
        found += piece
        if len(found) > MAX_BYTES:
            raise HubError("too_long", maximum=MAX_BYTES)
        if time.monotonic() > deadline:
            raise HubError("timeout", seconds=int(SECONDS))
    return found


def _worded(error: Exception) -> HubError:
    name = type(error).__name__
    if "Timeout" in name:
        return HubError("timeout", seconds=int(SECONDS))
    if name == "HFValidationError":
        return HubError("bad_id")
    return HubError("offline")
