"""The model view: every layer in the picture, what is stored where, what-ifs that travel."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from calc.errors import CalcError
from calc.link import unpack_spec
from calc.presets import load_preset, preset_ids
from calc.report import evaluate
from calc.scenario import Scenario
from calc.weights import parameters
from tests.ui.conftest import OpenApp, card, headline, plain, shown_text
from ui import derivation, errors, numbers
from ui.layer_map import draw_map
from ui.text import LANGUAGES, Translator
from ui.views.whatif import LATENT

SECTIONS = ("compare", "whatif", "formats", "sources")


def opened(open_app: OpenApp, model: str, *sections: str, **keys: str) -> AppTest:
    """The model view with some of its sections open."""
    app = open_app(v="1", model=model, view="model", **keys)
    for section in sections:
        app.session_state[f"section_{section}"] = True
    app.run()
    assert not app.exception
    return app


def cells(app: AppTest) -> list[str]:
    return [
        str(cell) for table in app.table for row in plain(table.value).to_numpy() for cell in row
    ]


# --- the picture ----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", preset_ids())
def test_the_picture_has_one_cell_for_every_layer(preset: str) -> None:
    model = load_preset(preset)
    pp = min(3, model.layer_count)
    for stages in (1, pp):
        figure = draw_map(evaluate(Scenario(preset, pp=stages)), Translator("en"))
        mixers = [trace for trace in figure["data"] if trace["customdata"] is not None]
        assert sum(len(trace["x"]) for trace in mixers) == model.layer_count
        places = {at for trace in mixers for at in zip(trace["x"], trace["base"], strict=True)}
        assert len(places) == model.layer_count, "no two cells on one place"
        assert figure["layout"]["height"] > 100
        hovers = "\n".join(text for trace in mixers for text in trace["customdata"])
        assert f"Layer {model.layer_count} " in hovers
        assert f"stage {stages} of {stages}" in hovers


def test_kinds_have_colours_of_the_palette_only() -> None:
    figure = draw_map(evaluate(Scenario("kimi-k3", tp=8)), Translator("en"))
    colours = {trace["marker"]["color"] for trace in figure["data"]}
    assert colours <= {f"#{index:06d}" for index in range(1, 11)}
    assert len(colours) == 4


# --- what stands in it ----------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(
    "model", ["deepseek-v3", "deepseek-v4-flash", "gemma-3n-e4b", "zamba2-7b", "qwen3-next-80b-a3b"]
)
def test_every_section_draws_with_every_text(open_app: OpenApp, model: str, lang: str) -> None:
    app = opened(open_app, model, *SECTIONS, lang=lang)
    assert not app.error
    assert not [text for text in cells(app) if text.split(".")[0] in ("kind", "part", "role")]
    assert "map." not in str([chart.proto.spec for chart in app.get("plotly_chart")])


def test_parameters_and_bytes_are_those_of_the_report(open_app: OpenApp) -> None:
    app = opened(open_app, "deepseek-v3", tp="8", weight_format="nvfp4")
    report = evaluate(Scenario("deepseek-v3", tp=8, weight_format="nvfp4"))
    assert card(app, "Parameters") == "671 billion"
    assert card(app, "Active parameters") == "37.6 billion"
    held = numbers.memory(report.engine.weights.total.value)
    assert card(app, "Weights on a rank") == held
    text = shown_text(app)
    assert "`kv_a_proj`" in text
    assert "`router`" in text


def test_a_layer_is_shown_whole_and_on_a_rank_of_the_layout(open_app: OpenApp) -> None:
    app = opened(open_app, "kimi-k3", tp="8", dcp="8")
    kinds = plain(app.table[0].value)
    rows = {row.iloc[0]: list(row.iloc[3:5]) for _, row in kinds.iterrows()}
    assert rows["**MLA**"] == ["1,152 B a token", "1,152 B for every 8 tokens"]
    assert rows["**KDA**"] == ["6.21 MiB a request", "795 KiB a request"]


def test_attention_kinds_are_compared_and_the_copied_arithmetic_is_corrected(
    open_app: OpenApp,
) -> None:
    app = opened(open_app, "llama-2-7b", "compare")
    found = cells(app)
    assert "**This model: MHA, 32 KV heads**" in found
    assert "16,384 B" in found
    assert "14.2 ×" in found
    assert any("2.25 times larger" in cell for cell in found)
    assert any("16,384 B a token and layer, 512 KiB" in cell for cell in found)


def test_formats_show_scales_refusals_and_the_caution(open_app: OpenApp) -> None:
    app = opened(open_app, "llama-3.1-8b", "formats", lang="en")
    found = cells(app)
    assert "4,096 B" in found
    assert "2,112 B" in found, "int8 with two float32 scales for each of 8 heads"
    assert "64 B" in found
    assert any("not possible" in cell and "latent row" in cell for cell in found)
    assert "evaluation set" in shown_text(app)


def test_state_dtypes_name_each_engines_default(open_app: OpenApp) -> None:
    app = opened(open_app, "qwen3-next-80b-a3b", "formats")
    table = next(
        plain(t.value) for t in app.table if "Default in SGLang 0.5.23" in plain(t.value).columns
    )
    assert table["Default in vLLM 0.33"][0] == "bf16 · bf16"
    assert table["Default in SGLang 0.5.23"][0] == "bf16 · float32"


def test_sources_of_a_preset_are_links_and_doubts_are_said(open_app: OpenApp) -> None:
    app = opened(open_app, "kimi-k3", "sources")
    assert any("](https://huggingface.co/" in cell for cell in cells(app))
    doubt = load_preset("kimi-k3").doubts[0]
    assert doubt in shown_text(app)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("preset", ["deepseek-v3", "gemma-4-e2b", "nemotron-3-super"])
def test_every_step_of_the_derivations_has_words(preset: str, lang: str) -> None:
    from calc.items import walk

    t = Translator(lang)
    report = evaluate(Scenario(preset))
    for item in (parameters(report.model).active, report.engine.weights.total):
        for step in walk(item):
            words = derivation.label(t, step)
            assert not words.startswith(("item.", "formula."))


# --- what-ifs -------------------------------------------------------------------------------------


def whatif_key(app: AppTest, name: str) -> str:
    return next(
        widget.key
        for kind in (app.number_input, app.selectbox, app.slider)
        for widget in kind
        if widget.key and widget.key.startswith("whatif.") and widget.key.endswith(name)
    )


def test_a_wider_latent_is_compared_first_and_used_on_demand(open_app: OpenApp) -> None:
    app = opened(open_app, "deepseek-v3", "whatif", tp="8")
    before = headline(app)
    app.selectbox(key=whatif_key(app, ".latent")).set_value(1024).run()
    assert headline(app) == before, "nothing changes until it is used"
    found = cells(app)
    assert "+88.9 %" in found
    app.button(key="whatif_keep").click().run()
    assert not app.exception
    assert app.selectbox(key="model").value == "custom"
    assert card(app, "Cache per request") == numbers.memory(61 * 1088 * 2 * 8192)
    spec = unpack_spec(app.query_params["spec"])
    assert {mixer.kv_lora_rank for mixer in spec.latent_mixers} == {1024}
    assert "DeepSeek-V3 (custom)" in shown_text(app)
    assert "changed copy of the preset deepseek-v3" in shown_text(app)
    receiver = open_app(**dict(app.query_params))
    assert headline(receiver) == headline(app)


def test_a_typed_width_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(CalcError) as caught:
        LATENT.parse("wide")
    assert errors.headed(Translator("en"), caught.value)[0].startswith("**Latent width** · ")


def test_kv_heads_that_cannot_be_are_refused_with_the_legal_ones(open_app: OpenApp) -> None:
    app = opened(open_app, "llama-3.1-8b", "whatif")
    app.number_input(key=whatif_key(app, ".kv_heads")).set_value(3).run()
    assert "1, 2, 4, 8, 16, 32" in app.error[0].value


def test_a_range_of_layers_limits_the_change(open_app: OpenApp) -> None:
    app = opened(open_app, "deepseek-v3", "whatif")
    app.slider(key=whatif_key(app, ".layers")).set_value((4, 13)).run()
    app.number_input(key=whatif_key(app, ".rope")).set_value(32).run()
    app.button(key="whatif_keep").click().run()
    spec = unpack_spec(app.query_params["spec"])
    assert [layer.count for layer in spec.layers] == [3, 10, 48]


def test_an_average_width_can_be_used(open_app: OpenApp) -> None:
    app = opened(open_app, "deepseek-v3", "whatif")
    app.slider(key=whatif_key(app, ".share")).set_value(50).run()
    assert "**384**" in shown_text(app)
    app.button(key="whatif_keep_average").click().run()
    spec = unpack_spec(app.query_params["spec"])
    assert spec.latent_mixers[0].kv_lora_rank == 384


def test_the_chart_is_described(open_app: OpenApp) -> None:
    app = opened(open_app, "kimi-k3")
    (chart,) = app.get("plotly_chart")
    assert len(chart.proto.alt) > 40
    assert json.loads(chart.proto.spec)["layout"]["height"] > 100
