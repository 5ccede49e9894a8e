"""Tables of stages: the whole step in order, latent attention, ways not taken, a prefill chunk."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from calc.items import Item
from calc.layers import LatentAttention
from calc.report import Report
from calc.traffic import Stage, Step
from calc.traffic.alternatives import Alternative
from ui import numbers, tables
from ui.text import Translator


def draw(t: Translator, report: Report, rows: Sequence[Stage]) -> None:
    """The whole step first, then what is behind it."""
    moving = [stage for stage in rows if stage.collective is not None]
    if moving:
        st.subheader(t("traffic.step"), anchor=False)
        everything = st.toggle(t("step.computing"), key="step_computing", persist_state="session")
        tables.draw(_step_rows(t, report.step, rows if everything else moving), t("traffic.step"))
        _notes(t, report)
    if report.model.latent_mixers:
        _latent_table(t, report)
    ways = report.step.alternatives
    if ways:
        st.subheader(t("step.ways"), anchor=False)
        tables.draw([_way(t, report, way) for way in ways], t("step.ways"))
        st.caption(t("step.ways_note"))
    _prefill(t, report)


def _notes(t: Translator, report: Report) -> None:
    sums = [item.value for item in report.step.per_rank]
    pp = report.scenario.pp
    lines = []
    if pp > 1:
        lines.append(t("traffic.stage", stage=sums.index(max(sums)) + 1, stages=pp))
    lines.append(t("traffic.proportional"))
    lines.append(t(f"step.algorithm.{report.scenario.collective_algorithm}"))
    st.caption(t("step.separator").join(lines))


def _step_rows(t: Translator, step: Step, stages: Sequence[Stage]) -> list[tables.Row]:
    rows = [
        {
            t("column.source"): source(t, stage),
            t("column.collective"): _collective(t, stage),
            t("column.group"): _group(t, stage),
            t("column.calls"): numbers.digits(stage.calls) if stage.calls else "–",
            t("column.shape"): shape(stage),
            t("column.payload"): _traffic(stage.payload),
            t("column.sent"): _traffic(stage.sent),
            t("column.received"): _traffic(stage.received),
            t("column.sent_step"): _traffic(stage.per_step),
        }
        for stage in stages
    ]
    titles = list(rows[0])
    sums = {
        titles[0]: f"**{t('traffic.total')}**",
        titles[3]: f"**{numbers.digits(sum(stage.calls for stage in stages))}**",
        titles[-1]: f"**{numbers.traffic(step.sent_per_rank.value)}**",
    }
    return [*rows, {title: sums.get(title, "") for title in titles}]


def _latent_table(t: Translator, report: Report) -> None:
    """The eight stages of absorbed latent attention, whether they communicate or not."""
    st.subheader(t("traffic.latent"), anchor=False)
    if report.scenario.dcp == 1:
        st.caption(t("traffic.latent_no_dcp"))
    rows = [
        {
            t("column.number"): str(alike[0].number),
            t("column.computation"): _computation(t, alike[0], report),
            t("column.shape"): shape(alike[0]),
            t("column.collective"): _over(t, alike[0]),
            t("column.payload"): _traffic(alike[0].payload),
            t("column.sent"): _traffic(alike[0].sent),
            t("column.times"): f"× {sum(stage.layers for stage in alike)}",
            t("column.sent_step"): _over_layers(alike),
        }
        for alike in _alike(report.step.stages)
    ]
    tables.draw(rows, t("traffic.latent"))


def _alike(stages: Sequence[Stage]) -> list[list[Stage]]:
    """The numbered stages of latent attention, those that differ in their layers alone together."""
    kind = LatentAttention.model_fields["kind"].default
    found: dict[tuple[object, ...], list[Stage]] = {}
    for stage in stages:
        if stage.kind == kind and stage.number and not stage.drafts:
            key = (stage.number, stage.name, stage.collective, stage.shape, stage.dtype)
            found.setdefault(key, []).append(stage)
    return sorted(found.values(), key=lambda alike: alike[0].number)


def _over_layers(alike: Sequence[Stage]) -> str:
    sums = [item.value for stage in alike if (item := stage.per_step)]
    return numbers.traffic(sum(sums)) if sums else "–"


def _computation(t: Translator, stage: Stage, report: Report) -> str:
    if stage.name == "gather_query" and report.query_replicated:
        return t("stage.gather_query.replicated")
    return t(f"stage.{stage.name}.does")


def _way(t: Translator, report: Report, way: Alternative) -> tables.Row:
    """What a layer would send, hold and compute the other way."""
    now = [
        stage.sent.value
        for stage in report.step.stages
        if stage.name == way.instead_of and stage.kind == way.stage.kind and stage.sent
    ]
    return {
        t("column.instead"): t(f"stage.{way.instead_of}"),
        t("column.way"): t(f"step.way.{way.name}"),
        t("column.sent_now"): numbers.traffic(now[0]) if now else t("step.nothing"),
        t("column.sent_then"): _traffic(way.stage.sent) if way.stage.sent else t("step.nothing"),
        t("column.weights_more"): _signed(way.weight_bytes.value, numbers.memory),
        t("column.flop_more"): _signed(way.flops.value, _flop),
    }


def _signed(value: float, worded: object) -> str:
    assert callable(worded)
    return f"{'+' if value >= 0 else '−'}{worded(abs(value))}"


def _flop(value: float) -> str:
    return f"{numbers.significant(value / 1e9)} GFLOP"


def _prefill(t: Translator, report: Report) -> None:
    """The step of a prefill chunk, where one was asked for."""
    step = report.prefill
    if step is None:
        st.caption(t("step.no_prefill"))
        return
    rows = step.pipeline[_largest(step)]
    stages = [stage for stage in rows if stage.collective is not None]
    title = t("traffic.prefill", tokens=numbers.digits(report.scenario.prefill_tokens))
    st.subheader(title, anchor=False)
    if stages:
        tables.draw(_step_rows(t, step, stages), title)
    else:
        st.caption(t("traffic.silent"))


def _largest(step: Step) -> int:
    sums = [item.value for item in step.per_rank]
    return sums.index(max(sums))


def source(t: Translator, stage: Stage) -> str:
    """The layer kind and the stage."""
    name = t(f"stage.{stage.name}")
    name = t("traffic.draft", stage=name) if stage.drafts else name
    return t("traffic.source", kind=t(f"kind.{stage.kind}.short"), stage=name)


def _collective(t: Translator, stage: Stage) -> str:
    if stage.collective is None:
        return "–"
    return t(f"collective.{stage.collective}")


def _group(t: Translator, stage: Stage) -> str:
    if stage.collective is None or stage.group is None:
        return "–"
    name = f"{stage.group.upper().replace('_', '×')} {stage.group_size}"
    if stage.algorithm == "nvls":
        return t("step.in_switch", group=name)
    return t("step.crosses" if stage.crosses_nodes else "step.inside", group=name)


def _over(t: Translator, stage: Stage) -> str:
    if stage.collective is None or stage.group is None:
        return "–"
    name = t(f"collective.{stage.collective}")
    return t("traffic.over", name=name, group=stage.group.upper(), size=stage.group_size)


def shape(stage: Stage) -> str:
    """A tensor's shape and dtype, as code."""
    return f"`[{','.join(map(str, stage.shape))}]` {stage.dtype}"


def _traffic(item: Item | None) -> str:
    return "–" if item is None else numbers.traffic(item.value)
