"""Settings of the page whose loss nobody would notice in a review."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("palette", ["chartCategoricalColors", "chartSequentialColors"])
def test_palettes_have_ten_different_colours(
    config: dict[str, Any], mode: str, palette: str
) -> None:
    """With seven to nine Plotly drops the palette without a word."""
    colours = config["theme"][mode][palette]
    assert len(set(colours)) == len(colours) == 10


def test_colours_are_set_per_mode_so_that_the_reader_can_choose(config: dict[str, Any]) -> None:
    assert not [name for name in config["theme"] if name.lower().endswith(("color", "colors"))]
    assert config["theme"]["light"].keys() == config["theme"]["dark"].keys()


def test_the_server_reports_to_nobody_and_keeps_its_guards_up(config: dict[str, Any]) -> None:
    assert config["browser"]["gatherUsageStats"] is False
    assert config["browser"]["serverAddress"]
    assert config["client"]["showErrorDetails"] == "none"
    assert config["server"]["enableCORS"] is True
    assert config["server"]["enableXsrfProtection"] is True
    assert config["server"]["maxUploadSize"] == 10
