"""What the model is made of: its layers as a picture, each kind, its parameters, its formats."""

from __future__ import annotations

import re
from collections.abc import Callable

import streamlit as st

from calc.architecture import KindRow, kind_rows
from calc.items import Item
from calc.layers import Growth, Store
from calc.presets import preset_ids
from calc.report import Report
from calc.weights import RankPart, WeightPart, parameters
from calc.whatif import BASE
from ui import config_import, numbers, page, tables
from ui.custom_fields import part_fields
from ui.derivation import draw as draw_steps
from ui.layer_map import draw_map, part_labels
from ui.state import Result
from ui.text import Translator
from ui.views import compare, formats, parts, whatif

REPOSITORY = re.compile(r"config\.json of ([\w.-]+/[\w.-]+)", re.ASCII)
TENSOR = re.compile(r"[a-z0-9_]{1,40}")
MOST_NAMES = 14


def draw(t: Translator, result: Result) -> None:
    """The whole view."""
    report = result.report
    assert report is not None
    rows = kind_rows(report.scenario)
    _origin(t, report)
    config_import.explain(t, report.model)
    _totals(t, report)
    parts.chart(t, "map_chart", lambda: draw_map(report, t), t("model.map", layers=_count(report)))
    st.caption(t("model.map_note"))
    st.subheader(t("model.kinds"), anchor=False)
    tables.draw(_kinds(t, rows), t("model.kinds"))
    st.subheader(t("model.parameters"), anchor=False)
    tables.draw(_parameters(t, report), t("model.parameters"))
    _replicated(t, report)
    lazily(t, "compare", ":material/compare_arrows:", lambda: compare.draw(t, report))
    lazily(t, "whatif", ":material/tune:", lambda: whatif.draw(t, report))
    lazily(t, "formats", ":material/data_array:", lambda: formats.draw(t, report))
    if report.scenario.spec is None:
        lazily(t, "sources", ":material/menu_book:", lambda: _sources(t, report))
    parts.derivations(t, "model", _derived(t, report, rows), draw_steps)


def lazily(t: Translator, name: str, icon: str, inside: Callable[[], None]) -> None:
    """A section that is computed only while it is open."""
    section = st.expander(
        t(f"model.section.{name}"), key=f"section_{name}", icon=icon, on_change="rerun"
    )
    if section.open:
        with section:
            inside()


def _count(report: Report) -> str:
    return numbers.digits(report.model.layer_count)


def _origin(t: Translator, report: Report) -> None:
    """For a changed preset which one it was; for a preset its open doubts."""
    base = report.model.sources.get(BASE, "")
    if report.scenario.spec is not None:
        if base in preset_ids():
            st.caption(t("model.changed", base=base))
        return
    for doubt in report.model.doubts:
        st.caption(f":material/help: {t('model.doubt', doubt=doubt)}")


def _totals(t: Translator, report: Report) -> None:
    counted, held = parameters(report.model), report.engine.weights
    whole, active = int(counted.total.value), int(counted.active.value)
    everything = int(held.total.value)
    with st.grid(4, min_column_width=150, gap="small"):
        page.card(
            t("model.total"), parameter_count(t, whole), t("model.total.per"), numbers.digits(whole)
        )
        page.card(
            t("model.active"),
            parameter_count(t, active),
            t("model.active.per", percent=numbers.significant(100 * active / whole)),
            numbers.digits(active),
        )
        page.card(
            t("model.weights"),
            numbers.memory(everything),
            t("model.weights.per", format=_format(t, report)),
            numbers.exact(everything),
        )
        mtp = int(counted.mtp.value)
        page.card(
            t("model.layers"),
            _count(report),
            t("model.mtp", count=parameter_count(t, mtp)) if mtp else t("model.no_mtp"),
            t("model.layers.help"),
        )


def _format(t: Translator, report: Report) -> str:
    chosen = report.scenario.weight_format
    return t.get(f"option.{chosen}", chosen)


def parameter_count(t: Translator, value: int) -> str:
    """Parameters as people say them."""
    if value >= 10**9:
        return t("count.billion", count=numbers.significant(value / 10**9))
    return t("count.million", count=numbers.significant(value / 10**6))


def _kinds(t: Translator, rows: tuple[KindRow, ...]) -> list[tables.Row]:
    labels = part_labels(t, [row.part for row in rows])
    return [
        {
            t("column.kind"): f"**{labels[row.part]}**",
            t("column.layers"): numbers.digits(row.layers),
            t("column.widths"): _widths(t, row),
            t("column.keeps_whole"): _kept(t, row, row.whole),
            t("column.keeps_here"): _kept(t, row, row.here),
            t("column.parameters_layer"): _weight(t, row),
        }
        for row in rows
    ]


def _weight(t: Translator, row: KindRow) -> str:
    whole, active = int(row.parameters.value), int(row.active.value)
    said = parameter_count(t, whole)
    return said if whole == active else t("model.of_which", all=said, some=_active(t, active))


def _active(t: Translator, active: int) -> str:
    return parameter_count(t, active)


