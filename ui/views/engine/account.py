"""The engine's own account of the cache: vLLM's blocks or SGLang's pools, the version named."""

from __future__ import annotations

import streamlit as st

from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView
from calc.report import Report
from ui import numbers
from ui.text import Translator
from ui.views.engine import blocks, budget, pools


def draw(t: Translator, report: Report) -> None:
    """Which engine and budget, then its blocks or pools."""
    rules, view = report.scenario.engine_rules, report.engine.view
    words = {
        "engine": rules.name,
        "version": rules.version,
        "budget": numbers.memory(report.fit.budget_bytes),
    }
    if report.engine.budget.typed:
        st.markdown(t("engine.about_typed", **words))
    else:
        gpu = budget.short_name(t, report.scenario)
        st.markdown(t("engine.about_gpu", gpu=gpu, **words))
    if isinstance(view, BlockView):
        blocks.draw(t, report, view)
    elif isinstance(view, PoolView):
        pools.draw(t, report, view)
    else:
        st.caption(t("engine.nothing"))
