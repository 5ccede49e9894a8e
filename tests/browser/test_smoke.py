"""The page opens, in both modes and on a phone, and asks nobody but its own server."""

import pytest

from tests.browser.conftest import OpenPage


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_opens_without_an_error_and_fits_its_width(
    open_page: OpenPage, color_scheme: str, width: int
) -> None:
    page = open_page(width=width, color_scheme=color_scheme)
    assert page.locator("h1").first.is_visible()
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_chinese_reader_sees_no_error(open_page: OpenPage) -> None:
    assert open_page(locale="zh-CN").locator("[data-testid=stException]").count() == 0
