"""How much of a prefix is usable, with a strip of chunks for each group of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from calc.chunks import Chunks, parse_chunks, written
from calc.errors import CalcError
from calc.items import Item
from calc.layers import Growth
from calc.reference.hybrid import CHUNK, PREFIX, WINDOW, Trial, experiment
from calc.report import Report
from calc.reuse import GroupHit, Hit, ReuseGroup, Rule, window_chunks
from calc.reuse_asked import FIELDS, Asked, joined, split
from calc.reuse_groups import reuse_groups, usual_chunk, usual_interval
from calc.reuse_inputs import HIT
from calc.scenario import Scenario
from ui import numbers, page, reuse_charts, tables
from ui.bench_tables import error_text
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.reusing import inputs

RULES = ("engine", *(rule.value for rule in Rule))
MISSING = "reuse_missing"
ASKED = tuple(field.name.removeprefix("reuse_") for field in HIT if field.name != MISSING)
FIELD = "_reuse_gone."
"""Before a group's id: the key of its field."""


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("reuse.hit.what"))
    scenario = report.scenario
    st.segmented_control(
        t("reuse.rule"),
        RULES,
        key="reuse_rule",
        format_func=lambda name: t(f"reuse.rule.{name}", engine=t(f"reuse.rule.{scenario.engine}")),
        required=True,
        persist_state="session",
    )
    try:
        question = inputs.asked(scenario, ASKED)
        rule = question.rule
        st.caption(t(f"reuse.rule.{rule.value}.says"))
        usual = scenario.shared_prefix or scenario.context
        left_open = {"prefix": usual, "chunk": usual_chunk(scenario, rule)}
        left_open["interval"] = usual_interval(scenario)
        inputs.draw(t, *_fields(scenario, rule), left_open=left_open)
        groups, prefix = question.groups, question.prefix
        missing = _missing(t, groups, prefix)
        hit = question.found(groups, missing)
    except CalcError as error:
        inputs.fault(t, error)
        _experiment(t)
        return
    _cards(t, hit)
    _strip(t, hit)
    title = t("reuse.hit.groups")
    tables.draw([_row(t, hit, one) for one in hit.groups], title)
    _rules(t, question)
    named = _derived(hit)
    parts.derivations(t, "reuse_hit", named, draw_steps, lambda name: _derived_name(t, hit, name))
    _experiment(t)


def _fields(scenario: Scenario, rule: Rule) -> list[str]:
    """The inputs that mean something under a rule."""
    names = ["prefix", "new_tokens"]
    if rule in (Rule.LMCACHE, Rule.IDEAL):
        return [*names, "chunk"]
    if rule is Rule.VLLM:
        return [*names, "lookahead"] if scenario.speculative_tokens else names
    states = any(group.growth is Growth.STATE for group in reuse_groups(scenario, Rule.IDEAL))
    return [*names, "interval"] if states else names


def _missing(t: Translator, groups: Sequence[ReuseGroup], prefix: int) -> dict[str, Chunks]:
    """One field a group; a click on the strip writes into it. All of them travel as one text.

    What was typed for groups of another model stays in sight, as it stays in the link.
    """
    if joined(_typed()) != st.session_state[MISSING]:  # opened from a link
        linked = split(st.session_state[MISSING])
        for name in {*_typed(), *linked}:
            st.session_state[_key(name)] = linked.get(name, "")
    known = {group.id: group for group in groups}
    others = [name for name, text in _typed().items() if text.strip() and name not in known]
    found = {}
    with st.grid("auto", min_column_width=240, gap="small"):
        for name in (*known, *others):
            words = label(t, known[name]) if name in known else name
            text = st.text_input(
                t("reuse.missing", group=words),
                key=_key(name),
                placeholder="3, 7-9",
                on_change=_keep,
                help=_chunks_of(t, known[name], prefix) if name in known else None,
                persist_state="session",
            )
            found[name] = parse_chunks(text or "", words)
    FIELDS["missing"].check(joined(_typed()))  # what a link cannot carry is not taken either
    return found


def _chunks_of(t: Translator, group: ReuseGroup, prefix: int) -> str:
    return t(
        "reuse.missing.help",
        count=numbers.digits(group.chunks(prefix)),
        size=numbers.digits(group.chunk),
    )


def _key(group: str) -> str:
    return f"{FIELD}{group}"


def _typed() -> dict[str, str]:
    """What stands in the fields, by group."""
    fields = [str(key) for key in st.session_state if str(key).startswith(FIELD)]
    return {key.removeprefix(FIELD): st.session_state[key] or "" for key in sorted(fields)}


def _keep() -> None:
    """Put what was typed where a link takes it from (a callback)."""
    st.session_state[MISSING] = joined(_typed())


def label(t: Translator, group: ReuseGroup) -> str:
    """A group in words: its layer kind, and its window."""
    kind = t(f"kind.{group.kind}.short")
    limit = f" {numbers.tokens(group.limit)}" if group.limit else ""
    return f"{kind}{limit}"


def _cards(t: Translator, hit: Hit) -> None:
    with st.grid(3, min_column_width=150, gap="small"):
        page.card(
            t("reuse.card.usable"),
            numbers.digits(hit.tokens),
            t("reuse.card.usable.per", prefix=numbers.digits(hit.prefix)),
            numbers.percent(hit.tokens / hit.prefix),
        )
        page.card(
            t("reuse.card.again"),
            numbers.digits(hit.recomputed.value),
            t("reuse.card.again.per"),
            numbers.exact(hit.recomputed.value, t("unit.tokens")),
        )
        page.card(
            t("reuse.card.alignment"),
            numbers.digits(hit.align),
            t("reuse.card.alignment.per"),
            t("reuse.card.alignment.help"),
        )
    st.markdown(_why(t, hit))


