"""What a result says of its card's rates, offered to the scenario's time estimates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from calc.calibration import efficiency, hardware_of
from calc.errors import CalcError
from calc.hardware import NO_GPU, Hardware
from calc.measured import Measured
from calc.report import evaluate
from calc.scenario import Scenario
from calc.timing.report import times
from ui import numbers
from ui.bench_tables import signed
from ui.text import Translator


def draw(t: Translator, measured: Measured, scenario: Scenario | None) -> None:
    """The shares of the data sheet reached, a button that uses them, and what they change."""
    st.subheader(t("gpu.rates"), anchor=False)
    hardware = hardware_of(measured)
    if hardware is None:
        st.markdown(t("gpu.rates.unknown"))
        return
    found = efficiency(measured)
    shares = {"hbm": found.hbm, "attention": found.attention, "gemm": found.gemm}
    words = {
        name: "–" if share is None else numbers.percent(share) for name, share in shares.items()
    }
    st.markdown(t("gpu.efficiency", gpu=hardware.name, **words))
    if not measured.calibration:
        st.caption(t("gpu.rates.uncalibrated"))
    if scenario is not None:
        _offer(t, scenario, hardware, found.fields())


def _offer(t: Translator, scenario: Scenario, gpu: Hardware, fields: dict[str, float]) -> None:
    using = used(scenario, gpu, fields)
    plain = dict.fromkeys(fields, 0.0)
    before, after = (_step_us(scenario, gpu, one) for one in (plain, fields))
    if before is not None and after is not None:
        line = "gpu.rates.used" if using else "gpu.rates.effect"
        times_of = {"before": numbers.duration(before), "after": numbers.duration(after)}
        st.markdown(t(line, change=signed(after / before - 1), **times_of))
    if using:
        label, icon, chosen = "gpu.rates.drop", ":material/undo:", plain
    else:
        label, icon, chosen = "gpu.rates.use", ":material/tune:", fields
    st.button(
        t(label),
        key="bench_rates",
        icon=icon,
        help=t("gpu.rates.help", gpu=gpu.name),
        on_click=_use,
        args=(gpu.id, chosen),
    )


def used(scenario: Scenario, gpu: Hardware, fields: dict[str, float]) -> bool:
    """Whether the scenario is estimated with these rates already."""
    same = all(getattr(scenario, name) == share for name, share in fields.items())
    return scenario.gpu == gpu.id and same


def _step_us(scenario: Scenario, gpu: Hardware, fields: dict[str, float]) -> float | None:
    changes: dict[str, Any] = {"gpu": gpu.id, **fields}
    try:
        return float(times(evaluate(replace(scenario, **changes))).decode.total.value)
    except CalcError:
        return None


def _use(gpu: str, fields: dict[str, float]) -> None:
    """Set them, and the GPU that they are of; the cache memory stays as it was (a callback)."""
    if st.session_state["gpu"] == NO_GPU:
        st.session_state["cache_memory"] = "typed"
    st.session_state["gpu"] = gpu
    st.session_state.update(fields)
