"""Practice in a real browser, without a mouse: three questions one after another."""

import re

from playwright.sync_api import Page, expect

from calc.learn.quiz import question
from tests.browser.conftest import OpenPage, settle
from tests.browser.test_accessibility import tab_to

QUIZ = 7


def answer(page: Page, number: int) -> None:
    """Reach the field or the choices by Tab, answer rightly, send with Enter."""
    one = question(QUIZ, "all", number)
    if one.options:
        page.get_by_role("radiogroup").last.get_by_role("radio").first.focus()
        for _ in range(one.right):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
        tab_to(page, "Check")
    else:
        page.keyboard.press("Home")
        field = page.get_by_placeholder(re.compile("[0-9]")).last
        tab_to(page, field.get_attribute("aria-label") or "")
        page.keyboard.type(f"{one.value:.6g}")
    page.keyboard.press("Enter")
    settle(page)


def test_three_questions_need_no_mouse(open_page: OpenPage) -> None:
    page = open_page(f"?view=learn&learn_part=practice&learn_quiz={QUIZ}")
    for number in (1, 2, 3):
        answer(page, number)
        expect(page.get_by_text("Right.", exact=True)).to_be_visible()
        expect(page.get_by_text(f"{number} of {number} right so far")).to_be_visible()
        tab_to(page, "Next")
        page.keyboard.press("Enter")
        settle(page)
    assert "learn_number=4" in page.url


def test_paper_and_presentation_have_no_inputs(open_page: OpenPage) -> None:
    page = open_page("?view=learn&learn_part=derive&presenting=on")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    page.get_by_role("button", name="End presentation").click()
    settle(page)
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    expect(page.get_by_role("button", name="Present")).to_be_hidden()
