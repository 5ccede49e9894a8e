"""The engine's account on the page: every part, both engines and languages, numbers as computed."""

from __future__ import annotations

import json
import time

import pytest
from streamlit.testing.v1 import AppTest

from calc.logs import MAX_CHARACTERS
from calc.report import Report, evaluate
from calc.scenario import Scenario
from tests.calc.test_logs import KIMI, QWEN
from tests.ui.conftest import OpenApp, card, plain, shown_text
from ui import engine_charts, numbers
from ui.text import LANGUAGES, Translator
from ui.views.capacity import PART, PARTS
from ui.views.engine import budget, log, mixes

GEMMA = {"v": "1", "model": "gemma-3-27b", "gpu": "h100", "context": "32768", "batch": "4"}
QWEN_NEXT = {
    "v": "1",
    "model": "qwen3-next-80b-a3b",
    "engine": "sglang",
    "gpu": "h200",
    "tp": "2",
    "context": "32768",
    "batch": "4",
    "shared_prefix": "4096",
    "lengths": "4096x30-131072x2",
}
STAGES = {"v": "1", "model": "llama-3.1-70b", "gpu": "h100", "pp": "4", "pp_layers": "19-21-21-19"}


def opened(open_app: OpenApp, part: str, **keys: str) -> AppTest:
    app = open_app(**keys)
    app.segmented_control(key=PART).set_value(part).run()
    assert not app.exception
    return app


def computed(keys: dict[str, str]) -> Report:
    words = {name: text for name, text in keys.items() if name not in ("v", "model")}
    sizes = ("tp", "pp", "context", "batch", "shared_prefix")
    values = {name: int(text) if name in sizes else text for name, text in words.items()}
    return evaluate(Scenario(keys["model"], **values))  # type: ignore[arg-type]


def everything(app: AppTest) -> str:
    cells = [str(cell) for table in app.table for cell in plain(table.value).to_numpy().ravel()]
    titles = [str(title) for table in app.table for title in plain(table.value).columns]
    metrics = [f"{metric.label} {metric.value}" for metric in app.metric]
    buttons = [button.label for button in app.button]
    return "\n".join([shown_text(app), *cells, *titles, *metrics, *buttons])


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("keys", [GEMMA, QWEN_NEXT, STAGES], ids=["vllm", "sglang", "stages"])
def test_every_part_draws_in_both_languages(
    open_app: OpenApp, keys: dict[str, str], part: str, lang: str
) -> None:
    app = opened(open_app, part, **keys, lang=lang)
    assert not app.error
    said = everything(app)
    assert "{" not in said
    prefixes = ("engine.", "budget.", "pool.", "waste.", "log.", "answers.", "column.", "short.")
    assert not [line for line in said.split("\n") if line.startswith(prefixes)]
    assert len(app.get("plotly_chart")) <= 2


def test_the_headline_names_the_gpu_that_the_budget_is_estimated_from(open_app: OpenApp) -> None:
    assert "19.0 GiB estimated from H100" in shown_text(open_app(**GEMMA))
    assert "without weights" in shown_text(open_app(v="1", model="gemma-3-27b"))


def test_the_budget_comes_off_step_by_step(open_app: OpenApp) -> None:
    app = opened(open_app, "budget", **GEMMA)
    report = computed(GEMMA)
    left = int(report.engine.budget.stages[0].value)
    assert card(app, "Left for cache") == numbers.memory(left)
    assert card(app, "GPU memory") == numbers.memory(85018877624)
    steps = plain(app.table[0].value)
    assert list(steps["Basis"])[3:6] == ["Estimate"] * 3
    assert "gpu_memory_utilization: 0.92" in list(steps["Input"])
    bars = engine_charts.Bar
    made = budget.bars(Translator("en"), report, report.engine.budget.stages[0])
    whole, *less, rest = made
    assert isinstance(whole, bars)
    assert whole.size - sum(bar.size for bar in less) == rest.size == left
    assert less[-1].start == left


