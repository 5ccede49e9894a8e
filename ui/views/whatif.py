"""What-ifs on the model: changed widths and shared caches, beside the model as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.fields import WholeField
from calc.layers import Attention, LatentAttention, Mixer, SlidingWindowAttention
from calc.model import ModelSpec
from calc.presets import CUSTOM
from calc.report import Report, evaluate
from calc.units import Number
from calc.weights import parameters
from calc.whatif import Change, changed, token_mix
from ui import errors, numbers, state, tables
from ui.text import Translator

LATENT_WIDTHS = (512, 768, 1024, 1536)
LATENT = WholeField("kv_lora_rank", 512, 1, 2**20)


def draw(t: Translator, report: Report) -> None:
    """The inputs, both models side by side, and the button that keeps the changed one."""
    model = report.model
    mixers = [mixer for mixer in model.mixers if isinstance(mixer, LatentAttention | Attention)]
    if not mixers:
        st.markdown(t("whatif.nothing"))
        return
    st.caption(t("whatif.about"))
    try:
        change = _inputs(t, model, mixers)
        made = None if change.empty else changed(model, change)
        other = None if made is None else _evaluated(report, made)
    except CalcError as error:
        _fault(t, error)
        return
    if made is None or other is None:
        st.caption(t("whatif.unchanged"))
    else:
        tables.draw(_rows(t, report, other), t("model.section.whatif"))
        _keep(t, made, "keep")
    if model.latent_mixers:
        _mix(t, report, model.latent_mixers[0])


def _evaluated(report: Report, made: ModelSpec) -> Report:
    return evaluate(replace(report.scenario, model=CUSTOM, spec=made))


def _fault(t: Translator, error: CalcError) -> None:
    sentence, raw = errors.headed(t, error)
    st.error(sentence, icon=":material/error:")
    for text in raw:
        st.code(text, language=None, wrap_lines=True)


def _keep(t: Translator, made: ModelSpec, name: str) -> None:
    st.button(
        t(f"whatif.{name}"),
        key=f"whatif_{name}",
        icon=":material/check:",
        help=t("help.whatif_keep"),
        on_click=state.use,
        args=(made,),
    )


def _inputs(t: Translator, model: ModelSpec, mixers: Sequence[Mixer]) -> Change:
    """Only the fields that the model has; each starts at what it is."""
    mark = hash(model.layers)  # another model starts with inputs of its own

    def key(name: str) -> str:
        return f"whatif.{mark}.{name}"

    layers = model.layer_count
    first, last = 1, layers
    if layers > 1:
        first, last = st.slider(
            t("whatif.layers"), 1, layers, (1, layers), key=key("layers"), help=t("whatif.range")
        )
    fields: dict[str, Any] = {}
    latent = next((mixer for mixer in mixers if isinstance(mixer, LatentAttention)), None)
    dense = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    window = next((mixer for mixer in mixers if isinstance(mixer, SlidingWindowAttention)), None)
    with st.grid("auto", min_column_width=170, gap="small", vertical_alignment="bottom"):
        if latent is not None:
            fields["kv_lora_rank"] = _latent(t, latent, key("latent"))
            fields["rope_dim"] = _changed(t, "rope_dim", latent.rope_dim, 0, key("rope"))
        if dense is not None:
            fields["kv_heads"] = _changed(t, "kv_heads", dense.kv_heads, 1, key("kv_heads"))
        if window is not None:
            fields["window"] = _changed(t, "window", window.window, 1, key("window"))
        fields["shared_kv"] = _shared(t, "shared_kv", layers, key("shared_kv"))
        if latent is not None:
            fields["shared_down"] = _shared(t, "shared_down", layers, key("shared_down"))
    return Change(first, last, **fields)


def _latent(t: Translator, mixer: LatentAttention, key: str) -> int | None:
    options = sorted({*LATENT_WIDTHS, mixer.kv_lora_rank})
    typed = st.selectbox(
        t("part.kv_lora_rank"),
        options,
        index=options.index(mixer.kv_lora_rank),
        key=key,
        accept_new_options=True,
        help=t("whatif.latent"),
    )
    width = LATENT.parse(str(typed))
    return None if width == mixer.kv_lora_rank else width


def _changed(t: Translator, name: str, now: int, least: int, key: str) -> int | None:
    typed = st.number_input(t(f"part.{name}"), least, 2**20, value=now, step=1, key=key)
    return None if typed == now else int(typed)


def _shared(t: Translator, name: str, layers: int, key: str) -> int:
    return int(
        st.number_input(
            t(f"whatif.{name}"), 1, layers, value=1, step=1, key=key, help=t(f"whatif.{name}.help")
        )
    )


def _rows(t: Translator, now: Report, then: Report) -> list[tables.Row]:
    """Bytes and parameters of both models, and by how much they differ."""

    def row(name: str, before: Number, after: Number, memory: bool = True) -> tables.Row:
        words = numbers.memory if memory else numbers.digits
        return {
            t("column.figure"): t(f"whatif.row.{name}"),
            t("column.now"): words(before),
            t("column.then"): words(after),
            t("column.difference"): _difference(before, after),
        }

    stages = now.cache.stage, then.cache.stage
    growing, window, request = (
        tuple(getattr(stage, name).value for stage in stages)
        for name in ("growing_per_token", "window_per_request", "per_request")
    )
    counted = [int(parameters(each.model).total.value) for each in (now, then)]
    held = [int(each.engine.weights.total.value) for each in (now, then)]
    fits = [each.fit.max_requests.value for each in (now, then)]
    made = [row("token", *growing)]
    made += [row("window", *window)] if any(window) else []
    return [
        *made,
        row("request", *request),
        row("batch", fits[0], fits[1], memory=False),
        row("parameters", counted[0], counted[1], memory=False),
        row("weights", held[0], held[1]),
    ]


def _difference(before: Number, after: Number) -> str:
    if before == after:
        return "="
    if not before:
        return "–"
    return f"{100 * (after - before) / before:+.3g} %".replace("-", "−")


def _mix(t: Translator, report: Report, mixer: LatentAttention) -> None:
    """An average latent width where some tokens keep a narrower latent."""
    st.markdown(f"**{t('whatif.mix')}**")
    st.caption(t("whatif.mix_about"))
    key = f"whatif.mix.{hash(report.model.layers)}"
    left, right = st.columns(2, gap="medium")
    narrow = left.number_input(
        t("whatif.narrow"),
        1,
        mixer.kv_lora_rank,
        value=max(1, mixer.kv_lora_rank // 2),
        step=1,
        key=f"{key}.narrow",
    )
    percent = right.slider(t("whatif.share"), 0, 100, 40, step=5, key=f"{key}.share", format="%d%%")
    mix = token_mix(mixer, int(narrow), percent / 100)
    st.markdown(
        t(
            "whatif.average",
            width=numbers.significant(mix.width.value),
            bytes=numbers.significant(mix.bytes.value),
            full=numbers.digits(mix.full.value),
            percent=_difference(mix.full.value, mix.bytes.value),
        )
    )
    width = math.ceil(mix.width.value)
    if width != mixer.kv_lora_rank:
        made = changed(report.model, Change(1, report.model.layer_count, kv_lora_rank=width))
        _keep(t, made, "keep_average")
