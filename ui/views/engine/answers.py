"""What a budget holds: batch and context, shared prefixes, mixed lengths, stages, replicas."""

from __future__ import annotations

import streamlit as st

from calc.answers import in_deployment
from calc.capacity import longest_context
from calc.engines.sglang_pool import PoolView
from calc.fitting import by_engine, longest_alone
from calc.items import Item
from calc.report import Report
from ui import numbers, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.engine import mixes, pools


def draw(t: Translator, report: Report) -> None:
    """One section a question."""
    _most(t, report)
    view = report.engine.view
    if isinstance(view, PoolView) and len(view.pools) > 1:
        st.subheader(t("answers.budgets"), anchor=False)
        tables.draw(pools.rows(t, view), t("answers.budgets"))
    st.subheader(t("answers.prefix"), anchor=False)
    _prefix(t, report)
    st.subheader(t("answers.mix"), anchor=False)
    _mix(t, report)
    mixes.draw(t)
    if report.scenario.pp > 1:
        st.subheader(t("answers.stages"), anchor=False)
        _stages(t, report)
    parts.derivations(t, "answers", _derived(report), draw_steps)


def _most(t: Translator, report: Report) -> None:
    scenario, fit = report.scenario, report.fit
    engine = by_engine(report)
    alone = longest_context(report.cache, report.engine.budget.bytes, 1)
    most = int(fit.max_requests.value)
    name = f"{scenario.engine_rules.name} {scenario.engine_rules.version}"
    batch = numbers.digits(scenario.batch)
    view = report.engine.view
    made = [
        _row(t, "answers.batch", name, most, engine[0] if engine else None),
        _row(
            t,
            "answers.batch_all",
            name,
            in_deployment(most, scenario.dp),
            in_deployment(engine[0], scenario.dp) if engine else None,
            replicas=scenario.dp,
        ),
        _context_row(t, "answers.context", name, fit.max_context, engine, batch=batch),
    ]
    if scenario.batch > 1 and engine is not None:
        own = (0, longest_alone(report))
        made.append(_context_row(t, "answers.context_alone", name, alone, own))
    if view is not None:
        made.append(
            {
                t("column.question"): t("answers.bytes"),
                t("column.by_formula"): numbers.memory(view.formula.value),
                name: numbers.memory(view.allocated.value),
            }
        )
    st.subheader(
        t("answers.most", context=numbers.digits(scenario.context)),
        anchor=False,
    )
    tables.draw(made, t("answers.most_alt"))
    st.caption(t("answers.replicas", ranks=scenario.layout.replica_ranks, dp=scenario.dp))


def _row(
    t: Translator, key: str, engine: str, formula: int, allocated: int | None, **words: object
) -> tables.Row:
    return {
        t("column.question"): t(key, **words),
        t("column.by_formula"): numbers.digits(formula),
        engine: "–" if allocated is None else numbers.digits(allocated),
    }


def _context_row(
    t: Translator,
    key: str,
    engine: str,
    formula: int | None,
    allocated: tuple[int, int | None] | None,
    **words: object,
) -> tables.Row:
    return {
        t("column.question"): t(key, **words),
        t("column.by_formula"): _tokens(t, formula),
        engine: "–" if allocated is None else _tokens(t, allocated[1]),
    }


def _tokens(t: Translator, tokens: int | None) -> str:
    return t("capacity.no_limit") if tokens is None else numbers.digits(tokens)


def _prefix(t: Translator, report: Report) -> None:
    shared, scenario = report.engine.prefix, report.scenario
    if shared is None:
        st.caption(t("answers.prefix_none"))
        return
    plainly = int(report.cache.batch.value)
    words = {
        "prefix": numbers.digits(shared.prefix),
        "batch": numbers.digits(scenario.batch),
        "context": numbers.digits(scenario.context),
        "tokens": numbers.digits(shared.tokens.value),
        "all": numbers.digits(scenario.batch * scenario.context),
    }
    st.markdown(t("answers.prefix_tokens", **words))
    rows = [
        (t("answers.prefix_bytes"), numbers.memory(shared.prefix_bytes.value)),
        (t("answers.prefix_own"), numbers.memory(shared.own.value)),
        (t("answers.prefix_batch"), numbers.memory(shared.batch.value)),
        (t("answers.prefix_apart"), numbers.memory(plainly)),
        (t("answers.prefix_most"), _requests(shared.max_requests)),
    ]
    if shared.max_requests_engine is not None:
        rows.append((t("answers.prefix_engine"), _requests(shared.max_requests_engine)))
    titles = (t("column.question"), t("column.value"))
    tables.draw([dict(zip(titles, row, strict=True)) for row in rows], t("answers.prefix"))
    st.caption(t("answers.prefix_note"))


def _requests(item: Item | None) -> str:
    return "–" if item is None else numbers.digits(int(item.value))


def _mix(t: Translator, report: Report) -> None:
    mix = report.engine.mix
    if mix is None:
        st.caption(t("answers.mix_none"))
        return
    words = {
        "requests": numbers.digits(mix.requests),
        "tokens": numbers.digits(mix.tokens),
        "bytes": numbers.memory(mix.bytes.value),
        "budget": numbers.memory(min(report.engine.budget.bytes)),
    }
    if mix.fits:
        st.markdown(t("answers.mix_fits", **words))
    else:
        st.markdown(t("answers.mix_short", short=numbers.memory(mix.short_bytes), **words))
    if mix.blocks is not None:
        key = "answers.mix_blocks_fit" if mix.fits_engine else "answers.mix_blocks_short"
        st.markdown(t(key, blocks=numbers.digits(int(mix.blocks.value))))
    st.markdown(t("answers.mix_most", most=numbers.digits(int(mix.max_requests.value))))
    rows = [
        {
            t("column.length"): numbers.digits(tokens),
            t("column.requests"): numbers.digits(count),
            t("column.tokens"): numbers.digits(tokens * count),
        }
        for tokens, count in report.scenario.pairs("lengths")
    ]
    tables.draw(rows, t("answers.mix"))


def _stages(t: Translator, report: Report) -> None:
    scenario = report.scenario
    sizes = scenario.layout.stage_layers or report.model.stage_sizes(scenario.pp)
    bound = report.fit.stage
    rows = []
    for number, (stage, budget, layers) in enumerate(
        zip(report.cache.stages, report.engine.budget.bytes, sizes, strict=True)
    ):
        each = int(stage.per_request.value)
        rows.append(
            {
                t("column.stage_number"): f"{number + 1}"
                + (f" ({t('budget.binds')})" if number == bound else ""),
                t("column.layers"): f"{layers}",
                t("column.per_request"): numbers.memory(each),
                t("column.budget"): numbers.memory(budget),
                t("column.requests"): numbers.digits(budget // each) if each else "–",
            }
        )
    tables.draw(rows, t("answers.stages"))
    st.caption(t("answers.stages_note"))


def _derived(report: Report) -> dict[str, Item]:
    made: dict[str, Item] = {"batch": report.fit.max_requests}
    view, shared, mix = report.engine.view, report.engine.prefix, report.engine.mix
    if view is not None:
        made["admitted"] = view.max_requests
    if shared is not None:
        made["prefix_tokens"] = shared.tokens
        made["prefix_batch"] = shared.batch
        for name, item in (
            ("prefix_most", shared.max_requests),
            ("prefix_engine", shared.max_requests_engine),
        ):
            if item is not None:
                made[name] = item
    if mix is not None:
        made["mix_bytes"] = mix.bytes
        made["mix_most"] = mix.max_requests
        if mix.blocks is not None:
            made["mix_blocks"] = mix.blocks
    return made
