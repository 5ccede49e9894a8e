"""In which formats this model's cache, weights and states can be stored, and what scales take."""

from __future__ import annotations

import streamlit as st

from calc.architecture import FormatRow, StateRow, format_rows, state_rows
from calc.engines import ENGINES
from calc.errors import CalcError
from calc.items import Item
from calc.report import Report
from calc.weight_formats import STORED_FORMATS, WEIGHT_FORMATS
from calc.weights import rank_bytes
from ui import errors, numbers, tables
from ui.text import Translator


def draw(t: Translator, report: Report) -> None:
    """KV formats, weight formats, state dtypes."""
    found = format_rows(report.scenario)
    if any(row.rows for row in found):
        st.markdown(f"**{t('formats.kv')}**")
        tables.draw([_kv(t, row, report) for row in found], t("formats.kv"))
        st.caption(t("formats.caution"))
    st.markdown(f"**{t('formats.weights')}**")
    tables.draw(_weights(t, report), t("formats.weights"))
    st.caption(t("formats.weights_note"))
    states = state_rows(report.scenario)
    if states:
        st.markdown(f"**{t('formats.states')}**")
        tables.draw([_state(t, row) for row in states], t("formats.states"))
        st.caption(t("formats.states_note"))


def _kv(t: Translator, row: FormatRow, report: Report) -> tables.Row:
    used = row.id == report.scenario.kv_dtype
    return {
        t("column.format"): f"**`{row.id}`** {t('formats.chosen')}" if used else f"`{row.id}`",
        t("column.row"): _refused(t, row.refusal) if row.refusal else _rows(t, row),
        t("column.scales"): "–" if row.refusal else _scales(t, row),
        t("column.granularity"): t(f"granularity.{row.granularity}"),
    }


def _refused(t: Translator, refusal: CalcError) -> str:
    sentence, _ = errors.worded(t, refusal)
    return f"*{t('formats.refused', reason=sentence)}*"


def _rows(t: Translator, row: FormatRow) -> str:
    return t("model.separator").join(
        _of_kind(t, row, place, numbers.exact(item.value)) for place, item in enumerate(row.rows)
    )


def _scales(t: Translator, row: FormatRow) -> str:
    return t("model.separator").join(
        _of_kind(t, row, place, _size(item)) for place, item in enumerate(row.scales)
    )


def _size(item: Item | None) -> str:
    return numbers.exact(item.value if item else 0)


def _of_kind(t: Translator, row: FormatRow, place: int, words: str) -> str:
    """The kind's name only where there are several."""
    if len(row.rows) == 1:
        return words
    kind = t(f"kind.{row.kinds[place]}.short")
    return f"{t(f'store.{row.names[place]}', kind=kind)} {words}"


def _weights(t: Translator, report: Report) -> list[tables.Row]:
    scenario = report.scenario
    rows = []
    for name in WEIGHT_FORMATS:
        held = rank_bytes(
            report.model,
            scenario.layout,
            name,
            report.query_replicated,
            drafting=scenario.speculative_tokens > 0,
        )
        words = t.get(f"option.{name}", f"`{name}`")
        used = name == scenario.weight_format
        stored = STORED_FORMATS.get(name)
        rows.append(
            {
                t("column.format"): f"**{words}** {t('formats.chosen')}" if used else words,
                t("column.on_rank"): numbers.memory(int(held.total.value)),
                t("column.granularity"): t(f"granularity.w_{stored.id}")
                if stored
                else ", ".join(sorted({part.format for part in held.parts})),
            }
        )
    return rows


def _state(t: Translator, row: StateRow) -> tables.Row:
    made = {t("column.kind"): t(f"kind.{row.kind}.name")}
    for engine, (conv, state) in row.defaults.items():
        rules = ENGINES[engine]
        title = t("formats.default", engine=f"{rules.name} {rules.version}")
        made[title] = t("formats.pair", conv=conv, state=state)
    conv, state = row.used
    made[t("column.in_use")] = f"**{t('formats.pair', conv=conv, state=state)}**"
    made[t("column.decided_by")] = t("formats.by_model" if row.from_model else "formats.by_engine")
    return made
