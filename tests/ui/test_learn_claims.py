"""Claims on the page: filters that travel, a verdict in words, the arithmetic on demand."""

import pytest

from calc.learn.claims import CLAIMS, Verdict
from tests.ui.conftest import OpenApp, shown_text
from ui.text import LANGUAGES


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_claim_is_worded(open_app: OpenApp, lang: str) -> None:
    app = open_app(view="learn", learn_part="claims", lang=lang)
    text = shown_text(app)
    assert f"{len(CLAIMS)}" in text
    assert "checked._" not in text.replace("checked.storage", "checked._")
    assert "learn.verdict" not in text
    assert text.count("-badge[") == len(CLAIMS)


def test_filters_travel_in_the_link(open_app: OpenApp) -> None:
    app = open_app(view="learn", learn_part="claims")
    app.selectbox(key="learn_verdict").set_value("wrong").run()
    wrong = sum(claim.verdict is Verdict.WRONG for claim in CLAIMS)
    assert shown_text(app).count("-badge[") == wrong
    link = {key: app.query_params[key] for key in app.query_params}
    assert shown_text(open_app(**link)).count("-badge[") == wrong


def test_a_filter_without_claims_says_so(open_app: OpenApp) -> None:
    app = open_app(
        view="learn", learn_part="claims", v="1", model="kimi-k3", tp="8",
        learn_verdict="out_of_scope", learn_source="storage",
    )  # fmt: skip
    assert "No claim" in app.info[0].value


def test_the_arithmetic_of_a_claim_opens(open_app: OpenApp) -> None:
    app = open_app(view="learn", learn_part="claims")
    app.session_state["derivation_claims"] = True
    app.run()
    assert not app.exception
    assert "1{,}152" in shown_text(app)
