"""From a GPU's memory to the bytes left for cache, each step with its input and source."""

from __future__ import annotations

import streamlit as st

from calc.hardware import CUSTOM_GPU, NO_GPU, load_hardware
from calc.items import Item, walk
from calc.report import Report
from calc.scenario import Scenario
from calc.units import Number
from ui import engine_charts, numbers, page, state, tables
from ui.derivation import draw_one, status
from ui.engine_charts import Bar
from ui.inputs import option
from ui.text import Translator
from ui.views import parts

OFFERED = ("h100", "h200", "b200")
"""GPUs that are offered while none is chosen."""
INPUTS = {
    "activation_bytes": "activation_gib",
    "graph_bytes": "cuda_graph_gib",
    "communication_bytes": "communication_gib",
}
"""Parts of a budget that are typed, and their fields."""


def draw(t: Translator, report: Report) -> None:
    """Cards, the bars, the table of steps; or how to get them while the memory is typed."""
    if report.engine.budget.typed:
        _typed(t, report)
        return
    scenario = report.scenario
    stage = tightest(report)
    item = report.engine.budget.stages[stage]
    _cards(t, report, stage)
    parts.chart(
        t,
        "budget_chart",
        lambda: engine_charts.budget_bars(bars(t, report, item), t),
        t("budget.chart", gpu=gpu_name(t, scenario)),
    )
    if scenario.pp > 1:
        st.caption(t("budget.stage", stage=stage + 1, stages=scenario.pp))
    st.subheader(t("budget.steps"), anchor=False)
    tables.draw(rows(t, report, item), t("budget.steps"))
    st.caption(t("budget.estimate"))
    if scenario.pp > 1:
        _stages(t, report)
    parts.derivations(t, "budget", {"budget": item}, _steps)


def _steps(t: Translator, item: Item) -> None:
    """The arithmetic without that of the weights, which the Model view has."""
    for step in [*walk(_share(item)), item]:
        draw_one(t, step)


def tightest(report: Report) -> int:
    """The stage that the figures are of: the one with least where weights do not fit."""
    budget = report.engine.budget
    if budget.short_bytes:
        return min(range(len(budget.stages)), key=lambda index: budget.stages[index].value)
    return report.fit.stage


def gpu_name(t: Translator, scenario: Scenario) -> str:
    """The GPU in words."""
    if scenario.gpu == CUSTOM_GPU:
        return t("budget.custom_gpu")
    return load_hardware(scenario.gpu).name


def short_name(t: Translator, scenario: Scenario) -> str:
    """The GPU as the list of choices calls it."""
    return option(t, "gpu", scenario.gpu)


def _typed(t: Translator, report: Report) -> None:
    scenario = report.scenario
    typed = numbers.memory(report.fit.budget_bytes)
    with st.container(border=True):
        st.markdown(t("budget.typed", budget=typed))
        with st.container(horizontal=True, gap="small"):
            if scenario.gpu != NO_GPU:
                st.button(
                    t("budget.from_gpu", gpu=short_name(t, scenario)),
                    key="budget_auto",
                    on_click=state.apply,
                    args=("cache_memory", "auto"),
                )
            else:
                for gpu in OFFERED:
                    st.button(
                        load_hardware(gpu).name,
                        key=f"budget_{gpu}",
                        on_click=_choose,
                        args=(gpu,),
                    )
    weights = report.engine.weights.total.value
    st.markdown(t("budget.weights_beside", weights=numbers.memory(weights)))


def _choose(gpu: str) -> None:
    st.session_state["cache_memory"] = "auto"
    state.apply("gpu", gpu)


def _cards(t: Translator, report: Report, stage: int) -> None:
    scenario, budget = report.scenario, report.engine.budget
    item = budget.stages[stage]
    memory, claimed = _memory(item), _claimed(item)
    weights = _value(item.arguments["weight_bytes"])
    percent = numbers.significant(100 * claimed / memory)
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("budget.gpu"),
            numbers.memory(memory),
            gpu_name(t, scenario),
            numbers.exact(memory),
        )
        page.card(
            t("budget.claimed"),
            numbers.memory(claimed),
            t("budget.claimed.per", percent=percent, engine=scenario.engine_rules.name),
            numbers.exact(claimed),
        )
        page.card(
            t("budget.weights"),
            numbers.memory(weights),
            t("budget.weights.per", format=option(t, "weight_format", scenario.weight_format)),
            numbers.exact(weights),
        )
        left = max(0, int(item.value))
        page.card(
            t("budget.left"),
            numbers.memory(left),
            t("budget.left.per", gpu=short_name(t, scenario)),
            numbers.exact(left),
        )


