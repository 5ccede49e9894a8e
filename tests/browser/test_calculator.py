"""The main job in a real browser: choose, read, send, open elsewhere, walk back."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from calc.report import evaluate
from calc.scenario import Scenario
from calc.timing.report import times
from tests.browser.conftest import OpenPage, settle
from ui import numbers
from ui.state import START

BROKEN = "?v=1&model=kimi-k3&tp=abc&nonsense=1"


def headline(page: Page) -> list[str]:
    """The four headline numbers as they stand on the page."""
    return page.get_by_test_id("stMetricValue").all_inner_texts()[:4]


def choose_model(page: Page, name: str) -> None:
    """Pick a model in the sidebar by typing a part of its name."""
    page.get_by_test_id("stSidebar").get_by_test_id("stSelectbox").first.click()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    settle(page)


def type_number(page: Page, label: str, value: int) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(str(value))
    field.press("Enter")
    settle(page)


def copied_link(page: Page) -> str:
    """What the copy button of the share field puts on the clipboard."""
    page.get_by_role("button", name="Share").click()
    field = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode")
    field.hover()
    field.get_by_role("button").click()
    link: str = page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    return link


def test_a_copied_link_shows_the_same_numbers_elsewhere(page: Page, open_page: OpenPage) -> None:
    choose_model(page, "DeepSeek-V3")
    type_number(page, "Context (tokens)", 8192)
    report = evaluate(Scenario("deepseek-v3", tp=8, dcp=8, batch=64, context=8192))
    request, batch, sent, ranks = report.headline()
    expected = [
        numbers.memory(request),
        f"{batch:,} requests",
        numbers.traffic(sent),
        f"{ranks} ranks",
    ]
    assert headline(page) == expected
    link = copied_link(page)
    assert link.startswith("http://127.0.0.1:")
    receiver = open_page("?" + link.partition("/?")[2])
    assert headline(receiver) == expected
    expect(receiver.get_by_text("Opened from a link")).to_be_visible()
    assert receiver.get_by_label("Context (tokens)", exact=True).input_value() == "8192"


def test_back_and_forward_walk_through_scenarios(page: Page) -> None:
    start = headline(page)
    choose_model(page, "Llama 3.1 70B")
    expect(page.get_by_text("DCP was set from 8 to 1")).to_be_visible()
    llama = headline(page)
    type_number(page, "Batch (requests per replica)", 5)
    five = headline(page)
    page.go_back()
    expect(page.get_by_label("Batch (requests per replica)", exact=True)).to_have_value("64")
    settle(page)
    assert headline(page) == llama
    page.go_back()
    expect(page.get_by_label("DCP", exact=True)).to_have_value("8")
    settle(page)
    assert headline(page) == start
    page.go_forward()
    expect(page.get_by_label("DCP", exact=True)).to_have_value("1")
    page.go_forward()
    expect(page.get_by_label("Batch (requests per replica)", exact=True)).to_have_value("5")
    settle(page)
    assert headline(page) == five


def test_a_broken_link_is_explained_and_stays_until_something_changes(open_page: OpenPage) -> None:
    page = open_page(BROKEN)
    expect(page.get_by_text("This link cannot be opened as it is")).to_be_visible()
    expect(page.get_by_text("nonsense")).to_be_visible()
    assert page.url.endswith(BROKEN)
    assert headline(page)[0] == numbers.memory(evaluate(START).headline()[0])
    type_number(page, "TP", 16)
    assert "tp=16" in page.url
    expect(page.get_by_text("This link cannot be opened as it is")).to_have_count(0)


def test_two_quick_changes_are_both_kept(page: Page) -> None:
    """The second one is sent before the browser knows the address of the first."""
    batch = page.get_by_label("Batch (requests per replica)", exact=True)
    batch.fill("7")
    batch.press("Enter")
    context = page.get_by_label("Context (tokens)", exact=True)
    context.fill("4321")
    context.press("Enter")
    settle(page)
    assert (batch.input_value(), context.input_value()) == ("7", "4321")
    assert re.search(r"context=4321&batch=7\b", page.url)


def test_the_language_switch_keeps_values_and_view(page: Page) -> None:
    type_number(page, "TP", 16)
    page.get_by_role("radio", name="Traffic").click()
    settle(page)
    page.get_by_role("radio", name="中文").click()
    settle(page)
    expect(page.get_by_label("TP", exact=True)).to_have_value("16")
    expect(page.get_by_role("radio", name="通信")).to_be_checked()
    expect(page.get_by_text("DCP 下一个 MLA 层的一步 decode")).to_be_visible()


@pytest.mark.parametrize("view", ["capacity", "traffic", "about"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_view_scrolls_sideways_on_a_phone(open_page: OpenPage, view: str, lang: str) -> None:
    page = open_page(f"?view={view}&lang={lang}", width=390, height=844)
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_formulas_open_with_numbers_filled_in(page: Page) -> None:
    page.get_by_text("The arithmetic, with this scenario's numbers").click()
    settle(page)
    expect(page.get_by_text("Rows of one request on the fullest rank")).to_be_visible()
    assert page.locator(".katex-error").count() == 0
    assert any("452,984,832" in text for text in page.locator(".katex").all_inner_texts())


def test_a_gpu_chosen_beside_the_estimate_becomes_part_of_the_scenario(page: Page) -> None:
    page.get_by_role("radio", name="Traffic").click()
    settle(page)
    page.get_by_role("radio", name="Time", exact=True).click()
    settle(page)
    expect(page.get_by_text("Choose one above")).to_be_visible()
    page.get_by_test_id("stMain").get_by_test_id("stSelectbox").click()
    page.keyboard.type("H200")
    page.keyboard.press("Enter")
    settle(page)
    found = times(evaluate(replace(START, gpu="h200"))).decode
    shown = page.get_by_test_id("stMetricValue").all_inner_texts()
    assert f"≈ {numbers.duration(float(found.total.value))}" in shown
    assert "gpu=h200" in page.url
    page.get_by_role("radio", name="DCP exchange").click()
    settle(page)
    expect(page.get_by_text("Why less than 8")).to_be_visible()
    page.get_by_role("radio", name="中文").click()
    settle(page)
    expect(page.get_by_role("radio", name="DCP 的交换")).to_be_checked()
    assert page.get_by_test_id("stPlotlyChart").count() == 2