def _widths(t: Translator, row: KindRow) -> str:
    """The sizes of a kind, each by its name; optional ones where they are set."""
    fields = [
        field
        for field in part_fields(row.part.kind)
        if field.required
        or (field.type == "whole" and getattr(row.part, field.name) not in (None, field.start))
    ]
    return t("config.separator").join(
        t(
            "model.width",
            name=t.get(f"part.{field.name}", field.name),
            value=numbers.digits(getattr(row.part, field.name)),
        )
        for field in fields
    )


def _kept(t: Translator, row: KindRow, stores: tuple[Store, ...]) -> str:
    if not stores:
        reads = getattr(row.part, "reads_other_layer", False)
        return t("model.reads_other") if reads else "–"
    return t("model.separator").join(_store(t, store) for store in stores)


def _store(t: Translator, store: Store) -> str:
    size = store.bytes.value
    match store.growth:
        case Growth.STATE:
            return t("model.a_request", size=numbers.memory(size))
        case Growth.GROWING if store.tokens_per_row > 1:
            return t("model.a_row", size=numbers.digits(size), tokens=store.tokens_per_row)
        case Growth.GROWING if store.dcp > 1:
            return t("model.striped", size=numbers.digits(size), dcp=store.dcp)
        case Growth.GROWING:
            return t("model.a_token", size=numbers.digits(size))
        case _:
            return t(
                "model.a_window",
                size=numbers.digits(size),
                tokens=numbers.tokens(store.limit),
            )


def _parameters(t: Translator, report: Report) -> list[tables.Row]:
    """By role: of the whole model, active for one token, and on a rank."""
    counted, held = parameters(report.model), report.engine.weights
    whole = int(counted.total.value)
    by_role: dict[str, list[WeightPart]] = {}
    for part in counted.parts:
        by_role.setdefault(part.role, []).append(part)
    rows = []
    for role in sorted(by_role, key=lambda role: -_sum(by_role[role])):
        mine = [part for part in held.parts if part.role == role and _no_draft(part)]
        rows.append(
            {
                t("column.part"): t(f"role.{role}"),
                t("column.parameters"): parameter_count(t, _sum(by_role[role])),
                t("column.share"): _percent(_sum(by_role[role]) / whole),
                t("column.active"): parameter_count(
                    t, sum(int(part.active.value) for part in by_role[role])
                ),
                t("column.on_rank"): _on_rank(mine),
                t("column.stored_as"): ", ".join(sorted({part.format for part in mine})) or "–",
                t("column.held_twice"): _twice(mine),
            }
        )
    drafts = [part for part in held.parts if not _no_draft(part)]
    last = {
        t("column.part"): f"**{t('model.sum')}**",
        t("column.parameters"): f"**{parameter_count(t, whole)}**",
        t("column.share"): "",
        t("column.active"): f"**{parameter_count(t, int(counted.active.value))}**",
        t("column.on_rank"): f"**{numbers.memory(int(held.total.value))}**",
        t("column.stored_as"): t("model.with_drafts") if drafts else "",
        t("column.held_twice"): _twice(list(held.parts)),
    }
    return [*rows, last]


def _no_draft(part: RankPart) -> bool:
    return not part.name.startswith("mtp.")


def _sum(found: list[WeightPart]) -> int:
    return sum(int(part.total.value) for part in found)


def _percent(share: float) -> str:
    return f"{numbers.significant(100 * share)} %" if share >= 0.0001 else "< 0.01 %"


def _on_rank(found: list[RankPart]) -> str:
    return numbers.memory(sum(int(part.item.value) for part in found)) if found else "–"


def _twice(found: list[RankPart]) -> str:
    held = sum(int(part.item.value) for part in found if part.replicas > 1)
    return numbers.memory(held) if held else "–"


def _replicated(t: Translator, report: Report) -> None:
    """Which tensors several ranks of the TP group hold."""
    held = report.engine.weights
    names = [
        f"`{tensor}`"
        for tensor in dict.fromkeys(tensor for part in held.replicated for tensor in part.tensors)
        if TENSOR.fullmatch(tensor)
    ]
    if names:
        more = t("model.more_names") if len(names) > MOST_NAMES else ""
        st.caption(t("model.replicated", names=", ".join(names[:MOST_NAMES]) + more))
    if report.scenario.pp > 1:
        st.caption(t("model.stage", stage=held.stage + 1, stages=report.scenario.pp))
    st.caption(t("model.weights_not_counted"))


def _sources(t: Translator, report: Report) -> None:
    """Where each value of a preset was read; only presets, whose texts are ours, come here."""
    st.caption(t("model.revision", revision=report.model.revision))
    rows = [
        {t("column.field"): f"`{name}`", t("column.read_in"): _linked(source)}
        for name, source in report.model.sources.items()
    ]
    tables.draw(rows, t("model.section.sources"))


def _linked(source: str) -> str:
    """The repository of a config as a link."""
    return REPOSITORY.sub(
        r"[config.json of \1](https://huggingface.co/\1/blob/main/config.json)", source
    )


def _derived(t: Translator, report: Report, rows: tuple[KindRow, ...]) -> dict[str, Item]:
    counted = parameters(report.model)
    found = {
        "parameters": counted.total,
        "active": counted.active,
        "weights": report.engine.weights.total,
    }
    return found | compare.derived(report)
