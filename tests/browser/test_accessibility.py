"""Every view is open to a keyboard, a screen reader and weak eyes (axe: WCAG 2 AA, both themes)."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from calc.fields import ChoiceField
from calc.view_inputs import EVERY, VIEWS
from tests.browser.conftest import OpenPage, settle

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}


def parts(view: str) -> tuple[str, ...]:
    """Addresses of all parts of a view."""
    field = EVERY.get(f"{view}_part")
    choices = field.choices if isinstance(field, ChoiceField) else ("",)
    return tuple(f"?view={view}" + (f"&{view}_part={part}" if part else "") for part in choices)


def faults(page: Page) -> list[str]:
    """What axe finds: the rule, how it is broken, where."""
    found: list[dict[str, Any]] = Axe().run(page, options=RULES).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:160]} | {' '.join(node['failureSummary'].split())[:300]}"
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_no_fault(open_page: OpenPage, view: str, theme: Any) -> None:
    for address in parts(view):
        page = open_page(address, color_scheme=theme)
        assert faults(page) == [], address
        page.close()


MOST_TABS = 80


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has this name (its label, or its text) has the focus."""
    focused = "document.activeElement.ariaLabel || document.activeElement.innerText"
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(focused).strip().split("\n")[-1] == name:
            return
    pytest.fail(f"Tab does not reach {name!r}")


def test_the_main_path_needs_no_mouse(page: Page) -> None:
    """An input, the result, the arithmetic, another view: all by Tab, Enter and arrows."""
    before = page.get_by_test_id("stMetricValue").first.inner_text()
    tab_to(page, "Context (tokens)")
    page.keyboard.press("Control+A")
    page.keyboard.type("8192")
    page.keyboard.press("Enter")
    settle(page)
    assert page.get_by_test_id("stMetricValue").first.inner_text() != before
    tab_to(page, "The arithmetic, with this scenario's numbers")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("details[open] .katex").count() > 0
    page.keyboard.press("Home")
    page.get_by_role("radio", name="Capacity", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    settle(page)
    assert page.get_by_role("radio", name="Traffic", exact=True).is_checked()
