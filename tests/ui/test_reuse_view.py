"""The Reuse view: chunks taken out of the cache, storage, identity, and the experiment."""

import json
import re
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from calc.link import decode_query, query_string
from calc.reuse_asked import Asked
from tests.ui.conftest import OpenApp, card, plain, shown_text
from ui.text import LANGUAGES
from ui.views.reusing import hit, same

PREFIXES = ("reuse.", "identity.", "column.", "formula.", "item.", "symbol.", "kind.")


def opened(open_app: OpenApp, part: str, model: str = "kimi-k3", **keys: str) -> AppTest:
    """One part of the view; Kimi K3 at tp = 8 on an H200 unless told otherwise."""
    keys = {"tp": "8", "gpu": "h200", "context": "100000"} | keys
    app = open_app(v="1", model=model, view="reuse", **keys)
    app.segmented_control(key="reuse_part").set_value(part).run()
    assert not app.exception
    return app


def cells(app: AppTest) -> list[str]:
    return [
        str(cell) for table in app.table for row in plain(table.value).to_numpy() for cell in row
    ]


def digests(app: AppTest) -> list[str]:
    return [code.value for code in app.code if re.fullmatch("[0-9a-f]{64}", code.value)]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("part", ["hit", "storage", "identity"])
def test_every_part_draws_with_every_text(open_app: OpenApp, part: str, lang: str) -> None:
    app = opened(open_app, part, lang=lang)
    app.session_state[f"derivation_reuse_{part}"] = True
    app.run()
    assert not app.exception
    assert not app.error
    titles = [title for table in app.table for title in table.value.columns]
    labels = [metric.label for metric in app.metric]
    texts = [*cells(app), *titles, *labels, *shown_text(app).split("\n")]
    assert not [text for text in texts if text.strip("*").startswith(PREFIXES)]
    words = re.sub(r"\$[^$]*\$", "", shown_text(app))
    assert "{" not in words


def test_a_missing_snapshot_moves_the_usable_prefix_and_says_why(open_app: OpenApp) -> None:
    """100,000 tokens are 130 blocks of 768; without the last snapshot 129 of them are usable."""
    app = opened(open_app, "hit")
    assert card(app, "Usable") == "99,840"
    assert card(app, "Hit unit") == "768"
    app.text_input(key="_reuse_gone.state").set_value("129").run()
    assert card(app, "Usable") == "99,072"
    assert "KDA has no snapshot at the next boundary (number 129)" in shown_text(app)
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    named = [trace["name"] for trace in spec["data"]]
    assert "missing, and ends the hit" in named


def test_a_click_takes_a_chunk_out_and_puts_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, Any] = {"reuse_turn": 0, "_reuse_gone.state": "3, 7-9"}
    monkeypatch.setattr(st, "session_state", session)

    def click(chunk: int) -> None:
        point = {"customdata": ["state", chunk, chunk + 1]}
        hit._clicked({"selection": {"points": [point]}})

    click(8)
    assert session["_reuse_gone.state"] == "3, 7, 9"
    click(8)
    assert session["_reuse_gone.state"] == "3, 7-9"
    assert session["reuse_turn"] == 2, "a new chart forgets what was selected"


def test_what_is_no_list_of_chunks_is_refused_in_words(open_app: OpenApp) -> None:
    app = opened(open_app, "hit")
    app.text_input(key="_reuse_gone.state").set_value("3, 3").run()
    assert "more than once" in app.error[0].value
    app.text_input(key="_reuse_gone.state").set_value("![x](http://y)").run()
    assert "![" not in app.error[0].value
    app = opened(open_app, "hit", "gemma-3-27b", context="512", lang="zh")
    assert "窗口为 1,024" in app.error[0].value


def test_early_chunks_of_a_window_may_be_missing(open_app: OpenApp) -> None:
    app = opened(open_app, "hit", "gemma-3-27b", context="8192", tp="1")
    app.text_input(key="_reuse_gone.window").set_value("0-447").run()
    assert card(app, "Usable") == "8,192"
    assert "64 chunks: 448 to 511" in cells(app)


def test_the_experiment_prints_its_errors(open_app: OpenApp) -> None:
    app = opened(open_app, "hit")
    app.button(key="reuse_experiment").click().run()
    table = plain(app.table[-1].value)
    says, error = table["The rule says"], table["Largest difference of logits"]
    assert list(says).count("usable") == 4
    assert [value == "0" for value in error] == [value == "usable" for value in says]
    assert "equal bit by bit" in shown_text(app)


def test_copies_and_tiers_are_listed(open_app: OpenApp) -> None:
    app = opened(open_app, "storage", "deepseek-v3")
    assert card(app, "Saved without copies") == "88 %"
    assert card(app, "One chunk, without copies") == "17.2 MiB"
    assert "NVMe" in cells(app)
    assert len(app.get("plotly_chart")) == 1, "no states, no snapshots"


def test_an_interval_that_does_not_divide_is_named(open_app: OpenApp) -> None:
    app = opened(open_app, "storage")
    assert len(app.get("plotly_chart")) == 2
    app.number_input(key="reuse_snapshot_interval").set_value(1000).run()
    assert "1,000 tokens are no multiple of 768" in app.error[0].value


@pytest.mark.parametrize(
    ("part", "widget", "typed", "label"),
    [
        ("storage", "decode_tp", 5, "Decode TP"),
        ("storage", "snapshot_interval", 1000, "Snapshot every (tokens)"),
        ("identity", "other_tp", 5, "The other instance · TP"),
        ("identity", "there_part", 9, "The other instance · Part"),
        ("identity", "here_part", 9, "Part"),
    ],
)
def test_a_fault_stands_behind_the_input_s_label(
    open_app: OpenApp, part: str, widget: str, typed: int, label: str
) -> None:
    app = opened(open_app, part)
    app.number_input(key=f"reuse_{widget}").set_value(typed).run()
    assert app.error[0].value.startswith(f"**{label}** · ")


