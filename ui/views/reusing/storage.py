"""What stored chunks weigh, how often to save a state, and loading against computing."""

from __future__ import annotations

import streamlit as st

from calc.checkpoints import Interval, Workload, best, each_token_us, interval_cost, trade_off
from calc.errors import CalcError
from calc.fields import ListField
from calc.hardware import Hardware
from calc.items import Item
from calc.report import Report
from calc.reuse import Rule
from calc.reuse_groups import reuse_groups
from calc.storage import LoadCost, Objects, Prefixes, Tier, objects, tiers, whole_chunk
from ui import numbers, page, reuse_charts, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.reusing import inputs, moving
from ui.views.step import estimate

LENGTHS = (256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
HIT_LENGTHS = ListField("lengths", "any", ("any",), counted=True)


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("reuse.storage.what"))
    items: dict[str, Item] = {}
    rule = Rule.VLLM if report.scenario.engine == "vllm" else Rule.SGLANG
    try:
        with st.grid("auto", min_column_width=170, gap="small", vertical_alignment="bottom"):
            prefix = inputs.prefix(t, report)
            chunk = inputs.whole(t, "chunk", 256)
            new = inputs.whole(t, "new_tokens", 1, least=0)
        found = objects(report, whole_chunk(report, chunk))
        unit = max(group.chunk for group in reuse_groups(report.scenario, rule))
    except CalcError as error:
        inputs.fault(t, error)
        return
    items |= _objects(t, found)
    gpu = estimate.chosen_gpu(t, report)
    if gpu is not None:
        try:
            items |= _timed(t, report, gpu, prefix, max(1, new), unit)
        except CalcError as error:
            inputs.fault(t, error)
    items |= moving.draw(t, report, gpu)
    parts.derivations(
        t, "reuse_storage", items, draw_steps, lambda name: t(f"reuse.derived.{name}")
    )


def _objects(t: Translator, found: Objects) -> dict[str, Item]:
    with st.grid(4, min_column_width=150, gap="small"):
        for name, item in (
            ("on_rank", found.on_rank),
            ("on_ranks", found.on_ranks),
            ("unique", found.unique),
        ):
            page.card(
                t(f"reuse.card.{name}"),
                numbers.memory(item.value),
                t("reuse.card.object.per", chunk=numbers.digits(found.chunk)),
                numbers.exact(item.value),
            )
        page.card(
            t("reuse.card.saved"),
            numbers.percent(float(found.saved.value) / 100),
            t("reuse.card.saved.per"),
            t("reuse.card.saved.help"),
        )
    rows = [
        {
            t("column.kind"): parts.store_name(t, one.part),
            t("column.layers"): numbers.digits(one.part.layers),
            t("column.object"): numbers.memory(one.on_rank.value),
            t("column.copies"): numbers.digits(one.part.store.copies),
            t("column.on_ranks"): numbers.memory(one.on_ranks.value),
            t("column.unique"): numbers.memory(one.unique.value),
        }
        for one in found.stored
    ]
    tables.draw(rows, t("reuse.objects"))
    st.caption(t("reuse.objects_note"))
    return {"object": found.on_rank, "unique": found.unique, "saved": found.saved}


def _timed(
    t: Translator, report: Report, gpu: Hardware, prefix: int, new: int, unit: int
) -> dict[str, Item]:
    """Everything that needs a GPU's rates; two charts side by side."""
    prefixes = Prefixes(report, gpu, new)
    every = tiers(report, gpu)
    with st.container(border=True):
        st.markdown(t("reuse.load.what"))
        here = {tier.id: prefixes.cost(tier, prefix) for tier in every}
        points = {
            tier.id: [prefixes.point(tier, size) for size in sorted({*LENGTHS, prefix})]
            for tier in every
        }
        figure = reuse_charts.loading(t, points, here["hbm"].point)
        parts.chart(t, "reuse_load", figure, t("reuse.chart_load"))
        tables.draw([_tier(t, cost) for cost in here.values()], t("reuse.chart_load"))
        st.caption(t("reuse.load_note"))
    items = {f"load_{name}": cost.point.saved for name, cost in here.items()}
    if report.cache.stage.state_per_request.value:
        items |= _snapshots(t, report, prefixes, prefix, unit, every)
    return items


def _tier(t: Translator, cost: LoadCost) -> tables.Row:
    tier, point = cost.tier, cost.point
    even = cost.break_even
    return {
        t("column.tier"): t(f"reuse.tier.{tier.id}"),
        t("column.capacity"): numbers.memory(tier.capacity_bytes),
        t("column.rank_rate"): f"{numbers.traffic(tier.rate)}/s",
        t("column.held"): numbers.digits(int(cost.held.value)),
        t("column.loading"): numbers.duration(float(point.loaded.value)),
        t("column.compute"): numbers.duration(float(point.recomputed.value)),
        t("column.break_even"): t("reuse.never") if even is None else numbers.digits(even),
    }


def _snapshots(
    t: Translator,
    report: Report,
    prefixes: Prefixes,
    prefix: int,
    unit: int,
    every: tuple[Tier, ...],
) -> dict[str, Item]:
    """State snapshots: the interval against storage, writes and computing again."""
    with st.container(border=True):
        st.markdown(t("reuse.snapshots.what", unit=numbers.digits(unit)))
        with st.grid("auto", min_column_width=170, gap="small", vertical_alignment="bottom"):
            interval = inputs.whole(t, "snapshot_interval", unit, mark=f"_{unit}")
            hits = inputs.whole(t, "hits", 4)
            rate = inputs.whole(t, "prefill_rate", 20_000)
            lengths = st.text_input(
                t("reuse.lengths"),
                value="any",
                key="reuse_lengths",
                help=t("reuse.lengths.help"),
                persist_state="session",
            )
        state = report.cache.stage.state_per_request
        _, computing = prefixes.at(prefix)
        work = Workload(
            prefix,
            float(hits),
            each_token_us.item("checkpoints.token", recompute_us=computing, prefix=prefix),
            next(tier.rate for tier in every if tier.id == "nvme"),
            float(rate),
            HIT_LENGTHS.pairs(HIT_LENGTHS.check(lengths)),
        )
        chosen = interval_cost(state, interval, unit, work)
        ways = trade_off(state, unit, work)
        cheapest = best(ways)
        parts.chart(
            t,
            "reuse_snapshots",
            reuse_charts.snapshots(t, ways, cheapest),
            t("reuse.chart_snapshots"),
        )
        rows = [
            _interval(t, name, one)
            for name, one in (("chosen", chosen), ("best", cheapest), ("densest", ways[0]))
        ]
        tables.draw(rows, t("reuse.chart_snapshots"))
        st.caption(t("reuse.snapshots_note", state=numbers.memory(state.value)))
    return {
        "snapshot_cost": chosen.cost,
        "snapshot_storage": chosen.storage,
        "snapshot_writes": chosen.write_rate,
    }


def _interval(t: Translator, name: str, one: Interval) -> tables.Row:
    return {
        t("column.interval"): f"{numbers.digits(one.tokens)} ({t(f'reuse.interval.{name}')})",
        t("column.snapshots"): numbers.digits(int(one.kept.value)),
        t("column.storage"): numbers.memory(one.storage.value),
        t("column.writes"): f"{numbers.traffic(float(one.write_rate.value))}/s",
        t("column.recomputed"): numbers.significant(float(one.recompute.value)),
        t("column.cost"): numbers.duration(float(one.cost.value)),
    }
