"""Practice on the page: right, wrong and unreadable answers; the same quiz from a link."""

import pytest
from streamlit.testing.v1 import AppTest

from calc.learn.quiz import LENGTH, question
from tests.ui.conftest import OpenApp, shown_text
from ui.text import LANGUAGES


def opened(open_app: OpenApp, number: int = 1, **keys: str) -> AppTest:
    keys = {"view": "learn", "learn_part": "practice", "learn_quiz": "7"} | keys
    return open_app(**keys, learn_number=str(number))


def numeric(topic: str = "kv") -> int:
    """The first question of quiz 7 that asks for a number."""
    return next(n for n in range(1, LENGTH + 1) if question(7, topic, n).exact is not None)


def check(app: AppTest, text: str) -> None:
    field = next(box for box in app.text_input if str(box.key).startswith("practice_answer"))
    field.set_value(text)
    button = next(one for one in app.button if str(one.label).startswith(("Check", "提交")))
    button.click().run()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("number", range(1, LENGTH + 1))
def test_every_question_is_worded(open_app: OpenApp, number: int, lang: str) -> None:
    app = opened(open_app, number, lang=lang)
    assert not app.exception
    assert "practice." not in shown_text(app)


def test_a_right_answer_shows_both_ways(open_app: OpenApp) -> None:
    number = numeric()
    app = opened(open_app, number, learn_topic="kv")
    check(app, f"{question(7, 'kv', number).value:.0f} B")
    assert "Right" in app.success[0].value
    assert "In the head" in shown_text(app)


def test_a_wrong_answer_is_told_and_the_right_one_given(open_app: OpenApp) -> None:
    app = opened(open_app, numeric(), learn_topic="kv")
    check(app, "1 TiB")
    assert "Not right" in app.error[0].value
    assert "The answer" in shown_text(app)


def test_what_cannot_be_read_is_explained_and_stays(open_app: OpenApp) -> None:
    app = opened(open_app, numeric(), learn_topic="kv")
    check(app, "about twelve")
    assert "1.5 MiB" in app.error[0].value
    field = next(box for box in app.text_input if str(box.key).startswith("practice_answer"))
    assert field.value == "about twelve"


def test_a_link_gives_a_teammate_the_same_question(open_app: OpenApp) -> None:
    app = opened(open_app, 3)
    app.button(key="practice_next").click().run()
    link = {key: app.query_params[key] for key in app.query_params}
    assert "4" in (link["learn_number"], *link["learn_number"])
    received = open_app(**link)
    asked = [text.value for text in app.markdown if text.value.startswith("####")]
    assert asked == [text.value for text in received.markdown if text.value.startswith("####")]


def test_presentation_hides_the_inputs_and_travels(open_app: OpenApp) -> None:
    app = opened(open_app)
    app.button(key="present").click().run()
    assert app.button(key="present").label == "End presentation"
    link = {key: app.query_params[key] for key in app.query_params}
    assert open_app(**link).button(key="present").label == "End presentation"
