"""The GPU view without a GPU: the recorded result, an upload, a run by a fake worker."""

import json
import sys
from pathlib import Path

import pytest

from tests.ui.conftest import OpenApp, card, shown_text
from ui import bench, bench_control
from ui.bench import Bench
from ui.bench_tables import plain

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "gpu" / "fake_worker.py"
RECORDED = (ROOT / "gpu" / "recorded" / "h200-kimi-k3.json").read_text(encoding="utf-8")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A machine that may measure, and a worker that pretends to."""
    made = Bench(lambda query, calibrate: [sys.executable, str(FAKE), "result"])
    monkeypatch.setattr(bench_control, "bench", lambda: made)
    monkeypatch.setattr(bench_control, "why_not", lambda: None)
    return made


def test_without_a_gpu_the_button_says_why_and_the_recorded_result_is_shown(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(bench.ALLOWED, raising=False)
    app = open_app(view="gpu")
    assert app.button(key="bench_start").disabled
    assert "CALC_BENCH" in shown_text(app)
    assert "recorded example" in shown_text(app)
    assert card(app, "Memory read rate").endswith("TB/s")
    (chart,) = app.get("plotly_chart")
    assert len(chart.proto.alt) > 40


def test_a_run_shows_its_result_and_keeps_it(open_app: OpenApp, runner: Bench) -> None:
    app = open_app(view="gpu")
    app.button(key="bench_start").click().run()
    assert runner.job is not None
    assert runner.job.finished.wait(20)
    app.run()
    assert not app.exception
    assert len(app.selectbox(key="bench_shown").options) == 2
    app.run()
    assert len(app.selectbox(key="bench_shown").options) == 2


def test_a_failed_run_says_so_in_one_sentence(
    open_app: OpenApp, runner: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Bench(lambda query, calibrate: [sys.executable, str(FAKE), "oom"])
    monkeypatch.setattr(bench_control, "bench", lambda: failing)
    app = open_app(view="gpu")
    app.button(key="bench_start").click().run()
    assert failing.job is not None
    assert failing.job.finished.wait(20)
    app.run()
    assert "too little free memory" in shown_text(app)
    assert not app.button(key="bench_start").disabled


def test_somebody_elses_run_is_seen_and_cannot_be_cancelled(
    open_app: OpenApp, runner: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Bench(lambda query, calibrate: [sys.executable, str(FAKE), "hang"])
    monkeypatch.setattr(bench_control, "bench", lambda: slow)
    assert slow.start("somebody else", "") is not None
    try:
        app = open_app(view="gpu")
        assert app.button(key="bench_cancel").disabled
        assert not [button for button in app.button if button.key == "bench_start"]
    finally:
        assert slow.cancel("somebody else")


def test_an_uploaded_result_is_shown_and_a_bad_one_refused(open_app: OpenApp) -> None:
    app = open_app(view="gpu")
    other = json.loads(RECORDED) | {"recorded": False, "model": "Some [model](http://x)"}
    app.file_uploader(key="bench_upload").set_value(
        ("other.json", json.dumps(other).encode(), "application/json")
    ).run()
    assert not app.exception
    assert len(app.selectbox(key="bench_shown").options) == 2
    assert "](http" not in app.selectbox(key="bench_shown").options[0]
    app.file_uploader(key="bench_upload").set_value(("bad.json", b"{", "application/json")).run()
    assert not app.exception
    assert "not JSON" in shown_text(app)


def test_names_from_a_result_carry_no_markup() -> None:
    assert not set("<>[]*$`#|{}") & set(plain("<b>x</b> [a](http://y) **z** $q$"))
