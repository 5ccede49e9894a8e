"""The parts of the traffic view: both languages, the library's numbers, and a GPU that changes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from calc.exchange import exchange, gain, link_budgets, roofline
from calc.hardware import load_hardware
from calc.report import evaluate
from calc.scenario import Scenario
from calc.timing.report import times
from tests.ui.conftest import OpenApp, card, plain, shown_text
from ui import numbers
from ui.text import LANGUAGES, Translator
from ui.views.step.exchange import contexts
from ui.views.step.roofline import widths
from ui.views.traffic import PARTS

START: dict[str, Any] = {"tp": 8, "dcp": 8, "batch": 64, "context": 131072}
H200 = Scenario("kimi-k3", **START, gpu="h200")


def visit(open_app: OpenApp, part: str, model: str = "kimi-k3", **keys: Any) -> AppTest:
    """The traffic view of a scenario with one of its parts open."""
    typed = {"v": "1", "model": model, "view": "traffic"} | START | keys
    app = open_app(**{key: str(value) for key, value in typed.items()})
    if part != "bytes":
        app.segmented_control(key="traffic_part").set_value(part).run()
    assert not app.exception
    return app


def charts(app: AppTest) -> list[Any]:
    """The figures of the page."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def table(app: AppTest, place: int = 0) -> Any:
    return plain(app.table[place].value)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_draws_in_both_languages(open_app: OpenApp, part: str, lang: str) -> None:
    app = visit(open_app, part, lang=lang, gpu="b200", batch=8, prefill_tokens=4096)
    assert not app.error
    assert 1 <= len(app.get("plotly_chart")) <= 2
    for chart in app.get("plotly_chart"):
        assert len(chart.proto.alt) > 20
        assert json.loads(chart.proto.spec)["layout"]["height"]
    cells = [str(cell) for shown in app.table for row in plain(shown.value).values for cell in row]
    titles = [str(title) for shown in app.table for title in plain(shown.value).columns]
    labels = [metric.label for metric in app.metric]
    prefixes = ("step.", "stage.", "kind.", "column.", "chart.", "error.", "dcp_rule.", "item.")
    assert not [text for text in cells + titles + labels if text.startswith(prefixes)]
    assert app.segmented_control(key="traffic_part").value == part


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("jamba-1.5-mini", {"dcp": 1, "tp": 4, "pp": 2, "gpu": "l40s"}),
        ("mamba-codestral-7b", {"dcp": 1, "tp": 1, "gpu": "h100"}),
        ("deepseek-v3.2", {"dp": 2, "ep": "on", "gpu": "b200", "speculative_tokens": 1}),
        ("deepseek-v3", {"dcp": 4, "tp": 16, "gpu": "mi300x", "collective_algorithm": "nvls"}),
    ],
)
@pytest.mark.parametrize("part", PARTS)
def test_other_kinds_of_models_and_layouts_draw(
    open_app: OpenApp, part: str, model: str, keys: dict[str, Any]
) -> None:
    app = visit(open_app, part, model, lang="zh", **keys)
    assert not app.error
    texts = shown_text(app).split()
    assert not [word for word in texts if word.startswith(("step.", "error.", "kind.", "item."))]


def test_without_a_gpu_a_part_says_what_to_choose_and_choosing_sets_the_scenario(
    open_app: OpenApp,
) -> None:
    app = visit(open_app, "time")
    assert "Choose one above" in shown_text(app)
    assert not app.get("plotly_chart")
    app.selectbox(key="step_gpu").set_value("h200").run()
    assert app.session_state["gpu"] == "h200"
    assert app.query_params["gpu"] == "h200"
    found = times(evaluate(H200)).decode
    assert card(app, "Step, estimated") == f"≈ {numbers.duration(float(found.total.value))}"
    app.selectbox(key="step_gpu").set_value("b200").run()
    other = times(evaluate(H200), load_hardware("b200")).decode
    assert card(app, "Step, estimated") == f"≈ {numbers.duration(float(other.total.value))}"
    assert other.total.value < found.total.value


def test_the_time_is_the_librarys_with_its_error_beside_it(open_app: OpenApp) -> None:
    app = visit(open_app, "time", gpu="b200")
    found = times(evaluate(H200), load_hardware("b200")).decode
    per_gpu = numbers.significant(float(found.tokens_per_second_gpu.value))
    assert card(app, "Tokens/s per GPU") == f"≈ {per_gpu}"
    rows = table(app).set_index("Spent on")
    for group in ("products", "attention", "state", "communication"):
        row = rows.loc[Translator("en")(f"step.group.{group}")]
        assert row["Estimated time"] == numbers.duration(float(found.group(group)))
    assert rows.loc["states", "Measured on"] == "borrowed from H200, scaled by rates"
    assert "%" in rows.loc["attention over the cache", "Median error"]
    assert "not measured" in rows.loc["weights and matrix products", "Median error"]
    (figure,) = charts(app)
    whole = sum(trace["x"][0] for trace in figure["data"])
    assert whole == pytest.approx(float(found.total.value) / 1000, rel=1e-4)
    kinds = sum(sum(trace["x"][1:]) for trace in figure["data"])
    assert kinds == pytest.approx(whole, rel=1e-4)


