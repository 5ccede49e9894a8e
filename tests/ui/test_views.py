"""Every view in both languages, for models of every kind, and what stands in them."""

import ast
import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from calc.report import evaluate
from calc.scenario import Scenario
from calc.view_inputs import VIEWS
from tests.ui.conftest import OpenApp, card, plain, shown_text
from ui.text import LANGUAGES, Translator
from ui.views.parts import store_name

UI = Path(__file__).resolve().parents[2] / "ui"
HYBRIDS = ("jamba-1.5-mini", "deepseek-v3")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("model", HYBRIDS)
def test_every_view_draws_in_both_languages(
    open_app: OpenApp, model: str, view: str, lang: str
) -> None:
    app = open_app(v="1", model=model, tp="4", pp="2", lang=lang, view=view)
    assert not app.error
    assert not app.warning
    assert "{" not in shown_text(app).replace("{,}", "").replace(r"\mathrm{", "")


@pytest.mark.parametrize("model", ["kimi-k3", "jamba-1.5-mini", "gpt-oss-120b", "swa-48"])
def test_no_text_is_missing_in_a_view(open_app: OpenApp, model: str) -> None:
    """An id without a text would show as itself, and every id has a dot in it."""
    app = open_app(v="1", model=model, tp="2", view="traffic", lang="zh")
    cells = [str(cell) for table in app.table for row in table.value.to_numpy() for cell in row]
    labels = [metric.label for metric in app.metric]
    prefixes = ("kind.", "stage.", "store.", "growth.", "column.", "collective.", "chart.")
    assert not [text for text in cells + labels if text.startswith(prefixes)]


def test_only_the_open_view_is_drawn(app: AppTest) -> None:
    assert "Longest context" in [metric.label for metric in app.metric]
    app.segmented_control(key="view").set_value("traffic").run()
    assert "Longest context" not in [metric.label for metric in app.metric]
    assert len(app.get("plotly_chart")) == 2


def test_charts_are_described_and_have_a_fixed_height(app: AppTest) -> None:
    charts = app.get("plotly_chart")
    assert len(charts) == 2
    for chart in charts:
        assert len(chart.proto.alt) > 40
        assert json.loads(chart.proto.spec)["layout"]["height"] == 360


def test_the_cache_chart_marks_what_was_chosen(app: AppTest) -> None:
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    named = [trace.get("name") for trace in spec["data"]]
    assert named[:3] == ["growing", "state", "total"]
    (point,) = [trace for trace in spec["data"] if trace["mode"] == "markers"]
    assert (point["x"], point["y"]) == ([131072], [509156000.0])


def test_the_eight_stages_of_latent_attention_are_listed(app: AppTest) -> None:
    """Payloads and bytes of the engines' a2a backend with four more elements (fi_a2a)."""
    app.selectbox(key="engine").set_value("sglang").run()
    app.selectbox(key="dcp_backend").set_value("fi_a2a").run()
    app.selectbox(key="query_replication").set_value("off").run()
    app.segmented_control(key="view").set_value("traffic").run()
    stages = plain(app.table[1].value)
    assert list(stages["No."]) == ["1", "2", "3", "3", "4", "5", "6", "7", "8"]
    sent = dict(zip(stages["No."], stages["Sent per call, per rank"], strict=True))
    assert (sent["4"], sent["6"], sent["8"]) == ("6.19 MB", "5.55 MB", "1.61 MB")
    assert "chosen here" in shown_text(app)
    assert card(app, "Sent by all ranks") == "5.39 GB"


def test_a_single_rank_sends_nothing_and_says_so(open_app: OpenApp) -> None:
    app = open_app(v="1", model="llama-3.1-8b", view="traffic")
    assert "nothing is sent" in shown_text(app)
    assert not app.get("plotly_chart")


def test_derivations_are_drawn_only_when_open(app: AppTest) -> None:
    closed = len(app.markdown)
    app.session_state["derivation_capacity"] = True
    app.run()
    assert not app.exception
    assert len(app.markdown) > closed + 10
    formulas = shown_text(app)
    assert r"1{,}152 \cdot 24 \cdot \left\lceil\frac{131{,}072}{8}\right\rceil" in formulas
    assert "452{,}984{,}832" in formulas


def test_a_batch_that_does_not_fit_is_named_with_what_is_missing(app: AppTest) -> None:
    app.number_input(key="batch").set_value(200).run()
    assert "Does not fit: 200 requests need 94.8 GiB" in shown_text(app)


def test_with_pipeline_stages_the_binding_one_is_named(open_app: OpenApp) -> None:
    app = open_app(v="1", model="kimi-k3", tp="8", dcp="8", pp="4", context="131072")
    assert "of 4 holds most" in shown_text(app)


def test_the_rows_of_layers_that_draft_are_told_from_the_others() -> None:
    report = evaluate(Scenario("deepseek-v3", tp=8, speculative_tokens=1))
    names = [store_name(Translator("en"), part) for part in report.cache.stage.components]
    assert names == ["MLA: latent row", "MLA: latent row, MTP layers"]


def test_every_chart_has_words_for_who_cannot_see_it() -> None:
    calls = [
        (path.name, call)
        for path in UI.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "plotly_chart"
    ]
    assert calls
    for name, call in calls:
        assert "alt" in {keyword.arg for keyword in call.keywords}, (name, call.lineno)
