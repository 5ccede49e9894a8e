"""The sidebar: one widget a field, keyed by the field's name, with bounds that never change."""

from __future__ import annotations

from typing import Any

import streamlit as st

from calc.engines import ENGINES
from calc.fields import ChoiceField, ListField, SizeField, WholeField
from calc.layers import StateMixer
from calc.presets import CUSTOM, load_preset, preset_ids
from calc.scenario import FIELDS
from ui import config_import, custom_model, state
from ui.numbers import tokens
from ui.text import Translator

LAYOUT = ("tp", "dcp", "dp", "pp")
MAIN = ("engine", *LAYOUT, "context", "batch", "kv_dtype", "kv_cache_memory_gib")
SECTIONS = {
    "advanced": ("weight_format", "state_dtype", "conv_dtype", "dcp_backend", "query_replication"),
    "memory": (
        "gpu",
        "gpu_memory_gib",
        "cache_memory",
        "gpu_memory_utilization",
        "mem_fraction_static",
        "activation_gib",
        "cuda_graph_gib",
        "communication_gib",
    ),
    "engine": (
        "block_size",
        "prefix_caching",
        "hybrid_kv_manager",
        "max_num_batched_tokens",
        "async_scheduling",
        "swa_full_tokens_ratio",
        "mamba_full_memory_ratio",
    ),
    "requests": ("shared_prefix", "lengths", "pp_layers"),
}
"""Folded sections of rarely used fields; ``more`` has every field that stands nowhere else."""

QUICK_CONTEXTS = (2**13, 2**15, 2**17, 2**20)
AFTER_A_CHOICE = {"engine": state.settle}


def draw(t: Translator) -> None:
    """All inputs, from the model down to the rarely used ones."""
    st.selectbox(
        t("field.model"),
        [*sorted(preset_ids(), key=_preset_name), CUSTOM],
        key="model",
        format_func=lambda name: t("model.custom") if name == CUSTOM else _preset_name(name),
        help=t("help.model"),
        on_change=state.settle,
    )
    with st.container(gap=None):
        custom_model.offer(t)
        config_import.offer(t)
    field(t, "engine")
    with st.grid(2, min_column_width=80, gap="small"):
        for name in LAYOUT:
            field(t, name)
    field(t, "context")
    _quick_contexts(t)
    field(t, "batch")
    field(t, "kv_dtype")
    field(t, "kv_cache_memory_gib", disabled=_pointless("kv_cache_memory_gib"))
    for section, names in sections().items():
        kept = st.expander(t(f"inputs.{section}"), key=f"section_{section}", on_change="rerun")
        if kept.open:  # a folded one costs a run nothing; its inputs keep their values
            with kept:
                for name in names:
                    field(t, name, disabled=_pointless(name))
    st.button(
        t("inputs.reset"),
        key="reset",
        type="tertiary",
        icon=":material/restart_alt:",
        on_click=state.reset,
    )


def sections() -> dict[str, tuple[str, ...]]:
    """The folded sections, so that a new field of a Scenario appears without being named."""
    named = {*MAIN, *(name for names in SECTIONS.values() for name in names)}
    return SECTIONS | {"more": tuple(name for name in FIELDS if name not in named)}


def field(t: Translator, name: str, disabled: bool = False) -> None:
    """The widget of one Scenario field; its kind follows from the field's."""
    rule = FIELDS[name]
    label = t(f"field.{name}")
    kept: dict[str, Any] = {"key": name, "help": t(f"help.{name}"), "persist_state": "session"}
    if isinstance(rule, ListField):
        st.text_input(label, max_chars=400, **kept)
    elif isinstance(rule, ChoiceField):
        st.selectbox(
            label,
            rule.choices,
            format_func=lambda choice: option(t, name, choice),
            on_change=AFTER_A_CHOICE.get(name, "rerun"),
            disabled=disabled,
            accept_new_options=isinstance(rule, SizeField),
            **kept,
        )
    elif isinstance(rule, WholeField):
        bounds = (rule.minimum, rule.maximum)
        st.number_input(label, *bounds, step=1, disabled=disabled, **kept)
    else:
        limits = (float(rule.minimum), float(rule.maximum))
        step = 1.0 if rule.maximum > 100 else 0.01
        st.number_input(label, *limits, step=step, format="%g", disabled=disabled, **kept)


def option(t: Translator, name: str, choice: str) -> str:
    """How a choice reads; formats and backends keep the names that engines give them."""
    if name == "engine":
        return f"{ENGINES[choice].name} {ENGINES[choice].version}"
    word = t.get(f"option.{choice}", choice.upper() if name == "gpu" else choice)
    return t.get(f"option.{name}.{choice}", word)


def _preset_name(preset: str) -> str:
    return load_preset(preset).name


def _quick_contexts(t: Translator) -> None:
    context = st.session_state["context"]
    st.session_state["quick_context"] = context if context in QUICK_CONTEXTS else None
    st.pills(
        t("inputs.quick_context"),
        QUICK_CONTEXTS,
        key="quick_context",
        format_func=lambda size: f"1M = {size:,}" if size == 2**20 else tokens(size),
        on_change=_set_context,
        label_visibility="collapsed",
    )


def _set_context() -> None:
    if st.session_state["quick_context"] is not None:
        st.session_state["context"] = st.session_state["quick_context"]


def _pointless(name: str) -> bool:
    """Whether a choice changes nothing for this model and layout."""
    gpu = st.session_state.get("gpu", "none")
    if name == "gpu_memory_gib":
        return bool(gpu != "custom")
    if name in SECTIONS["memory"]:
        return bool(gpu == "none" and name != "gpu")
    if name == "kv_cache_memory_gib":
        return bool(gpu != "none" and st.session_state["cache_memory"] == "auto")
    if name in ("dcp_backend", "query_replication"):
        return bool(st.session_state["dcp"] == 1)
    if name in ("state_dtype", "conv_dtype"):
        model = st.session_state["model"]
        return model != CUSTOM and not any(
            isinstance(mixer, StateMixer) for mixer in load_preset(model).mixers
        )
    return False
