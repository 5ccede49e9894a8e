"""The page, from top to bottom: link, inputs, results. No formulas and no logic here."""

import streamlit as st

from ui import about, config_import, custom_model, errors, inputs, page, present, state
from ui.text import Translator
from ui.views import capacity, gpu, learn, model, parts, plan, reuse, traffic

VIEWS = {
    "model": model.draw,
    "capacity": capacity.draw,
    "traffic": traffic.draw,
    "reuse": reuse.draw,
    "plan": plan.draw,
    "learn": learn.draw,
    "gpu": gpu.draw,
    "about": about.draw,
}
ALWAYS = ("learn", "gpu", "about")
"""Views that open for a scenario that cannot be, too."""

page.configure()
state.read_link()
present.style()
t = Translator(st.session_state["lang"])

with st.sidebar:
    inputs.draw(t)

result = state.result()
state.write_link(result)

page.header(t, result)
page.notice(t, result)
config_import.draw(t)
if result.report is not None:
    page.cards(t, result.report)
    page.cautions(t, result.report)
custom_model.draw(t)
if result.error is not None:
    errors.draw(t, result.error)
page.view_switch(t)
view = st.session_state["view"]
if result.report is not None or view in ALWAYS:
    with parts.charts_last():
        VIEWS[view](t, result)
page.footer(t)
