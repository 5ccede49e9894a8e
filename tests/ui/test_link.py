"""Links in and out: the same numbers at the other end, and every fault by name."""

import pytest
from streamlit.testing.v1 import AppTest

from calc.fields import ChoiceField
from calc.link import encode, query_string
from calc.report import evaluate
from calc.scenario import Scenario
from calc.version import FORMULAS
from calc.view_inputs import EVERY
from tests.ui.conftest import OpenApp, headline, shown_text
from ui import state
from ui.text import Translator
from ui.views import learn, plan, reuse, traffic


def sent(**changes: object) -> dict[str, str]:
    """The keys of a link as its sender copied it."""
    scenario = Scenario("deepseek-v3", tp=8, dcp=8, batch=3, context=5000, **changes)  # type: ignore[arg-type]
    return encode(scenario, evaluate(scenario).headline())


def test_a_link_opens_with_the_senders_inputs_and_says_so(open_app: OpenApp) -> None:
    app = open_app(**sent())
    assert app.selectbox(key="model").value == "deepseek-v3"
    assert app.number_input(key="context").value == 5000
    assert "Opened from a link: every input is as it was sent." in shown_text(app)
    assert not app.warning
    assert dict(app.query_params) == sent()


def test_the_notice_goes_with_the_first_change(open_app: OpenApp) -> None:
    app = open_app(**sent())
    app.number_input(key="batch").set_value(4).run()
    assert "Opened from a link" not in shown_text(app)
    assert app.query_params["batch"] == "4"


def test_numbers_that_moved_since_are_named(open_app: OpenApp) -> None:
    app = open_app(**{**sent(), "seen": "1024.168.677347328.8", "r": "7"})
    text = shown_text(app)
    assert "Cache per request: 1 KiB → " in text
    assert "World size" not in text
    assert "revision 7 in the link, 1 here" in text


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_broken_link_names_every_bad_key_and_stays(open_app: OpenApp, lang: str) -> None:
    keys = {"v": "1", "model": "kimi-k3", "tp": "1_6", "nonsense": "1", "lang": lang}
    app = open_app(**keys)
    assert headline(app)[0] == "486 MiB"
    text = shown_text(app)
    assert "**TP**" in text
    assert "1_6" in text
    assert "**nonsense**" in text
    assert dict(app.query_params) == keys
    app.segmented_control(key="view").set_value("traffic").run()
    assert app.query_params["tp"] == "1_6", "looking around keeps the message and the address"
    app.number_input(key="batch").set_value(2).run()
    assert app.query_params["tp"] == "8"
    assert not app.warning


@pytest.mark.parametrize(
    "keys",
    [
        {"v": "2", "model": "kimi-k3"},
        {"v": "1", "model": "no-such-model"},
        {"v": "1", "model": "kimi-k3", "tp": ["8", "8"]},
        {"v": "1", "model": "kimi-k3", "lang": "fr"},
        {"v": "1", "model": "kimi-k3", "view": ["traffic", "about"]},
        {"v": "1", "model": "kimi-k3", "context": "1e6"},
        {"v": "1", "model": "custom"},
        {"v": "1", "model": "custom", "spec": "eJw"},
        {"v": "1", "model": "kimi-k3", "kv_cache_memory_gib": "inf"},
        {"anything": "x" * 400_000},
        {f"key{number}": "1" for number in range(500)},
    ],
)
def test_no_link_takes_the_page_down(open_app: OpenApp, keys: dict[str, str]) -> None:
    app = open_app(**keys)
    assert app.warning
    assert len(app.metric) == 8
    assert len(shown_text(app)) < 10_000


def test_a_megabyte_of_query_is_not_even_read(open_app: OpenApp) -> None:
    assert headline(open_app(anything="x" * 1_000_000))[0] == "486 MiB"


