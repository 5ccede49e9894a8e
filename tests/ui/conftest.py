"""The page without a browser: Streamlit's AppTest runs the script and reads what it drew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ui.inputs import sections
from ui.views import parts

APP = Path(__file__).resolve().parents[2] / "app.py"

OpenApp = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No browser has to read Plotly here."""
    monkeypatch.setattr(parts, "FIRST_PAUSE", 0.0)


@pytest.fixture
def open_app() -> OpenApp:
    """Opens the page as a new user: ``open_app(v="1", model="kimi-k3", ...)`` are link keys.

    All sections of the sidebar are open, so that every input can be reached.
    """

    def visit(**keys: Any) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=30)
        for section in sections():
            app.session_state[f"section_{section}"] = True
        for key, text in keys.items():
            app.query_params[key] = text
        app.run()
        assert not app.exception
        return app

    return visit


@pytest.fixture
def app(open_app: OpenApp) -> AppTest:
    """The page as it opens without a link."""
    return open_app()


def card(app: AppTest, label: str) -> str:
    """The value of a metric."""
    (value,) = [metric.value for metric in app.metric if metric.label == label]
    return str(value)


def headline(app: AppTest) -> list[str]:
    """The four headline numbers."""
    return [str(metric.value) for metric in app.metric[:4]]


def shown_text(app: AppTest) -> str:
    """All Markdown, captions and messages of the page."""
    kinds = (app.markdown, app.caption, app.error, app.warning, app.info)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """A table's cells and titles without the signs that hold them together."""

    def loose(text: str) -> str:
        return text.replace("\u00a0", " ").replace("\u2060", "")

    return table.map(loose).rename(columns=loose)
