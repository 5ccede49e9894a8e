"""How long a step takes: an estimate, its parts, and how far such estimates were off."""

from __future__ import annotations

import re

import streamlit as st

from calc.hardware import Hardware
from calc.items import Item
from calc.report import Report
from calc.timing import StepTime, TimePart
from calc.timing.matrices import COMPUTE_SHARE
from calc.timing.report import ERROR_OF, borrowed_from
from ui import numbers, page, step_charts, tables
from ui.derivation import draw as draw_steps
from ui.derivation import draw_one
from ui.text import Translator
from ui.views import parts
from ui.views.step import estimate, stages

MEASURED_FOR = {
    "collectives": ("collectives",),
    "latent": ("latent",),
    "heads": ("heads",),
    "states": ("convolution", "recurrence"),
    "deepep": (),
}
"""For each table of errors, the measurements that ``borrowed_from`` names."""


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("step.time_what"))
    gpu = estimate.chosen_gpu(t, report)
    found = estimate.estimated(t, report, gpu) if gpu is not None else None
    if gpu is None or found is None:
        _errors(t, None)
        return
    if not report.fit.fits:
        batch = numbers.digits(report.scenario.batch)
        st.warning(t("step.does_not_fit", batch=batch), icon=":material/memory:")
    _cards(t, report, found.decode)
    parts.chart(
        t,
        "time_chart",
        lambda: step_charts.time_by_kind(found.decode, t, t("step.whole")),
        t("step.chart_time"),
    )
    tables.draw(_groups(t, found.decode, t("step.whole")), t("step.groups"))
    _notes(t, report)
    with st.expander(t("step.all_parts"), key="step_parts", on_change="rerun") as kept:
        if kept.open:
            tables.draw(_parts(t, found.decode), t("step.all_parts"))
    if found.prefill is not None:
        _prefill(t, report, found.prefill)
    else:
        st.caption(t("step.no_prefill"))
    _errors(t, gpu)
    items = _derived(found.decode)
    parts.derivations(
        t, "time", items, _draw_derived, lambda name: _derived_name(t, found.decode, name)
    )
    st.caption(f"**{t('not_counted.title')}** {t('step.time_not_counted')}")


def _cards(t: Translator, report: Report, step: StepTime) -> None:
    scenario = report.scenario
    whole = float(step.total.value)
    largest = max(step_charts.GROUPS, key=lambda group: float(step.group(group)))
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("step.card.time"),
            f"≈ {numbers.duration(whole)}",
            t("step.card.time.per", batch=numbers.digits(scenario.batch)),
            t("step.card.time.help", us=numbers.digits(round(whole, 1))),
        )
        page.card(
            t("step.card.user"),
            f"≈ {numbers.significant(float(step.tokens_per_second_user.value))}",
            t("step.card.user.per"),
            t("step.card.user.help"),
        )
        page.card(
            t("step.card.gpu"),
            f"≈ {numbers.significant(float(step.tokens_per_second_gpu.value))}",
            t("step.card.gpu.per", ranks=scenario.layout.replica_ranks),
            t("step.card.gpu.help"),
        )
        page.card(
            t("step.card.largest"),
            numbers.percent(float(step.group(largest)) / whole),
            t(f"step.group.{largest}"),
            t("step.card.largest.help"),
        )


def _groups(t: Translator, step: StepTime, called: str) -> list[tables.Row]:
    """Each group with its share, and the error of its fit beside it."""
    whole = float(step.total.value)
    borrowed = borrowed_from(step.gpu)
    rows = []
    for group in step_charts.GROUPS:
        spent = float(step.group(group))
        if not spent:
            continue
        rows.append(
            {
                t("column.spent_on"): t(f"step.group.{group}"),
                t("column.time"): numbers.duration(spent),
                t("column.share"): numbers.percent(spent / whole),
                t("column.median_error"): _error(t, step, group),
                t("column.measured_on"): _measured_on(t, step, group, borrowed),
            }
        )
    total = f"**{numbers.duration(whole)}**"
    titles = list(rows[0])
    last = {titles[0]: f"**{called}**", titles[1]: total, titles[2]: "**100 %**"}
    return [*rows, {title: last.get(title, "") for title in titles}]


def _tables(step: StepTime, group: str) -> list[str]:
    """The tables of errors that a group of this step rests on."""
    names = ERROR_OF[group] or ()
    if group == "attention":
        latent = any(
            part.group == group and part.kind in ("mla", "compressed_latent") for part in step.parts
        )
        other = any(
            part.group == group and part.kind not in ("mla", "compressed_latent")
            for part in step.parts
        )
        return [name for name, there in (("latent", latent), ("heads", other)) if there]
    if group == "communication" and any(
        part.stage is not None and part.name in ("dispatch", "combine") for part in step.parts
    ):
        return [*names, "deepep"]
    return list(names)


def _error(t: Translator, step: StepTime, group: str) -> str:
    found = estimate.measured_errors()
    names = _tables(step, group)
    if not names:
        reached = step.gpu.reached.gemm
        return t("step.assumed", share=numbers.percent(reached or COMPUTE_SHARE))
    return t("step.and").join(
        t(
            "step.error",
            median=numbers.percent(found[name].median),
            worst=numbers.percent(found[name].worst),
        )
        for name in names
    )