def test_bytes_can_be_shown_per_layer_and_per_second(open_app: OpenApp) -> None:
    app = visit(open_app, "bytes")
    step = evaluate(Scenario("kimi-k3", **START)).step

    def drawn() -> float:
        return sum(sum(trace["x"]) for trace in charts(app)[0]["data"])

    sent = step.sent_per_rank.value
    assert drawn() == pytest.approx(sent / 1e6, rel=1e-4)
    app.segmented_control(key="step_scope").set_value("second").run()
    app.number_input(key="step_rate").set_value(50.0).run()
    assert drawn() == pytest.approx(sent * 50 / 1e9, rel=1e-4)
    app.segmented_control(key="step_scope").set_value("layer").run()
    of_layers = [stage for stage in step.stages if stage.per == "layer" and stage.sent]
    expected = sum(stage.sent.value for stage in of_layers if stage.sent)
    assert drawn() == pytest.approx(expected / 1e6, rel=1e-4)


def test_the_stage_table_is_the_whole_step_in_order(open_app: OpenApp) -> None:
    app = visit(open_app, "bytes", tp=16, dcp=4)
    step = evaluate(Scenario("kimi-k3", **START | {"tp": 16, "dcp": 4})).step
    moving = [stage for stage in step.stages if stage.collective]
    rows = table(app)
    assert list(rows["Sent per call, per rank"])[:-1] == [
        numbers.traffic(stage.sent.value) for stage in moving if stage.sent
    ]
    assert rows["Group"][0] == "TP 16 · crosses nodes"
    assert "DCP 4 · inside a node" in list(rows["Group"])
    assert rows["Calls"].iloc[-1] == f"**{sum(stage.calls for stage in moving)}**"
    app.toggle(key="step_computing").set_value(True).run()
    assert len(table(app)) == len(step.stages) + 1


def test_the_exchange_shows_the_librarys_crossover_and_gain(open_app: OpenApp) -> None:
    app = visit(open_app, "exchange", gpu="h200")
    found = exchange(H200, load_hardware("h200"), contexts(131072))
    won = gain(found, 8, 131072)
    assert card(app, "Faster with DCP 8") == f"≈ {numbers.significant(won.whole)} ×"
    crossover = found.crossover(8)
    assert crossover is not None
    shown = card(app, "DCP 8 pays from").removeprefix("≈ ").replace(",", "")
    assert float(shown) == pytest.approx(crossover, rel=0.05)
    rows = table(app)
    assert list(rows["DCP"]) == ["**1**", "**2**", "**4**", "**8**"]
    assert list(rows["Query heads on a rank"]) == ["12", "24", "48", "96"]
    attention = times(evaluate(H200)).decode.group("attention")
    assert rows["Attention"].iloc[-1] == numbers.duration(float(attention))


def test_links_count_steps_and_new_caches(open_app: OpenApp) -> None:
    app = visit(open_app, "links", gpu="h200")
    app.segmented_control(key="step_rate_from").set_value("typed").run()
    app.number_input(key="step_rate").set_value(100.0).run()
    app.number_input(key="step_arriving").set_value(5.0).run()
    report = evaluate(H200)
    request = report.cache.stage.per_request.value
    node, network = link_budgets(report.step, load_hardware("h200"), 100.0, request, 5.0)
    assert card(app, "Link inside the node") == numbers.percent(node.used)
    assert card(app, "Network card of a rank") == numbers.percent(network.used)


def test_the_roofline_has_the_models_widths(open_app: OpenApp) -> None:
    app = visit(open_app, "roofline", gpu="h200")
    bend, points = roofline(load_hardware("h200"), **widths(evaluate(H200)))
    rows = table(app)
    assert list(rows["Intensity"]) == [
        f"{numbers.significant(float(point.intensity.value))} FLOP/B" for point in points
    ]
    assert f"ridge: {numbers.significant(float(bend.value))} FLOP/B" in [
        trace["name"] for trace in charts(app)[0]["data"]
    ]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("bytes", "all_ranks"),
        ("time", "part.0"),
        ("exchange", "mla.gather_query"),
        ("links", "network.cache_transfer"),
        ("roofline", "point.0"),
    ],
)
def test_derivations_of_a_part_have_words_for_every_step(
    open_app: OpenApp, part: str, name: str
) -> None:
    app = visit(open_app, part, gpu="h200")
    view = "traffic" if part == "bytes" else part
    app.session_state[f"derivation_{view}"] = True
    app.run()
    first = shown_text(app)
    app.selectbox(key=f"derived_{view}").set_value(name).run()
    assert not app.exception
    assert shown_text(app) != first
    for words in (first, shown_text(app)):
        assert not [prefix for prefix in ("formula.", "symbol.", "item.") if prefix in words]


def test_times_are_derived_in_microseconds_and_called_estimates(open_app: OpenApp) -> None:
    app = visit(open_app, "time", gpu="h200")
    app.session_state["derivation_time"] = True
    app.run()
    (line,) = [text.value for text in app.markdown if "62{,}670" in text.value]
    assert line.endswith(" µs")
    assert any(caption.value.startswith("Estimate") for caption in app.caption)


def test_equal_stages_of_latent_attention_are_listed_once(open_app: OpenApp) -> None:
    """DeepSeek-V3's 3 dense and 58 expert layers differ in nothing but how o_proj ends."""
    app = visit(open_app, "bytes", "deepseek-v3", dp=4, ep="on")
    stages = table(app, 1)
    assert list(stages["No."]) == ["1", "2", "3", "3", "4", "5", "6", "6", "7", "8", "8"]
    assert list(stages["Layers"])[-3:] == ["× 61", "× 3", "× 58"]


def test_rates_set_in_the_scenario_are_used_and_named(open_app: OpenApp) -> None:
    app = visit(open_app, "time", gpu="h200", gemm_efficiency="0.5")
    found = times(evaluate(replace(H200, gemm_efficiency=0.5))).decode
    assert card(app, "Step, estimated") == f"≈ {numbers.duration(float(found.total.value))}"
    assert "GEMM efficiency 50 %" in shown_text(app)
