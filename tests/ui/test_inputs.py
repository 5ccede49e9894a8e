"""Every input changes the report, and none loses what was typed."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from calc.errors import CalcError
from calc.fields import ChoiceField, ListField
from calc.presets import preset_ids
from calc.report import evaluate
from calc.scenario import FIELDS, Scenario
from tests.ui.conftest import OpenApp, card, headline, shown_text
from ui import inputs, numbers, state
from ui.remedy import remedy


def test_the_page_opens_with_kimi_k3_computed(app: AppTest) -> None:
    assert headline(app) == ["486 MiB", "168 requests", "677 MB", "8 ranks"]
    assert "Kimi K3 · TP 8 · DCP 8 · 131,072 tokens · batch 64 · bf16 KV · vLLM 0.33" in shown_text(
        app
    )
    assert "80 GiB without weights" in shown_text(app)
    assert dict(app.query_params) == {}, "an address that already says this is left alone"


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("tp", 16),
        ("dcp", 4),
        ("dp", 2),
        ("pp", 2),
        ("context", 1000),
        ("batch", 7),
        ("kv_cache_memory_gib", 40.5),
    ],
)
def test_a_number_that_is_typed_changes_the_report(app: AppTest, name: str, typed: float) -> None:
    before = headline(app)
    app.number_input(key=name).set_value(typed).run()
    expected = evaluate(Scenario("kimi-k3", **{**_start(), name: typed})).headline()
    assert headline(app) != before
    assert card(app, "Cache per request") == numbers.memory(expected[0])
    assert card(app, "Largest batch") == f"{expected[1]:,} requests"
    assert card(app, "Sent per decode step") == numbers.traffic(expected[2])
    assert card(app, "World size") == f"{expected[3]} ranks"
    assert app.query_params[name] == FIELDS[name].format(typed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("kv_dtype", "fp8"),
        ("state_dtype", "bf16"),
        ("conv_dtype", "float32"),
        ("dcp_backend", "a2a"),
        ("engine", "sglang"),
    ],
)
def test_a_choice_changes_the_report(app: AppTest, name: str, choice: str) -> None:
    app.selectbox(key=name).set_value(choice).run()
    report = evaluate(Scenario("kimi-k3", **{**_start(), name: choice}))
    assert card(app, "Cache per request") == numbers.memory(report.headline()[0])
    assert card(app, "Sent per decode step") == numbers.traffic(report.headline()[2])
    assert app.query_params[name] == choice


def test_query_replication_is_read_too(app: AppTest) -> None:
    app.selectbox(key="engine").set_value("sglang").run()
    replicated = card(app, "Sent per decode step")
    app.selectbox(key="query_replication").set_value("off").run()
    assert card(app, "Sent per decode step") != replicated


def test_every_field_of_a_scenario_has_a_widget_and_every_widget_constant_bounds(
    app: AppTest,
) -> None:
    for name, rule in FIELDS.items():
        if isinstance(rule, ListField):
            assert app.text_input(key=name).value == rule.default
        elif isinstance(rule, ChoiceField):
            assert app.selectbox(key=name).options
        else:
            widget = app.number_input(key=name)
            assert (widget.min, widget.max) == (rule.minimum, rule.maximum)
    drawn = [*inputs.MAIN, *(name for names in inputs.sections().values() for name in names)]
    assert sorted(drawn) == sorted(FIELDS)


def test_usual_contexts_are_a_click_away_and_exact(app: AppTest) -> None:
    app.pills(key="quick_context").set_value(2**20).run()
    assert app.number_input(key="context").value == 1_048_576
    assert app.query_params["context"] == "1048576"


def test_reset_brings_the_start_scenario_back(app: AppTest) -> None:
    app.number_input(key="batch").set_value(1).run()
    app.number_input(key="context").set_value(5).run()
    app.button(key="reset").click().run()
    assert headline(app) == ["486 MiB", "168 requests", "677 MB", "8 ranks"]


@pytest.mark.parametrize("preset", ["llama-3.1-70b", "gemma-3-27b", "nemotron-h-56b"])
def test_what_another_model_does_not_allow_is_set_to_what_it_does(
    app: AppTest, preset: str
) -> None:
    app.selectbox(key="model").set_value(preset).run()
    assert not app.exception
    assert not app.error
    assert len(app.metric) == 8
    assert app.number_input(key="dcp").value == 1
    assert "DCP was set from 8 to 1." in shown_text(app)


@pytest.mark.parametrize("preset", preset_ids())
def test_every_preset_can_be_brought_to_numbers(preset: str) -> None:
    """As the page does it, without the page: one remedy after another from the start layout."""
    values = _start()
    for _ in FIELDS:
        try:
            assert evaluate(Scenario(preset, **values)).headline()
            return
        except CalcError as error:
            name, legal = remedy(error, values) or pytest.fail(f"no remedy: {error}")
            values[name] = legal
    pytest.fail(f"no legal layout found for {preset}")


def test_the_language_switch_keeps_every_value(app: AppTest) -> None:
    app.number_input(key="batch").set_value(9).run()
    app.segmented_control(key="view").set_value("traffic").run()
    english = [metric.value for metric in app.metric if "rank" not in metric.value]
    app.segmented_control(key="lang").set_value("zh").run()
    assert app.number_input(key="batch").value == 9
    assert app.segmented_control(key="view").value == "traffic"
    assert "每步 decode 发送量" in [metric.label for metric in app.metric]
    shown = [metric.value for metric in app.metric]
    assert {value for value in english if value.endswith("B")} <= set(shown)
    assert app.query_params["lang"] == "zh"


def _start() -> dict[str, Any]:
    return {name: getattr(state.START, name) for name in FIELDS}


def test_inputs_of_a_folded_section_keep_their_values(app: AppTest) -> None:
    app.selectbox(key="gpu").set_value("h200").run()
    for section in inputs.sections():
        app.session_state[f"section_{section}"] = False
    app.run()
    assert "gpu" not in [box.key for box in app.selectbox]
    app.number_input(key="batch").set_value(7).run()
    assert app.query_params["gpu"] in ("h200", ["h200"])
    app.session_state["section_memory"] = True
    app.run()
    assert app.selectbox(key="gpu").value == "h200"


def test_a_link_reaches_folded_inputs(open_app: OpenApp) -> None:
    app = open_app(v="1", model="kimi-k3", tp="8", gpu="h100", block_size="256")
    for section in inputs.sections():
        app.session_state[f"section_{section}"] = False
    app.run()
    assert app.session_state["gpu"] == "h100"
    assert app.session_state["block_size"] == 256