def test_a_typed_budget_offers_gpus(open_app: OpenApp) -> None:
    app = opened(open_app, "budget", v="1", model="llama-3.1-8b")
    assert "typed: 80 GiB on each rank, without weights" in shown_text(app)
    app.button(key="budget_h200").click().run()
    assert app.session_state["gpu"] == "h200"
    assert "estimated from H200" in shown_text(app)


def test_weights_that_do_not_fit_are_named_and_a_click_makes_them(open_app: OpenApp) -> None:
    app = opened(open_app, "budget", v="1", model="llama-3.1-70b", gpu="l40s")
    assert "94.1 GiB short" in app.warning[0].value
    assert "TP 4: 4.48 GiB for cache" in app.button(key="way_tp").label
    app.button(key="way_tp").click().run()
    assert app.session_state["tp"] == 4
    assert not app.warning


def test_a_request_that_does_not_fit_is_named_with_what_would(open_app: OpenApp) -> None:
    app = open_app(v="1", model="llama-3.1-8b", context="131072", kv_cache_memory_gib="4")
    assert "vLLM allocates 16 GiB for one request of 131,072 tokens" in app.warning[0].value
    app.button(key="fit_context").click().run()
    assert app.session_state["context"] == 2047 * 16
    assert not app.warning


def test_the_blocks_are_those_of_the_library(open_app: OpenApp) -> None:
    app = opened(open_app, "engine", v="1", model="kimi-k3", tp="8", context="131072")
    view = evaluate(Scenario("kimi-k3", tp=8, context=131072)).engine.view
    assert view is not None
    assert card(app, "Blocks") == f"{view.pool_blocks.value:,}"  # type: ignore[union-attr]
    assert card(app, "GPU KV cache size") == f"{view.tokens.value:,}"  # type: ignore[union-attr]
    said = everything(app)
    assert "Attention block 768 tokens" in said
    assert "8.68 %" in said
    assert "vLLM 0.33" in said
    groups = plain(app.table[1].value)
    assert list(groups["Group"]) == ["3 ×", "1"]
    assert list(groups["Layers"]) == ["23", "24"]
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    bars = [trace["x"] for trace in spec["data"] if trace["type"] == "bar"]
    formula, allocated, waste = (sum(column) for column in zip(*bars, strict=True))
    assert formula + waste == pytest.approx(allocated, rel=1e-4)


@pytest.mark.parametrize("keys", [GEMMA, QWEN_NEXT, STAGES], ids=["vllm", "sglang", "stages"])
def test_every_derivation_has_words(open_app: OpenApp, keys: dict[str, str]) -> None:
    for part in ("budget", "engine", "answers"):
        app = opened(open_app, part, **keys)
        app.session_state[f"derivation_{part}"] = True
        app.run()
        for option in list(app.selectbox(key=f"derived_{part}").options):
            assert not option.startswith("derived.")
        assert not app.exception
        assert "item." not in shown_text(app)


def test_sglang_has_separate_budgets_and_names_the_one_that_binds(open_app: OpenApp) -> None:
    app = opened(open_app, "answers", **QWEN_NEXT)
    view = computed(QWEN_NEXT).engine.view
    assert view is not None
    pools = plain(app.table[1].value)
    assert list(pools["Pool"]) == ["State pool", "Token pool"]
    assert f"{view.max_requests.value} (binds)" in list(pools["Requests per replica"])
    most = plain(app.table[0].value)
    assert next(iter(most["SGLang 0.5.23"])) == f"{view.max_requests.value}"
    said = everything(app)
    assert "118,784 distinct tokens" in said
    assert "32 requests with 385,024 tokens" in said


def test_a_mix_is_made_from_a_median_and_a_tail_or_from_a_list(open_app: OpenApp) -> None:
    app = opened(open_app, "answers", v="1", model="llama-3.1-8b")
    app.session_state[mixes.FOLD] = True
    app.run()
    app.button(key="mix_use").click().run()
    assert app.session_state["lengths"] == "4096x61-131072x3"
    app.text_area(key="mix_text").set_value("100 200, 100; x").run()
    app.button(key="mix_use_list").click().run()
    assert app.session_state["lengths"] == "100x2-200x1"
    app.text_area(key="mix_text").set_value("nothing").run()
    app.button(key="mix_use_list").click().run()
    assert "No usable lengths" in app.error[0].value
    assert app.session_state["lengths"] == "100x2-200x1"


