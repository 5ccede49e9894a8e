"""The log: one line a scenario, and nothing that was typed as text."""

import logging

import pytest

from tests.ui.conftest import OpenApp


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    kept: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger("calculator"), "handlers", [Keep()])
    return kept


def test_a_scenario_leaves_one_line(open_app: OpenApp, lines: list[str]) -> None:
    open_app(v="1", model="kimi-k3", tp="8", dcp="8")
    assert len(lines) == 1
    assert lines[0].startswith("model=kimi-k3 engine=vllm tp=8 dcp=8 dp=1 pp=1 ep=1 ms=")


def test_what_cannot_be_leaves_its_code(open_app: OpenApp, lines: list[str]) -> None:
    open_app(v="1", model="deepseek-v3", tp="7")
    assert lines[0].endswith("fault=tp_heads")


def test_typed_text_is_never_logged(open_app: OpenApp, lines: list[str]) -> None:
    secret = "very-secret-salt"
    app = open_app(view="reuse", reuse_part="identity")
    app.text_input(key="reuse_here_salt").set_value(secret).run()
    open_app(v="1", model="kimi-k3", tp="8", view="reuse", reuse_here_salt=secret)
    open_app(v="1", model=secret)
    assert lines
    assert not [line for line in lines if secret in line]
