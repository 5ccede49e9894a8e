"""The GPU view without a GPU: the recorded result, an upload, a run by a fake worker."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.calc.test_measured import COLLECTIVE, LAYER
from tests.ui.conftest import OpenApp, card, shown_text
from ui import bench, bench_control
from ui.bench import Bench
from ui.bench_tables import plain

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "gpu" / "fake_worker.py"
RECORDED = (ROOT / "gpu" / "recorded" / "h200-kimi-k3.json").read_text(encoding="utf-8")


REACHED = ("hbm", "attention", "gemm")


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


def address(app: AppTest, key: str) -> str:
    """What the link says of a field."""
    value = app.query_params[key]
    return value if isinstance(value, str) else value[0]


def test_a_cards_rates_are_used_at_a_press_and_travel_with_the_link(open_app: OpenApp) -> None:
    app = open_app(view="gpu")
    assert "instead of" in shown_text(app)
    app.button(key="bench_rates").click().run()
    assert not app.exception
    assert address(app, "gpu") == "h200"
    assert address(app, "cache_memory") == "typed"
    shares = {name: float(address(app, f"{name}_efficiency")) for name in REACHED}
    assert shares["hbm"] == pytest.approx(0.9617, abs=1e-3)
    assert 0.6 < shares["gemm"] < shares["attention"] < 0.8
    assert "In use" in shown_text(app)
    app.button(key="bench_rates").click().run()
    assert address(app, "hbm_efficiency") == "0"
    assert address(app, "gpu") == "h200"


def test_the_scenario_measured_can_be_shown_on_the_page(open_app: OpenApp) -> None:
    app = open_app(view="gpu")
    assert "For another scenario" in shown_text(app)
    app.button(key="bench_open").click().run()
    assert address(app, "context") == "1048576"
    assert "For the scenario that the page shows" in shown_text(app)


def test_calibration_is_asked_for_by_a_checkbox(
    open_app: OpenApp, runner: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def command(query: str, calibrate: bool) -> list[str]:
        asked.append(calibrate)
        return [sys.executable, str(FAKE), "result"]

    made = Bench(command)
    monkeypatch.setattr(bench_control, "bench", lambda: made)
    app = open_app(view="gpu")
    app.checkbox(key="bench_calibrate").check()
    app.button(key="bench_start").click().run()
    assert made.job is not None
    assert made.job.finished.wait(20)
    assert asked == [True]


def upload(app: AppTest, **fields: Any) -> AppTest:
    other = json.loads(RECORDED) | {"recorded": False} | fields
    name = ("other.json", json.dumps(other).encode(), "application/json")
    app.file_uploader(key="bench_upload").set_value(name).run()
    assert not app.exception
    return app


def test_why_collectives_were_not_measured_is_said_and_measured_ones_stand_beside_predictions(
    open_app: OpenApp,
) -> None:
    app = open_app(view="gpu")
    assert "at least two GPUs" in shown_text(app)
    upload(app, collectives=[COLLECTIVE], layers=[LAYER])
    assert "at least two GPUs" not in shown_text(app)
    cells = "\n".join(table.value.to_string() for table in app.table)
    assert "137.6 GB/s" in cells.replace("\u00a0", " ")
    assert len(app.get("plotly_chart")) == 2


def test_collectives_over_cpus_are_marked_and_have_no_prediction(open_app: OpenApp) -> None:
    app = upload(open_app(view="gpu"), collectives=[COLLECTIVE | {"backend": "gloo"}])
    assert "Over gloo between CPU processes" in shown_text(app)
    assert len(app.get("plotly_chart")) == 1


def test_what_a_sparse_layer_was_timed_over_is_said(open_app: OpenApp) -> None:
    skipped = [{"what": "mla", "reason": "in English", "code": "sparse_rows"}]
    skipped += [{"what": "mamba1", "reason": "no kernel", "code": "no_kernel"}]
    app = upload(open_app(view="gpu"), skipped=skipped)
    cells = " ".join("\n".join(table.value.to_string() for table in app.table).split())
    assert "the indexer chooses" in cells.replace("\u00a0", " ")
    assert "Mamba-1" in cells


def test_a_result_with_a_kind_of_layer_that_is_not_ours_is_shown(open_app: OpenApp) -> None:
    kernels = json.loads(RECORDED)["kernels"]
    kernels[0]["attention"]["kind"] = "{strange} [x](http://y)"
    upload(open_app(view="gpu"), kernels=kernels)


def test_names_from_a_result_carry_no_markup() -> None:
    assert not set("<>[]*$`#|{}") & set(plain("<b>x</b> [a](http://y) **z** $q$"))