def test_a_long_list_is_rounded_up_until_it_fits_a_link() -> None:
    text = mixes.written(range(1, 5000))
    assert len(text) <= mixes.MOST_LETTERS
    pairs = Scenario("llama-3.1-8b", lengths=text).pairs("lengths")
    assert sum(count for _, count in pairs) == 4999
    assert max(tokens for tokens, _ in pairs) >= 4999


def with_log(open_app: OpenApp, text: str, **keys: str) -> AppTest:
    app = opened(open_app, "log", **({"v": "1", "model": "kimi-linear-48b"} | keys))
    app.text_area(key="log_text").set_value(text).run()
    app.button(key="log_read").click().run()
    assert not app.exception
    return app


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_log_is_explained_and_sets_the_inputs(open_app: OpenApp, lang: str) -> None:
    app = with_log(open_app, KIMI, lang=lang)
    said = everything(app)
    assert "75,840" in said
    assert Translator(lang)("reason.states_not_cached") in said
    assert Translator(lang)("log.line.by_group") in said
    app.button(key="log_set").click().run()
    kept = app.session_state
    assert (kept["tp"], kept["context"], kept["kv_cache_memory_gib"]) == (2, 120000, 2.3)
    assert kept["prefix_caching"] == "off"
    assert not app.exception


def test_a_log_of_another_model_offers_to_show_it(open_app: OpenApp) -> None:
    app = with_log(open_app, QWEN)
    assert "The log names Qwen3.5-27B" in app.warning[0].value
    app.button(key="log_model").click().run()
    assert app.session_state["model"] == "qwen3.5-27b"
    assert "agree" in app.success[0].value


def test_a_log_that_contradicts_itself_is_named_line_by_line(open_app: OpenApp) -> None:
    app = with_log(open_app, KIMI + "INFO tensor_parallel_size=4\n")
    assert "contradicts itself in 1 places" in app.warning[0].value
    row = app.dataframe[0].value.iloc[0]
    assert list(row) == ["TP", "2 (line 1)", "4 (line 6)"]


def test_logs_of_other_tools_and_no_logs_are_refused_with_a_message(open_app: OpenApp) -> None:
    app = with_log(open_app, "llama_model_loader: loaded meta data\nllama_kv_cache: size")
    assert "llama.cpp" in app.error[0].value
    app.text_area(key="log_text").set_value("hello").run()
    app.button(key="log_read").click().run()
    assert "No line of a vLLM or SGLang" in app.error[0].value


def test_text_of_a_log_is_shown_as_it_is_and_nowhere_else(open_app: OpenApp) -> None:
    bad = "![x](http://example.org/a.png) <script>"
    app = with_log(open_app, f"{KIMI}INFO model='{bad}'\nINFO kv_cache_dtype=auto\n")
    cells = [str(cell) for frame in app.dataframe for cell in frame.value.to_numpy().ravel()]
    assert any("example.org" in cell for cell in cells)
    assert "example.org" not in everything(app)


def test_ten_megabytes_are_read_and_more_is_refused(open_app: OpenApp) -> None:
    line = "INFO 04-23 10:00:00 [loader.py:1] Loading safetensors checkpoint shards: 12% blocks\n"
    text = KIMI + line * ((MAX_CHARACTERS - len(KIMI)) // len(line))
    began = time.process_time()
    app = with_log(open_app, text)
    assert time.process_time() - began < 30
    assert "75,840" in everything(app)
    app.text_area(key="log_text").set_value(text + line * 2).run()
    app.button(key="log_read").click().run()
    assert "10,485,760" in app.error[0].value
    assert log.KEPT not in app.session_state
