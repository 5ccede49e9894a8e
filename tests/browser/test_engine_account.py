"""A start-up log in a real browser: uploaded, compared, and its inputs taken over."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, settle
from tests.calc.test_logs import KIMI

PAGE = "?v=1&model=kimi-linear-48b&lang=en&view=capacity"


def test_an_uploaded_log_is_compared_and_sets_the_inputs(
    open_page: OpenPage, tmp_path: Path
) -> None:
    """Two megabytes: more than a config.json may have, less than a log."""
    filler = "INFO 04-23 10:00:00 [loader.py:1] Loading safetensors checkpoint shards\n"
    path = tmp_path / "server.log"
    path.write_text(KIMI + filler * (2 * 2**20 // len(filler)))
    page = open_page(PAGE, width=390)
    page.get_by_test_id("stMain").get_by_role("radio", name="Log", exact=True).click()
    settle(page)
    page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(path)
    expect(page.get_by_text("A log of vLLM")).to_be_visible(timeout=20_000)
    settle(page)
    main = page.get_by_test_id("stMain")
    expect(main.get_by_text("no second state is kept for prefix caching")).to_be_visible()
    page.get_by_role("button", name="Set these inputs").click()
    settle(page)
    said = {key: texts[0] for key, texts in parse_qs(urlsplit(page.url).query).items()}
    assert (said["tp"], said["context"], said["prefix_caching"]) == ("2", "120000", "off")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_test_id("stMain").get_by_role("radio", name="Engine", exact=True).click()
    settle(page)
    expect(main.get_by_text("allocates it on one rank, from 2.30 GiB as typed")).to_be_visible()