def _measured_on(t: Translator, step: StepTime, group: str, borrowed: dict[str, str]) -> str:
    kinds = [kind for name in _tables(step, group) for kind in MEASURED_FOR[name]]
    gpus = list(dict.fromkeys(borrowed[kind] for kind in kinds))
    if not gpus:
        return "–"
    words = [
        gpu.upper() if gpu == step.gpu.id else t("step.borrowed", gpu=gpu.upper()) for gpu in gpus
    ]
    return t("step.and").join(words)


def _notes(t: Translator, report: Report) -> None:
    scenario = report.scenario
    lines = [t("step.added")]
    shares = [
        t("step.reached", name=t(f"field.{name}"), share=numbers.percent(share))
        for name in ("hbm_efficiency", "attention_efficiency", "gemm_efficiency")
        if (share := getattr(scenario, name))
    ]
    if shares:
        lines.append(t("step.rates_set", shares=t("step.and").join(shares)))
    if scenario.pp > 1:
        lines.append(t("step.pipeline", stages=scenario.pp))
    if scenario.speculative_tokens:
        lines.append(t("step.drafting", count=scenario.speculative_tokens))
    st.caption(t("step.separator").join(lines))


def _parts(t: Translator, step: StepTime) -> list[tables.Row]:
    whole = float(step.total.value)
    return [
        {
            t("column.part"): part_name(t, part),
            t("column.spent_on"): t(f"step.group.{part.group}"),
            t("column.times_run"): numbers.digits(part.calls),
            t("column.each"): numbers.duration(float(part.each.value)),
            t("column.time"): numbers.duration(float(part.total.value)),
            t("column.share"): numbers.percent(float(part.total.value) / whole),
        }
        for part in sorted(step.parts, key=lambda part: -float(part.total.value))
    ]


def part_name(t: Translator, part: TimePart) -> str:
    """A part in words: layer kind and stage, kernel or matrices."""
    if part.stage is not None:
        return stages.source(t, part.stage)
    if part.group != "products":
        kind = t(f"kind.{part.kind}.short")
        return t("traffic.source", kind=kind, stage=t(f"step.kernel.{part.name}"))
    named = [step_charts.NUMBERED.sub("", word) for word in part.each.key.split(".")[1:-1]]
    if named[0] in ("norms", "final_norm", "head", "embedding"):
        return t(f"step.product.{named[0]}")
    role = next((word for word in named[1:] if not re.fullmatch(r"x\d+", word)), "matrices")
    copies = next((int(word[1:]) for word in named if re.fullmatch(r"x\d+", word)), 1)
    what = t(f"step.product.{role}")
    if copies > 1:
        what = t("step.product.replicated", what=what, ranks=copies)
    return t("traffic.source", kind=t(f"kind.{named[0]}.short"), stage=what)


def _prefill(t: Translator, report: Report, step: StepTime) -> None:
    new = report.scenario.prefill_tokens
    title = t("traffic.prefill", tokens=numbers.digits(new))
    st.subheader(title, anchor=False)
    st.markdown(
        t(
            "step.prefill_is",
            time=numbers.duration(float(step.total.value)),
            rate=numbers.significant(float(step.tokens_per_second_gpu.value)),
            cached=numbers.digits(report.scenario.context - new),
        )
    )
    parts.chart(
        t,
        "prefill_chart",
        lambda: step_charts.time_by_kind(step, t, t("step.whole_chunk")),
        t("step.chart_prefill"),
    )
    tables.draw(_groups(t, step, t("step.whole_chunk")), title)
    st.caption(t("step.prefill_errors"))


def _errors(t: Translator, gpu: Hardware | None) -> None:
    """The fit against published measurements; needs no GPU."""
    st.subheader(t("step.errors"), anchor=False)
    borrowed = borrowed_from(gpu) if gpu is not None else {}
    rows = []
    for table, row in estimate.measured_errors().items():
        stands = [borrowed[kind] for kind in MEASURED_FOR[table] if kind in borrowed]
        line = {
            t("column.estimate_of"): t(f"step.error_of.{table}"),
            t("column.points"): numbers.digits(row.points),
            t("column.median_error"): numbers.percent(row.median),
            t("column.worst"): numbers.percent(row.worst),
        }
        if gpu is not None:
            line[t("column.measured_on")] = stands[0].upper() if stands else "–"
        rows.append(line)
    tables.draw(rows, t("step.errors"))
    st.caption(t("step.errors_note"))


def _derived(step: StepTime) -> dict[str, Item]:
    items = {"step": step.total, "user": step.tokens_per_second_user}
    items["gpu"] = step.tokens_per_second_gpu
    for place, part in enumerate(step.parts):
        items[f"part.{place}"] = part.total
    return items


def _draw_derived(t: Translator, item: Item) -> None:
    """A part in full; the sums over the whole step without going into every part again."""
    if item.key.startswith("step."):
        draw_one(t, item)
    else:
        draw_steps(t, item)


def _derived_name(t: Translator, step: StepTime, name: str) -> str:
    if name.startswith("part."):
        return part_name(t, step.parts[int(name.partition(".")[2])])
    return t(f"step.derived.{name}")
