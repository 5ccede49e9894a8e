"""What stored chunks weigh, how often to save a state, and loading against computing."""

from __future__ import annotations

import streamlit as st

from calc.checkpoints import Interval
from calc.errors import CalcError
from calc.hardware import Hardware
from calc.items import Item
from calc.layers import Growth
from calc.report import Report
from calc.reuse import Rule
from calc.reuse_asked import Asked
from calc.reuse_groups import usual_chunk
from calc.reuse_inputs import STORAGE
from calc.storage import LoadCost, Objects, Prefixes, Tier, objects, whole_chunk
from ui import numbers, page, reuse_charts, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.reusing import inputs, moving
from ui.views.step import estimate

LENGTHS = (256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
PLACES = ("host_gib", "host_rate", "nvme_gb", "nvme_rate", "network_gb", "network_rate")
ASKED = (
    *(field.name.removeprefix("reuse_") for field in STORAGE),
    "prefix",
    "chunk",
    "new_tokens",
    "interval",
)


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("reuse.storage.what"))
    scenario = report.scenario
    items: dict[str, Item] = {}
    try:
        usual = scenario.shared_prefix or scenario.context
        stored = usual_chunk(scenario, Rule.LMCACHE)
        left_open = {"prefix": usual, "chunk": stored}
        inputs.draw(t, "prefix", "chunk", "new_tokens", left_open=left_open)
        question = inputs.asked(scenario, ASKED)
        found = objects(report, whole_chunk(report, question.stored_chunk))
    except CalcError as error:
        inputs.fault(t, error)
        return
    items |= _objects(t, found)
    gpu = estimate.chosen_gpu(t, report)
    if gpu is not None:
        try:
            items |= _timed(t, report, gpu, question)
        except CalcError as error:
            inputs.fault(t, error)
    items |= moving.draw(t, report, gpu, question)
    parts.derivations(
        t, "reuse_storage", items, draw_steps, lambda name: t(f"reuse.derived.{name}")
    )


def _objects(t: Translator, found: Objects) -> dict[str, Item]:
    states = any(one.part.growth is Growth.STATE for one in found.stored)
    per = "reuse.card.object.per_states" if states else "reuse.card.object.per"
    with st.grid(4, min_column_width=150, gap="small"):
        for name, item in (
            ("on_rank", found.on_rank),
            ("on_ranks", found.on_ranks),
            ("unique", found.unique),
        ):
            page.card(
                t(f"reuse.card.{name}"),
                numbers.memory(item.value),
                t(per, chunk=numbers.digits(found.chunk)),
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


def _timed(t: Translator, report: Report, gpu: Hardware, question: Asked) -> dict[str, Item]:
    """Everything that needs a GPU's rates; two charts side by side."""
    prefix = question.prefix
    prefixes = Prefixes(report, gpu, max(1, question["new_tokens"]))
    every = question.tiers(report, gpu)
    with st.container(border=True):
        st.markdown(t("reuse.load.what"))
        here = {tier.id: prefixes.cost(tier, prefix) for tier in every}
        points = {
            tier.id: [prefixes.point(tier, size) for size in sorted({*LENGTHS, prefix})]
            for tier in every
        }
        parts.chart(
            t,
            "reuse_load",
            lambda: reuse_charts.loading(t, points, here["hbm"].point),
            t("reuse.chart_load"),
        )
        tables.draw([_tier(t, cost) for cost in here.values()], t("reuse.chart_load"))
        st.caption(t("reuse.load_note"))
        with st.expander(t("reuse.places"), icon=":material/hard_drive:"):
            inputs.draw(t, *PLACES)
    items = {f"load_{name}": cost.point.saved for name, cost in here.items()}
    if report.cache.stage.state_per_request.value:
        items |= _snapshots(t, report, prefixes, question, every)
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
    t: Translator, report: Report, prefixes: Prefixes, question: Asked, every: tuple[Tier, ...]
) -> dict[str, Item]:
    """State snapshots: the interval against storage, writes and computing again."""
    unit = question.snapshot_unit
    with st.container(border=True):
        st.markdown(t("reuse.snapshots.what", unit=numbers.digits(unit)))
        named = ("snapshot_interval", "hits", "prefill_rate", "hit_lengths")
        inputs.draw(t, *named, left_open={"snapshot_interval": unit})
        ways = question.snapshots(report, prefixes, every)
        if ways is None:
            st.caption(t("reuse.snapshots.none", prefix=numbers.digits(question.prefix)))
            return {}
        parts.chart(
            t,
            "reuse_snapshots",
            lambda: reuse_charts.snapshots(t, ways.every, ways.best),
            t("reuse.chart_snapshots"),
        )
        rows = [
            _interval(t, name, one)
            for name, one in (
                ("chosen", ways.chosen),
                ("best", ways.best),
                ("densest", ways.every[0]),
            )
        ]
        tables.draw(rows, t("reuse.chart_snapshots"))
        state = report.cache.stage.state_per_request.value
        st.caption(t("reuse.snapshots_note", state=numbers.memory(state)))
    return {
        "snapshot_cost": ways.chosen.cost,
        "snapshot_storage": ways.chosen.storage,
        "snapshot_writes": ways.chosen.write_rate,
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