def _why(t: Translator, hit: Hit) -> str:
    """The reason of the end in one sentence."""
    group = next((one.group for one in hit.groups if one.group.id == hit.binding), None)
    return t(
        f"reuse.why.{hit.cut.value}",
        tokens=numbers.digits(hit.tokens),
        group="" if group is None else label(t, group),
        chunk="–" if hit.blocking is None else numbers.digits(hit.blocking),
        align=numbers.digits(hit.align),
    )


def _strip(t: Translator, hit: Hit) -> None:
    """The chunks; a click on one takes it out of the cache or puts it back."""
    turn = st.session_state.setdefault("reuse_turn", 0)
    key = f"reuse_strip_{turn}"
    st.markdown(f"**{t('reuse.chart_strip')}**")
    st.plotly_chart(
        reuse_charts.strips(t, hit, {one.group.id: label(t, one.group) for one in hit.groups}),
        key=key,
        config={"displayModeBar": False, "scrollZoom": False},
        alt=t("alt.reuse_strip"),
        on_select=lambda: _clicked(st.session_state[key]),
        selection_mode="points",
    )
    st.caption(t("reuse.strip_note"))


def _clicked(event: Any) -> None:
    """Chunks that were clicked change sides; a fresh key drops the chart's own selection."""
    for point in event["selection"]["points"]:
        group, first, end = point["customdata"]
        field = _key(group)
        try:
            gone = parse_chunks(st.session_state.get(field) or "", group)
        except CalcError:
            continue
        st.session_state[field] = written(gone.toggled(range(first, end)))
    st.session_state["reuse_turn"] += 1
    _keep()


def _row(t: Translator, hit: Hit, one: GroupHit) -> tables.Row:
    needed = one.needed
    count = len(needed)
    if one.group.growth is Growth.STATE and count:
        words = t("reuse.needs_snapshot", at=numbers.digits(needed.stop * one.group.chunk))
    elif count:
        words = t("reuse.needs", count=numbers.digits(count), first=needed.start, last=needed[-1])
    else:
        words = t("reuse.needs_nothing")
    alone = t(
        f"reuse.alone.{one.cut.value}",
        chunk="–" if one.blocking is None else numbers.digits(one.blocking),
    )
    return {
        t("column.group"): f"**{label(t, one.group)}**",
        t("column.layers"): numbers.digits(one.group.layers),
        t("column.chunk"): numbers.digits(one.group.chunk),
        t("column.needs"): words,
        t("column.alone"): f"{numbers.digits(one.usable)} ({alone})",
    }


def _rules(t: Translator, question: Asked) -> None:
    """The same prefix by every rule, with nothing missing."""
    rows = []
    for rule in Rule:
        try:
            hit = question.by_rule(rule)
        except CalcError:
            continue
        windows = [one.group for one in hit.groups if one.group.growth is Growth.WINDOW]
        reach = [
            t(
                "reuse.window_chunks",
                count=numbers.digits(window_chunks(group, rule).value),
                size=numbers.digits(group.chunk),
            )
            for group in windows
        ]
        rows.append(
            {
                t("column.rule"): t(f"reuse.rule.{rule.value}"),
                t("column.alignment"): numbers.digits(hit.align),
                t("column.usable"): numbers.digits(hit.tokens),
                t("column.window_needs"): "; ".join(reach) or "–",
                t("column.differs"): t(f"reuse.rule.{rule.value}.differs"),
            }
        )
    st.subheader(t("reuse.rules"), anchor=False)
    tables.draw(rows, t("reuse.rules"))


def _derived(hit: Hit) -> dict[str, Item]:
    found = {"recomputed": hit.recomputed, "longest": hit.longest}
    if isinstance(hit.alignment, Item):
        found["alignment"] = hit.alignment
    for one in hit.groups:
        if one.group.block is not None:
            found[f"block.{one.group.id}"] = one.group.block
        if one.group.growth is Growth.WINDOW and hit.rule is not Rule.IDEAL:
            found[f"window.{one.group.id}"] = window_chunks(one.group, hit.rule)
    return found


def _derived_name(t: Translator, hit: Hit, name: str) -> str:
    what, _, group = name.partition(".")
    words = t(f"reuse.derived.{what}")
    found = next((one.group for one in hit.groups if one.group.id == group), None)
    return words if found is None else f"{words} ({label(t, found)})"


def _experiment(t: Translator) -> None:
    """The tiny hybrid model, with and without its cache."""
    st.subheader(t("reuse.experiment"), anchor=False)
    st.markdown(t("reuse.experiment.what", chunk=CHUNK, window=WINDOW, prefix=PREFIX))
    if st.button(t("reuse.experiment.run"), key="reuse_experiment", icon=":material/science:"):
        st.session_state["reuse_trials"] = experiment()
    trials = st.session_state.get("reuse_trials")
    if trials:
        tables.draw([_trial(t, one) for one in trials], t("reuse.experiment"))
        agree = all((one.error == 0) == one.usable for one in trials)
        st.markdown(t("reuse.experiment.agrees" if agree else "reuse.experiment.differs"))


def _trial(t: Translator, one: Trial) -> tables.Row:
    return {
        t("column.trial"): t(f"reuse.trial.{one.name}"),
        t("column.rule_says"): t("reuse.usable" if one.usable else "reuse.not_usable"),
        t("column.error"): error_text(one.error),
        t("column.words"): t("reuse.same" if one.same_tokens else "reuse.other"),
    }
