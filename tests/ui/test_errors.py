"""A scenario that cannot be: one message with field, rule and legal values, and no numbers."""

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.conftest import headline, shown_text


def test_an_illegal_size_is_explained_and_stays_as_typed(app: AppTest) -> None:
    app.number_input(key="tp").set_value(5).run()
    (message,) = app.error
    assert message.value.startswith("**TP** · 5 does not divide the 96")
    assert "TP may be 1, 2, 3, 4, 6, 8" in message.value
    assert app.number_input(key="tp").value == 5
    assert not app.metric
    assert not app.get("plotly_chart")


def test_one_click_applies_a_legal_value(app: AppTest) -> None:
    app.number_input(key="dcp").set_value(3).run()
    assert "DCP may be 1, 2, 4, 8" in app.error[0].value
    assert app.button(key="fix").label == "Set DCP to 2"
    app.button(key="fix").click().run()
    assert not app.error
    assert app.number_input(key="dcp").value == 2
    assert headline(app)[3] == "8 ranks"


@pytest.mark.parametrize(
    ("widget", "typed", "field"),
    [
        ("kv_dtype", "fp8_ds_mla", None),
        ("dcp_backend", "fi_a2a", "DCP 后端"),
        ("query_replication", "on", "Query 复制"),
    ],
)
def test_options_that_do_not_exist_are_worded_in_chinese(
    app: AppTest, widget: str, typed: str, field: str | None
) -> None:
    app.segmented_control(key="lang").set_value("zh").run()
    app.selectbox(key=widget).set_value(typed).run()
    assert [f"**{field}**" in error.value for error in app.error] == ([True] if field else [])


def test_about_opens_although_the_scenario_is_impossible(app: AppTest) -> None:
    app.number_input(key="tp").set_value(5).run()
    app.segmented_control(key="view").set_value("about").run()
    assert app.error
    assert "GiB and GB" in shown_text(app)


def test_too_many_stages_name_the_layers(app: AppTest) -> None:
    app.number_input(key="pp").set_value(100).run()
    assert "the model has 93" in shown_text(app)
    app.button(key="fix").click().run()
    assert app.number_input(key="pp").value == 93
