"""A config.json in a real browser: uploaded, computed, and sent to somebody else."""

from pathlib import Path

from playwright.sync_api import Page, expect

from calc.hf_config import read_config
from calc.report import evaluate
from calc.scenario import Scenario
from tests.browser.conftest import OpenPage, settle
from tests.browser.test_calculator import copied_link, headline
from ui import numbers

CONFIG = Path(__file__).resolve().parents[1] / "data" / "configs" / "minimax-text-01.json"


def upload(page: Page, name: str) -> None:
    page.get_by_role("button", name="Read a config.json").first.click()
    settle(page)
    content = {"name": name, "mimeType": "application/json", "buffer": CONFIG.read_bytes()}
    page.locator("input[type=file]").set_input_files(content)  # type: ignore[arg-type]
    settle(page)


def test_an_uploaded_config_is_computed_and_its_link_shows_the_same(
    page: Page, open_page: OpenPage
) -> None:
    upload(page, "our-model.json")
    spec = read_config(CONFIG.read_bytes()).spec
    request, *_ = evaluate(Scenario("custom", spec=spec, tp=8, context=131072, batch=64)).headline()
    assert headline(page)[0] == numbers.memory(request)
    expect(page.get_by_text("our-model (custom)").first).to_be_visible()
    expect(page.get_by_text("How the config was read").first).to_be_visible()
    assert page.locator(".js-plotly-plot").count() == 1
    link = copied_link(page)
    receiver = open_page(link[link.index("?") :])
    assert headline(receiver) == headline(page)
    expect(receiver.get_by_text("our-model (custom)").first).to_be_visible()


def test_the_model_view_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page("?v=1&model=gemma-4-e2b&view=model&lang=zh", width=390, color_scheme="dark")
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert page.locator(".js-plotly-plot").count() == 1
