"""A config.json on the page: uploaded, pasted or fetched; every fault named, nothing trusted."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from calc.link import encode, unpack_spec
from calc.model import ExtraTensor
from calc.presets import load_preset
from calc.scenario import Scenario
from tests.ui.conftest import OpenApp, headline, shown_text
from ui import config_import, hub, names
from ui.text import Translator

CONFIGS = Path(__file__).resolve().parents[1] / "data" / "configs"
HOSTILE = "![x](https://evil.example/pixel.png)"


@pytest.fixture
def panel(app: AppTest) -> AppTest:
    """The page with the panel open."""
    app.button(key="import_offer").click().run()
    assert not app.exception
    return app


def pasted(panel: AppTest, text: str) -> AppTest:
    panel.text_area(key="config_text").set_value(text).run()
    panel.button(key="config_read").click().run()
    assert not panel.exception
    return panel


def config(name: str, **changes: Any) -> str:
    return json.dumps(json.loads((CONFIGS / f"{name}.json").read_text()) | changes)


def test_the_panel_opens_and_closes(panel: AppTest) -> None:
    assert panel.text_area(key="config_text").value == ""
    panel.button(key="import_close").click().run()
    assert not panel.text_area


def test_an_uploaded_config_becomes_the_model_of_the_link(
    panel: AppTest, open_app: OpenApp
) -> None:
    data = (CONFIGS / "jamba-1.5-mini.json").read_bytes()
    panel.file_uploader(key="config_file").set_value(
        ("my-jamba.json", data, "application/json")
    ).run()
    assert not panel.exception
    assert not panel.error
    assert panel.selectbox(key="model").value == "custom"
    assert "my-jamba (custom)" in shown_text(panel)
    assert panel.session_state["view"] == "model"
    keys = dict(panel.query_params)
    assert unpack_spec(keys["spec"]).layers == load_preset("jamba-1.5-mini").layers
    receiver = open_app(**keys)
    assert headline(receiver) == headline(panel)
    assert "my-jamba (custom)" in shown_text(receiver)


def test_a_pasted_config_shows_what_decided_its_layers(panel: AppTest) -> None:
    app = pasted(panel, config("kimi-k3"))
    cells = [str(cell) for table in app.table for row in table.value.to_numpy() for cell in row]
    assert "`linear_attn_config.kda_layers`" in cells
    assert headline(app) == ["486 MiB", "168 requests", "677 MB", "8 ranks"]


def test_what_the_layout_no_longer_allows_is_set_and_said(panel: AppTest) -> None:
    app = pasted(panel, config("llama-3.1-8b"))
    assert not app.error
    assert "DCP was set from 8 to 1." in shown_text(app)


def test_a_field_that_was_not_understood_is_a_warning(panel: AppTest) -> None:
    app = pasted(panel, config("llama-3.1-8b", kv_cache_trick=3))
    assert any("kv_cache_trick" in warning.value for warning in app.warning)
    app.segmented_control(key="lang").set_value("zh").run()
    assert any("kv_cache_trick" in warning.value for warning in app.warning)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ('{"model_type": "bert", "hidden_size": 8}', "text encoder"),
        ('{"model_type": "llama"}', "hidden_size"),
        ('{"a": 1, "a": 2}', "more than once"),
        ("[" * 2000, "cannot be read"),
        (config("llama-3.1-8b", num_hidden_layers=-3), "num_hidden_layers"),
        (config("llama-3.1-8b", num_hidden_layers=10**9), "num_hidden_layers"),
        (config("llama-3.1-8b", hidden_size="4096"), "hidden_size"),
    ],
)
def test_a_fault_is_named_and_the_page_stays_as_it_was(
    panel: AppTest, text: str, said: str
) -> None:
    before = headline(panel)
    app = pasted(panel, text)
    shown = shown_text(app) + "".join(code.value for code in app.code)
    assert said in shown or "nested" in shown
    assert len(app.error) == 1
    assert headline(app) == before
    assert app.selectbox(key="model").value == "kimi-k3"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"model_type": HOSTILE, "hidden_size": 1}),
        json.dumps({HOSTILE: 1}),
        config("llama-3.1-8b", **{f"kv_{HOSTILE}": 1}),
        config("llama-3.1-8b", model_type=HOSTILE),
        config("llama-3.1-8b", hidden_size=HOSTILE),
        config("llama-3.1-8b", quantization_config={"quant_method": HOSTILE}),
        f'{{"{HOSTILE}": 1, "{HOSTILE}": 2}}',
    ],
)
def test_nothing_of_a_hostile_config_is_drawn_as_markdown(panel: AppTest, text: str) -> None:
    app = pasted(panel, text)
    assert "evil" not in shown_text(app)
    assert "evil" not in str([table.value.to_numpy() for table in app.table])
    assert "evil" not in str([metric.proto for metric in app.metric])
    assert "evil" not in str([box.label for box in app.expander])


@pytest.mark.parametrize("name", [HOSTILE, "www.evil.example", "[a](b)", "$x$", ":smile:"])
def test_a_hostile_name_in_a_link_is_not_shown(open_app: OpenApp, name: str) -> None:
    base = load_preset("deepseek-v3").model_copy(
        update={
            "id": "custom",
            "name": name,
            "sources": {"base": HOSTILE, HOSTILE: HOSTILE},
            "doubts": (HOSTILE,),
            "extra_weights": {HOSTILE: ExtraTensor(rows=8)},
        }
    )
    app = open_app(**encode(Scenario("custom", spec=base)), view="model")
    for section in ("compare", "whatif", "formats"):
        app.session_state[f"section_{section}"] = True
    app.session_state["derivation_model"] = True
    app.run()
    assert not app.exception
    text = shown_text(app) + str([table.value.to_numpy() for table in app.table])
    assert "evil" not in text
    assert "Custom model" in text


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("DeepSeek-V3", "DeepSeek-V3"),
        ("config", "config.json"),
        ("", "config.json"),
        ("a/b", "a b"),
        (HOSTILE, "x (https evil.example pixel.png)"),
        ("x" * 500, "x" * 60),
    ],
)
def test_names_of_uploads_are_tidied(given: str, made: str) -> None:
    assert names.tidy(given, "config.json") == made


def test_markdown_in_a_harmless_name_is_escaped() -> None:
    spec = load_preset("deepseek-v3").model_copy(update={"name": "my_own_model"})
    assert names.model(Translator("en"), spec, custom=True) == r"my\_own\_model (custom)"


# --- by id ----------------------------------------------------------------------------------------


def test_a_config_is_fetched_by_id(panel: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(repo: str, revision: str) -> bytes:
        asked.append((repo, revision))
        return config("deepseek-v3").encode()

    monkeypatch.setattr(hub, "installed", lambda: True)
    monkeypatch.setattr(hub, "fetch_config", fetch)
    panel.run()
    panel.text_input(key="config_id").set_value("deepseek-ai/DeepSeek-V3").run()
    panel.text_input(key="config_revision").set_value("main").run()
    panel.button(key="config_fetch").click().run()
    assert asked == [("deepseek-ai/DeepSeek-V3", "main")]
    assert "DeepSeek-V3 (custom)" in shown_text(panel)


@pytest.mark.parametrize("code", ["offline", "gated", "not_found", "timeout", "too_long", "bad_id"])
def test_why_nothing_was_fetched_is_said(
    panel: AppTest, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def fail(*_: str) -> bytes:
        raise hub.HubError(code, seconds=10, maximum=5, status=500)

    monkeypatch.setattr(hub, "installed", lambda: True)
    monkeypatch.setattr(hub, "fetch_config", fail)
    panel.run()
    panel.button(key="config_fetch").click().run()
    assert not panel.exception
    assert len(panel.error) == 1
    assert "hub." not in panel.error[0].value


def test_without_the_package_the_page_says_how_to_get_it(
    app: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "installed", lambda: False)
    app.button(key="import_offer").click().run()
    assert app.button(key="config_fetch").disabled
    assert "requirements-hub.txt" in shown_text(app)


# --- speed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_every_config_is_read_within_50_ms(path: Path) -> None:
    data = path.read_bytes()
    config_import.imported_from(data, path.stem)  # the first one imports modules
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        config_import.imported_from(data, path.stem)
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.05