def test_a_typed_rate_stands_in_for_a_network_card(open_app: OpenApp) -> None:
    app = opened(open_app, "storage", "llama-3.1-8b", gpu="l4", tp="1")
    assert app.error[0].value.startswith("**Network (GB/s)** · No network card is known")
    app.number_input(key="reuse_network_rate").set_value(10.0).run()
    assert not app.error
    assert card(app, "Moved")


def test_without_a_gpu_sizes_stand_and_times_are_left_out(open_app: OpenApp) -> None:
    app = opened(open_app, "storage", gpu="none")
    assert not app.get("plotly_chart")
    assert card(app, "One chunk, per rank") == "73.8 MiB"


def test_bf16_never_serves_fp8_and_the_first_field_is_named(open_app: OpenApp) -> None:
    app = opened(open_app, "identity")
    assert "may serve the other" in app.success[0].value
    first, second = digests(app)
    assert first == second
    app.selectbox(key="reuse_other_kv_dtype").set_value("fp8").run()
    assert "**KV format**" in app.warning[0].value
    first, second = digests(app)
    assert first != second


def test_what_is_typed_into_an_identity_stays_harmless(open_app: OpenApp) -> None:
    app = opened(open_app, "identity")
    app.text_input(key="reuse_there_salt").set_value("![x](http://y)`<b>").run()
    assert "**Cache salt**" in app.warning[0].value
    assert not [cell for cell in cells(app) if "![" in cell or "<" in cell]
    assert same.shown("a`b") == "`a·b`"


def test_what_was_asked_travels_and_is_asked_again(open_app: OpenApp) -> None:
    """A teammate opens the same strip, rule and prefix, and the command line the same numbers."""
    app = opened(open_app, "hit", "gemma-3-27b", context="8192", tp="1")
    app.segmented_control(key="reuse_rule").set_value("lmcache").run()
    app.number_input(key="reuse_prefix").set_value(6000)
    app.text_input(key="_reuse_gone.window").set_value("18").run()
    app.text_input(key="_reuse_gone.growing").set_value("20-21, 22").run()
    shown = card(app, "Usable")
    link = {key: app.query_params[key] for key in app.query_params}
    assert link["reuse_missing"] == "growing=20-21, 22;window=18"
    received = open_app(**link)
    assert card(received, "Usable") == shown == "4,608"
    assert received.text_input(key="_reuse_gone.growing").value == "20-21, 22"
    opened_link = decode_query(query_string(link))
    asked = {name.removeprefix("reuse_"): value for name, value in opened_link.asked.items()}
    assert Asked(opened_link.scenario, asked).hit.tokens == 4608


def test_what_the_page_takes_its_link_carries(open_app: OpenApp) -> None:
    """A dash of any kind, and no more letters than a link's field has room for (400)."""
    app = opened(open_app, "hit", "llama-3.1-8b", context="100000", tp="1")
    app.text_input(key="_reuse_gone.growing").set_value("100–103").run()
    shown = card(app, "Usable")
    link = {key: app.query_params[key] for key in app.query_params}
    assert link["reuse_missing"] == "growing=100–103"
    assert card(open_app(**link), "Usable") == shown == "1,600"
    asked = {"missing": decode_query(query_string(link)).asked["reuse_missing"]}
    assert Asked(decode_query(query_string(link)).scenario, asked).hit.tokens == 1_600
    many = ", ".join(str(chunk) for chunk in range(100, 300, 2))
    app.text_input(key="_reuse_gone.growing").set_value(many).run()
    assert "The text has 506 characters; at most 400 are read" in app.error[0].value


def test_an_interval_may_be_left_to_the_engine(open_app: OpenApp) -> None:
    """Pages of 64 over 8 ranks: 512 tokens; a link of older days always says 256 where it may."""
    keys = {"engine": "sglang", "tp": "8", "dcp": "8", "block_size": "64"}
    app = opened(open_app, "hit", **keys)
    assert not app.error
    assert app.number_input(key="reuse_interval").placeholder == "512"
    app = opened(open_app, "hit", **keys | {"dcp": "1"}, reuse_interval="256")
    assert not app.warning
    assert app.number_input(key="reuse_interval").value == 256


def test_chunks_of_a_group_that_the_model_lacks_are_named_like_in_a_link(
    open_app: OpenApp,
) -> None:
    """The command refuses such a link; the page shows what it says, so that it can be emptied."""
    keys = {"reuse_missing": "growing=500;state=1"}
    app = opened(open_app, "hit", "llama-3.1-8b", context="8192", tp="1", **keys)
    assert "There is no group 'state'" in app.error[0].value
    app.text_input(key="_reuse_gone.state").set_value("").run()
    assert not app.error
    assert card(app, "Usable") == "8,000"


def test_back_to_a_link_without_missing_chunks_empties_the_fields(open_app: OpenApp) -> None:
    app = opened(open_app, "hit")
    before = dict(app.query_params)
    app.text_input(key="_reuse_gone.state").set_value("129").run()
    app.query_params.clear()
    app.query_params.update(before)
    app.run()
    assert app.text_input(key="_reuse_gone.state").value == ""
    assert card(app, "Usable") == "99,840"


def test_a_tier_takes_the_rate_that_is_typed(open_app: OpenApp) -> None:
    app = opened(open_app, "storage", "deepseek-v3")
    assert "7 GB/s" in cells(app)
    app.number_input(key="reuse_nvme_rate").set_value(14.0).run()
    assert "14 GB/s" in cells(app)
    assert app.query_params["reuse_nvme_rate"] in ("14", ["14"])
