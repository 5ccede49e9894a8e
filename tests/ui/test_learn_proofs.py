"""Live proofs on the page: run by a button, with the error of each."""

from calc.learn.proofs import PROOFS
from tests.ui.conftest import OpenApp, shown_text


def test_all_proofs_run_from_the_page(open_app: OpenApp) -> None:
    app = open_app(view="learn", learn_part="proofs")
    assert not app.table
    app.number_input(key="learn_tokens").set_value(500)
    app.button(key="proofs_run").click().run()
    table = app.table[0].value
    assert len(table) == len(PROOFS)
    assert set(table["Outcome"]) == {"✓\u00a0as\u00a0it\u00a0must"}
    assert f"All {len(PROOFS)} came out" in shown_text(app)


def test_proofs_need_no_scenario_that_can_be(open_app: OpenApp) -> None:
    app = open_app(v="1", model="deepseek-v3", tp="7", view="learn", learn_part="proofs")
    app.button(key="proofs_run").click().run()
    assert len(app.table[0].value) == len(PROOFS)
