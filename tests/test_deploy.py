"""The container, the proxy and the compose file agree with each other and with the limits."""

from pathlib import Path
from typing import Any

import yaml

from calc.link import MAX_LENGTH

ROOT = Path(__file__).resolve().parents[1]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text("utf-8"))
    return found


def test_every_replica_of_the_compose_file_is_behind_the_proxy() -> None:
    services = compose()["services"]
    proxy = (ROOT / "deploy/nginx.conf").read_text("utf-8")
    replicas = [name for name in services if name != "proxy"]
    assert len(replicas) >= 2
    assert all(f"server {name}:8501;" in proxy for name in replicas)
    assert set(services["proxy"]["depends_on"]) == set(replicas)


def test_replicas_write_nothing_and_gain_nothing() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"] is True, name
        if name != "proxy":
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_proxy_lets_the_longest_link_and_upload_through() -> None:
    proxy = (ROOT / "deploy/nginx.conf").read_text("utf-8")
    assert "large_client_header_buffers 4 32k" in proxy
    assert MAX_LENGTH < 32 * 1024
    assert "client_max_body_size 12m" in proxy
    assert "hash $remote_addr" in proxy


def test_the_image_copies_what_the_ignore_file_lets_through() -> None:
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    allowed = (ROOT / ".dockerignore").read_text("utf-8")
    for name in ("app.py", "calc", "gpu", "presets", "ui", ".streamlit"):
        assert f"!{name}" in allowed
        assert name in docker
    assert "USER 65534:65534" in docker
    assert "HEALTHCHECK" in docker
