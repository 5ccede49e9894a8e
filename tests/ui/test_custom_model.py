"""The editor of the custom model: widgets from the classes, nothing lost, all in the link."""

import pytest
from streamlit.testing.v1 import AppTest

from calc.link import unpack_spec
from calc.presets import load_preset, preset_ids
from tests.ui.conftest import OpenApp, card, headline, plain
from ui.custom_fields import KINDS, SLOTS, can_start_from, part_fields


@pytest.fixture
def custom(app: AppTest) -> AppTest:
    """The page with the custom model chosen."""
    app.selectbox(key="model").set_value("custom").run()
    assert not app.exception
    assert not app.error
    return app


def test_61_layers_of_latent_attention_keep_68_6_kib_a_token(custom: AppTest) -> None:
    custom.selectbox(key="custom.0.mixer").set_value("mla").run()
    custom.number_input(key="custom.0.count").set_value(61).run()
    assert custom.number_input(key="custom.0.mixer.mla.kv_lora_rank").value == 512
    assert custom.number_input(key="custom.0.mixer.mla.rope_dim").value == 64
    row = plain(custom.table[0].value).iloc[0]
    assert row["Per token, per rank"] == "68.6 KiB (70,272 B)"
    custom.number_input(key="context").set_value(8192).run()
    assert card(custom, "Cache per request") == "549 MiB"


@pytest.mark.parametrize("kind", SLOTS["mixer"])
def test_every_kind_can_be_chosen_and_typed(custom: AppTest, kind: str) -> None:
    custom.number_input(key="tp").set_value(1).run()
    custom.selectbox(key="custom.0.mixer").set_value(kind).run()
    assert not custom.exception
    for field in part_fields(kind) if kind in KINDS else ():
        if field.type == "whole" and field.required:
            widget = custom.number_input(key=f"custom.0.mixer.{kind}.{field.name}")
            assert widget.value == field.start


def test_nothing_typed_is_lost_by_another_kind_or_language(custom: AppTest) -> None:
    custom.number_input(key="custom.0.mixer.attention.k_dim").set_value(96).run()
    custom.selectbox(key="custom.0.mixer").set_value("mamba2").run()
    custom.number_input(key="custom.0.mixer.mamba2.state_size").set_value(64).run()
    custom.segmented_control(key="lang").set_value("zh").run()
    custom.selectbox(key="custom.0.mixer").set_value("attention").run()
    custom.selectbox(key="model").set_value("kimi-k3").run()
    custom.selectbox(key="model").set_value("custom").run()
    assert custom.number_input(key="custom.0.mixer.attention.k_dim").value == 96
    custom.selectbox(key="custom.0.mixer").set_value("mamba2").run()
    assert custom.number_input(key="custom.0.mixer.mamba2.state_size").value == 64


def test_a_custom_model_travels_in_the_link(custom: AppTest, open_app: OpenApp) -> None:
    custom.number_input(key="custom.groups").set_value(2).run()
    custom.selectbox(key="custom.1.mixer").set_value("sliding_window").run()
    custom.number_input(key="custom.1.mixer.sliding_window.window").set_value(512).run()
    custom.selectbox(key="custom.1.ffn").set_value("moe").run()
    keys = dict(custom.query_params)
    spec = unpack_spec(keys["spec"])
    assert [layer.kinds for layer in spec.layers] == [("attention",), ("sliding_window",)]
    receiver = open_app(**keys)
    assert headline(receiver) == headline(custom)
    assert receiver.number_input(key="custom.1.mixer.sliding_window.window").value == 512


@pytest.mark.parametrize("preset", ["kimi-k3", "deepseek-v3", "gpt-oss-120b"])
def test_a_preset_can_be_edited_as_a_custom_model(open_app: OpenApp, preset: str) -> None:
    app = open_app(v="1", model=preset, tp="8", context="40000", batch="4")
    before = headline(app)
    app.button(key="start_from_preset").click().run()
    assert not app.exception
    assert app.selectbox(key="model").value == "custom"
    assert headline(app) == before
    app.number_input(key="custom.0.count").set_value(200).run()
    assert headline(app) != before


def test_a_model_the_editor_cannot_show_is_computed_as_it_is(open_app: OpenApp) -> None:
    from calc.link import encode
    from calc.scenario import Scenario

    preset = next(spec for name in preset_ids() if not _fits(spec := load_preset(name)))
    spec = preset.model_copy(update={"id": "custom", "revision": 1})
    app = open_app(**encode(Scenario("custom", spec=spec, context=3000)))
    direct = open_app(v="1", model=preset.id, context="3000")
    assert headline(app) == headline(direct)


def _fits(spec: object) -> bool:
    return can_start_from(spec)  # type: ignore[arg-type]