HOSTILE = (
    "![x](https://evil.example/pixel.png)",
    "<img src=https://evil.example/x>",
    "[click](javascript:alert(1))",
    "$\\includegraphics{x}$ www.evil.example",
    ":material/home: `code`",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_by_code_only(open_app: OpenApp, text: str) -> None:
    faulty = dict.fromkeys(("tp", "kv_dtype", "seen", "spec", "lang"), text)
    app = open_app(**{"v": "1", "model": "kimi-k3", **faulty, text: "1"})
    assert app.warning
    assert "evil" not in shown_text(app)
    assert text[:12] not in shown_text(app)
    assert any(text[:12] in code.value for code in app.code)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_model_named_by_hostile_text_is_not_shown(open_app: OpenApp, text: str) -> None:
    app = open_app(v="1", model=text)
    assert text[:12] not in shown_text(app)


def test_back_and_forward_are_followed(app: AppTest) -> None:
    """Another address while the inputs are as the last run left them is a navigation."""
    app.number_input(key="batch").set_value(5).run()
    first = dict(app.query_params)
    app.number_input(key="batch").set_value(6).run()
    _go(app, first)
    assert app.number_input(key="batch").value == 5
    _go(app, {})
    assert headline(app) == ["486 MiB", "168 requests", "677 MB", "8 ranks"]


def test_an_input_wins_over_an_address_that_lags_behind(app: AppTest) -> None:
    """A quick second change arrives with the address of before the first one."""
    app.number_input(key="batch").set_value(5).run()
    app.query_params.clear()
    app.number_input(key="context").set_value(777).run()
    assert app.number_input(key="batch").value == 5
    assert app.number_input(key="context").value == 777
    assert app.query_params["context"] == "777"


def test_an_impossible_scenario_travels_too(open_app: OpenApp) -> None:
    app = open_app(v="1", model="kimi-k3", tp="5")
    assert "**TP** · 5 does not divide the 96" in shown_text(app)
    assert not app.metric


def test_the_link_field_holds_everything(app: AppTest) -> None:
    (code,) = app.code
    report = evaluate(state.START)
    assert query_string(encode(state.START, report.headline())) in code.value


def _go(app: AppTest, keys: dict[str, str]) -> None:
    app.query_params.clear()
    for key, text in keys.items():
        app.query_params[key] = text
    app.run()


def test_the_open_part_of_a_view_travels(open_app: OpenApp) -> None:
    app = open_app(view="reuse")
    app.segmented_control(key="reuse_part").set_value("identity").run()
    sent = {key: app.query_params[key] for key in app.query_params}
    assert sent["reuse_part"] == "identity"
    received = open_app(**sent)
    assert received.segmented_control(key="reuse_part").value == "identity"


def test_back_does_not_undo_what_another_view_was_asked(open_app: OpenApp) -> None:
    app = open_app(view="traffic")
    before = dict(app.query_params)
    app.segmented_control(key="traffic_part").set_value("links").run()
    app.segmented_control(key="view").set_value("reuse").run()
    app.segmented_control(key="reuse_part").set_value("storage").run()
    app.query_params.clear()
    app.query_params.update(before)
    app.run()
    assert app.segmented_control(key="traffic_part").value == "bytes"
    assert app.session_state["reuse_part"] == "storage"


def test_a_part_that_does_not_exist_is_named(open_app: OpenApp) -> None:
    app = open_app(v="1", model="kimi-k3", view="reuse", reuse_part="secret")
    assert "reuse_part" in shown_text(app)


@pytest.mark.parametrize(
    ("view", "parts"),
    [
        ("traffic", traffic.PARTS),
        ("reuse", reuse.PARTS),
        ("learn", learn.PARTS),
        ("plan", plan.PARTS),
    ],
)
def test_a_link_knows_every_part_of_a_view(view: str, parts: dict[str, object]) -> None:
    field = EVERY[f"{view}_part"]
    assert isinstance(field, ChoiceField)
    assert field.choices == tuple(parts)


def test_corrected_formulas_are_announced(open_app: OpenApp) -> None:
    app = open_app(**sent() | {"f": str(FORMULAS + 1)})
    assert f"revision {FORMULAS + 1} in the link, {FORMULAS} here" in shown_text(app)
    older = shown_text(open_app(**sent() | {"f": "1"}))
    for number in range(2, FORMULAS + 1):
        assert Translator("en")(f"link.corrected.{number}") in older