def _value(bound: Item | Number) -> Number:
    return bound.value if isinstance(bound, Item) else bound


def _share(item: Item) -> Item:
    share = item.arguments["requested_bytes"]
    assert isinstance(share, Item)
    return share


def _memory(item: Item) -> Number:
    return _value(_share(item).arguments["memory_bytes"])


def _claimed(item: Item) -> Number:
    return _share(item).value


def taken(item: Item) -> list[tuple[str, Number]]:
    """What comes off the GPU's memory, in order: (name, bytes)."""
    outside = _memory(item) - _claimed(item)
    others = [
        (name, _value(bound))
        for name, bound in item.arguments.items()
        if name not in ("requested_bytes",)
    ]
    return [("outside", outside), *others]


def bars(t: Translator, report: Report, item: Item) -> list[Bar]:
    """The rows of the chart: the whole, what comes off, what is left or missing."""
    whole = left = _memory(item)
    made = [Bar(t("budget.row_gpu"), 0, whole, "whole")]
    for name, size in taken(item):
        if size:
            made.append(Bar(t(f"budget.row_{name}"), left - size, size, "less"))
        left -= size
    if left >= 0:
        made.append(Bar(t("budget.row_left"), 0, left, "rest"))
    else:
        made.append(Bar(t("budget.row_short"), left, -left, "short"))
    return made


def rows(t: Translator, report: Report, item: Item) -> list[tables.Row]:
    """Every step as a row: bytes, input, how it is known, source."""
    scenario = report.scenario
    typed = scenario.gpu == CUSTOM_GPU
    memory = None if typed else load_hardware(scenario.gpu).memory_bytes
    made = [
        _row(
            t,
            "gpu",
            _memory(item),
            _set(t, scenario, "gpu_memory_gib" if typed else "gpu"),
            t("budget.basis.typed" if memory is None else f"budget.basis.{memory.basis}"),
            "–" if memory is None else memory.source,
        )
    ]
    share = _share(item)
    fraction = "gpu_memory_utilization" if scenario.engine == "vllm" else "mem_fraction_static"
    for name, size in taken(item):
        if name == "outside":
            rule = _reserve(share) or share
            made.append(
                _row(
                    t,
                    name,
                    -size,
                    _set(t, scenario, fraction),
                    status(t, rule),
                    rule.formula.source,
                )
            )
        elif name == "weight_bytes":
            made.append(
                _row(
                    t,
                    name,
                    -size,
                    _set(t, scenario, "weight_format"),
                    t("status.exact"),
                    t("budget.source.weights"),
                )
            )
        else:
            field = INPUTS[name]
            made.append(
                _row(
                    t,
                    name,
                    -size,
                    _set(t, scenario, field),
                    t("status.estimate"),
                    t(f"budget.source.{field}"),
                )
            )
    made.append(_row(t, "left", item.value, "", status(t, item), item.formula.source))
    return made


def _reserve(share: Item) -> Item | None:
    reserved = share.arguments.get("reserved_bytes")
    return reserved if isinstance(reserved, Item) else None


def _row(t: Translator, name: str, size: Number, given: str, basis: str, source: str) -> tables.Row:
    words = numbers.memory(abs(size))
    return {
        t("column.step"): t(f"budget.row_{name}"),
        t("column.bytes"): f"−{words}" if size < 0 else words,
        t("column.input"): given or "–",
        t("column.basis"): basis,
        t("column.source"): source,
    }


def _set(t: Translator, scenario: Scenario, name: str) -> str:
    """A field with its value, as it stands in the sidebar."""
    value = getattr(scenario, name)
    if name == "mem_fraction_static" and not value:
        return f"{name}: {t('option.auto')}"
    word = option(t, name, value) if isinstance(value, str) else numbers.digits(value)
    return f"{t(f'field.{name}')}: {word}"


def _stages(t: Translator, report: Report) -> None:
    budget, view = report.engine.budget, report.engine.weights
    st.subheader(t("budget.stages"), anchor=False)
    bound = tightest(report)
    tables.draw(
        [
            {
                t("column.stage_number"): f"{number + 1}"
                + (f" ({t('budget.binds')})" if number == bound else ""),
                t("column.weights"): numbers.memory(view.stage_bytes[number]),
                t("column.budget"): numbers.memory(size),
            }
            for number, size in enumerate(budget.bytes)
        ],
        t("budget.stages"),
    )
