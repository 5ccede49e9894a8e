"""The Plan view: layouts ranked, scenarios compared, sweeps, files."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from calc.export import WORDS
from calc.link import encode, query_string
from calc.pins import unpack_pins
from calc.plan_answers import plan_of, why
from calc.planner import plan
from calc.report import evaluate
from calc.scenario import Scenario
from tests.ui.conftest import OpenApp, card, plain, shown_text
from ui.text import LANGUAGES, catalogue
from ui.views.planning.layouts import layout

K3 = {"v": "1", "model": "kimi-k3", "gpu": "h200", "context": "131072", "batch": "64"}
IDS = ("plan.", "column.", "field.", "option.", "export.", "stage.")


def opened(open_app: OpenApp, part: str, **keys: str) -> AppTest:
    return open_app(**K3 | {"view": "plan", "plan_part": part} | keys)


def scenario(**changes: Any) -> Scenario:
    return Scenario("kimi-k3", gpu="h200", context=131072, batch=64, **changes)


def texts(app: AppTest) -> list[str]:
    cells = [str(c) for t in app.table for row in plain(t.value).to_numpy() for c in row]
    titles = [str(title) for table in app.table for title in table.value.columns]
    labels = [box.label for box in (*app.selectbox, *app.number_input, *app.text_input)]
    options = [option for box in app.selectbox for option in box.options]
    return [*cells, *titles, *labels, *options, *shown_text(app).split("\n")]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("part", ["layouts", "compare", "sweep", "export"])
def test_every_part_draws_with_every_text(open_app: OpenApp, part: str, lang: str) -> None:
    app = opened(open_app, part, lang=lang, plan_gpus="16")
    if part == "compare":
        app.button(key="plan_pin").click().run()
    assert not app.exception
    assert not app.error
    assert not [text for text in texts(app) if text.strip("*- ").startswith(IDS)]


def test_the_best_layout_is_the_library_s_and_goes_into_the_inputs(open_app: OpenApp) -> None:
    app = opened(open_app, "layouts", plan_gpus="16")
    found = plan_of(scenario(), {"gpus": 16})
    winner = found.winner
    assert winner is not None
    assert card(app, "Requests at once") == f"{winner.concurrency:,}"
    rows = plain(app.table[0].value)
    assert len(rows) == 20
    assert rows["Layout"][0].strip("*◆ ") == layout(winner)
    app.button(key="plan_use").click().run()
    made = winner.scenario
    assert [app.number_input(key=name).value for name in ("tp", "dcp", "dp", "pp")] == [
        made.tp,
        made.dcp,
        made.dp,
        made.pp,
    ]
    assert app.session_state["plan_part"] == "layouts"


def test_where_nothing_fits_the_nearest_says_what_it_lacks(open_app: OpenApp) -> None:
    app = opened(open_app, "layouts", plan_gpus="1")
    assert "Nothing fits" in app.warning[0].value
    assert "of memory on each rank" in app.warning[0].value


def test_an_objective_that_needs_a_gpu_says_so(open_app: OpenApp) -> None:
    app = opened(open_app, "layouts", gpu="none", plan_objective="step")
    assert app.error
    assert "h200" in app.error[0].value


def test_a_plan_travels_in_the_link(open_app: OpenApp) -> None:
    app = opened(open_app, "layouts", plan_gpus="16")
    app.selectbox(key="plan_objective").set_value("traffic").run()
    link = {key: app.query_params[key] for key in app.query_params}
    received = open_app(**link)
    assert received.selectbox(key="plan_objective").value == "traffic"
    assert plain(received.table[0].value).equals(plain(app.table[0].value))


def test_scenarios_are_pinned_compared_and_sent_together(open_app: OpenApp) -> None:
    app = opened(open_app, "compare", tp="8", dcp="8")
    app.button(key="plan_pin").click().run()
    app.number_input(key="dcp").set_value(4).run()
    app.button(key="plan_pin").click().run()
    differing, figures = (plain(table.value) for table in app.table)
    assert list(differing["Field"]) == ["**DCP**"]
    assert list(differing["A"]) + list(differing["B"]) == ["8", "4"]
    one, two = (evaluate(scenario(tp=8, dcp=dcp)) for dcp in (8, 4))
    batch = figures[figures["Figure"] == "**Largest batch, per replica**"]
    assert list(batch["A"]) == [f"{one.fit.max_requests.value:,}"]
    assert list(batch["B"]) == [f"{two.fit.max_requests.value:,}"]
    link = {key: app.query_params[key] for key in app.query_params}
    received = open_app(**link)
    assert plain(received.table[1].value).equals(figures)
    received.button(key="plan_remove_0").click().run()
    assert [pin.dcp for pin in unpack_pins(received.session_state["plan_pins"])] == [4]


def test_a_pasted_link_is_pinned_or_its_faults_are_named(open_app: OpenApp) -> None:
    app = opened(open_app, "compare")
    link = query_string(encode(Scenario("deepseek-v3", tp=8)))
    app.text_input(key="plan_link").set_value(f"http://calc.example/?{link}").run()
    assert [pin.model for pin in unpack_pins(app.session_state["plan_pins"])] == ["deepseek-v3"]
    assert app.text_input(key="plan_link").value == ""
    app.text_input(key="plan_link").set_value("?v=1&model=kimi-k3&tp=eight&x=1").run()
    assert "cannot be pinned" in app.warning[0].value
    assert "tp" in shown_text(app).lower()
    assert "tp=eight&x=1" in str(app.text_input(key="plan_link").value), "typed text stays"


def test_damaged_pins_are_explained_and_can_be_dropped(open_app: OpenApp) -> None:
    app = opened(open_app, "compare", plan_pins="eJwAAA")
    assert "cannot be read" in app.error[0].value
    app.button(key="plan_clear").click().run()
    assert not app.error


def test_a_sweep_is_that_of_the_library(open_app: OpenApp) -> None:
    keys = {"plan_input": "dcp", "plan_values": "1,2,4,8", "tp": "8"}
    app = opened(open_app, "sweep", **keys)
    rows = plain(app.table[0].value)
    values = [evaluate(scenario(tp=8, dcp=dcp)).cache.stage.per_request.value for dcp in (1, 2, 4)]
    assert list(rows["DCP"]) == ["1", "2", "4", "8"]
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    assert spec["data"][0]["y"][:3] == values
    app.selectbox(key="plan_input2").set_value("context").run()
    app.text_input(key="plan_values2").set_value("1000:20000:1000").run()
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    assert spec["data"][0]["type"] == "heatmap"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("8:1:1", "backwards"),
        ("", "no value"),
        ("1,2,x", "whole number"),
        ("1:1000000000:1", "too many"),
        ("<b>", "whole number"),
    ],
)
def test_a_range_that_cannot_be_is_said_beside_what_was_typed(
    open_app: OpenApp, values: str, words: str
) -> None:
    app = opened(open_app, "sweep")
    app.text_input(key="plan_values").set_value(values).run()
    assert words in app.error[0].value
    assert app.text_input(key="plan_values").value == values


def test_the_report_is_in_the_language_of_the_page(open_app: OpenApp) -> None:
    app = opened(open_app, "export", lang="zh", tp="8")
    app.session_state["plan_preview"] = True
    app.run()
    report = next(code.value for code in app.code if code.value.startswith("#"))
    assert "容量与通信报告" in report
    assert "公式修订" in report
    assert "?v=1&model=kimi-k3" in report


def test_launch_commands_of_both_engines_are_shown(open_app: OpenApp) -> None:
    app = opened(open_app, "export", tp="8")
    commands = [code.value for code in app.code]
    assert any(text.startswith("vllm serve") for text in commands)
    assert any("sglang.launch_server" in text for text in commands)


def test_the_catalogue_words_the_whole_report() -> None:
    for lang in LANGUAGES:
        words = catalogue(lang)
        assert not [name for name in WORDS if f"export.{name}" not in words]
    assert {name: catalogue("en")[f"export.{name}"] for name in WORDS} == dict(WORDS)


def test_a_plan_of_everything_can_be_drawn_again(open_app: OpenApp) -> None:
    app = opened(open_app, "layouts", plan_kv_dtypes="all", plan_engines="all")
    for shown in ("front", "fitting", "all"):
        app.segmented_control(key="plan_shown").set_value(shown).run()
        assert not app.exception
    assert "sglang has no flag for int8_per_token_head" in shown_text(app)


def test_files_are_made_without_the_session_that_asked_for_them(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit calls what makes a file in a thread that has no session."""
    made: dict[str, Callable[[], str]] = {}

    def button(label: str, data: Callable[[], str], **given: Any) -> None:
        made[given.get("key", label)] = data

    monkeypatch.setattr("streamlit.download_button", button)
    open_app(v="1", model="llama-3.1-8b", gpu="h100", view="plan", plan_part="export")
    texts = {name: make() for name, make in made.items() if name.startswith("plan_export")}
    assert len(texts) == 7
    assert texts["plan_export_plan_csv"].startswith("rank,")
    assert json.loads(texts["plan_export_sweep_json"])["output"] == "request_bytes"


def test_what_is_sent_most_is_a_part_of_what_is_sent() -> None:
    """Sixteen pipeline stages: a rank hands on once, not fifteen times."""
    base = Scenario("kimi-k3", gpu="h200", batch=64, context=131_072)
    best = plan(base, 16, "traffic").rows[0]
    given = why(best, "traffic").values
    assert best.scenario.pp > 1
    assert given["sent_bytes"] <= best.figures.sent_bytes
    assert given["sent_bytes"] == pytest.approx(given["share"] * best.figures.sent_bytes)


def test_a_crowded_layout_is_explained_instead_of_a_command(open_app: OpenApp) -> None:
    app = open_app(v="1", model="llama-3.1-8b", context="16", batch="16384", view="plan")
    assert not app.exception
    assert any("vLLM refuses" in error.value for error in app.error)
