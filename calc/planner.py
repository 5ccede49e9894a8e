"""Which layout should I run? All legal ones for a number of GPUs, ranked by an objective.

A row is a whole Scenario with the figures that rank it. The figures are those of
``evaluate`` and ``times``: the same functions compute them, but what does not
change from one layout to the next is worked out once (``calc.row_figures``).

>>> from calc.scenario import Scenario
>>> found = plan(Scenario("deepseek-v3", gpu="h200", batch=64, context=32768), gpus=16)
>>> best = found.rows[0]
>>> best.scenario.layout.world_size, best.figures.fits
(16, True)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.engines import ENGINES, Engine
from calc.errors import CalcError, shown
from calc.fields import WholeField
from calc.formats import KV_FORMATS
from calc.hardware import hardware_ids
from calc.launch import KV_FLAGS
from calc.layout import Layout, corrupted, legal_dcp, legal_ep, legal_tp
from calc.model import ModelSpec
from calc.plan_inputs import OBJECTIVES, Objective
from calc.row_figures import Figures, Pieces
from calc.scenario import FIELDS, Scenario
from calc.units import ceil_div

TIMED: tuple[Objective, ...] = ("step", "user_rate", "gpu_rate")
"""Objectives that need a GPU with known rates."""
MAX_ROWS = 20_000
"""Layouts of one plan."""
GPUS = WholeField("gpus", 8, 1, 4096)
CONCURRENCY = WholeField("concurrency", 1, 1, 2**30)
UNLIMITED = 2**62
_BATCH = FIELDS["batch"]
assert isinstance(_BATCH, WholeField)
MOST_BATCH = _BATCH.maximum


@dataclass(frozen=True, slots=True)
class Limits:
    """What a row must keep to; None where nothing is asked."""

    step_us: float | None = None
    sent_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One layout. ``lacks``: what it is short of (memory, step, traffic) and by how much."""

    scenario: Scenario
    figures: Figures
    lacks: tuple[tuple[str, float], ...]
    front: bool = False

    @property
    def gpus(self) -> int:
        return self.scenario.layout.world_size

    @property
    def concurrency(self) -> int:
        """Requests of the whole deployment that its cache holds at this context."""
        return self.figures.max_requests * self.scenario.dp


@dataclass(frozen=True, slots=True)
class Plan:
    """All rows, best first; those that lack something last, the nearest of them first."""

    objective: Objective
    rows: tuple[Row, ...]
    unavailable: tuple[CalcError, ...]
    """Why whole choices (a format, an engine) gave no row."""

    @property
    def winner(self) -> Row | None:
        """The best row that lacks nothing."""
        return self.rows[0] if self.rows and not self.rows[0].lacks else None

    @property
    def nearest(self) -> Row | None:
        """Where nothing fits: the row that lacks least."""
        return self.rows[0] if self.rows and self.rows[0].lacks else None


def plan(
    base: Scenario,
    gpus: int,
    objective: Objective = "concurrency",
    *,
    engines: Sequence[str] = (),
    backends: Sequence[str] = ("auto",),
    kv_dtypes: Sequence[str] = (),
    replications: Sequence[str] = ("auto",),
    concurrency: int | None = None,
    limits: Limits = Limits(),
    progress: Callable[[float], None] | None = None,
) -> Plan:
    """All legal (tp, dcp, dp, pp, ep) for ``gpus`` GPUs, and of each choice given beside.

    ``base`` says everything else: model, GPU, context, batch (of a replica),
    mix of lengths. ``concurrency``: requests of the whole deployment, from which
    each row's batch follows. No ``engines`` or ``kv_dtypes``: those of ``base``;
    a choice named "all" stands for all of them. The objective "gpus" also
    tries every divisor of ``gpus``.
    """
    _check(base, gpus, objective, concurrency, limits)
    refused: dict[str, CalcError] = {}
    ways = []
    for way in _ways(base, engines, backends, kv_dtypes, replications):
        if way.kv_dtype in KV_FLAGS[way.engine]:
            ways.append(way)
            continue
        taken = ", ".join(KV_FLAGS[way.engine])
        error = CalcError("plan_format", given=way.kv_dtype, engine=way.engine, allowed=taken)
        refused.setdefault(str(error), error)
    if not ways:
        raise next(iter(refused.values()), CalcError("plan_empty"))
    worlds = [n for n in range(1, gpus + 1) if gpus % n == 0] if objective == "gpus" else [gpus]
    timed = base.gpu in hardware_ids()
    pieces = Pieces(timed)
    rows: list[Row] = []
    for done, way in enumerate(ways):
        for scenario in _layouts(way, worlds, concurrency):
            if len(rows) >= MAX_ROWS:
                raise CalcError("plan_too_large", maximum=MAX_ROWS)
            try:
                figures = pieces.figures(scenario)
            except CalcError as error:
                refused.setdefault(f"{error.code} {error}", error)
                continue
            rows.append(Row(scenario, figures, _lacks(figures, limits)))
        if progress is not None:
            progress((done + 1) / len(ways))
    if not rows:  # TP 1 is always legal, so some choice cannot be, or no replica takes so many
        most = MOST_BATCH * max(worlds)
        crowd = CalcError("out_of_range", "concurrency", given=concurrency, minimum=1, maximum=most)
        raise next(iter(refused.values()), crowd)
    return Plan(objective, tuple(_ranked(_fronted(rows), objective)), tuple(refused.values()))


def _check(
    base: Scenario, gpus: int, objective: str, concurrency: int | None, limits: Limits
) -> None:
    GPUS.check(gpus)
    if concurrency is not None:
        CONCURRENCY.check(concurrency)
    if objective not in OBJECTIVES:
        raise CalcError(
            "not_a_choice", "objective", given=shown(objective), allowed=", ".join(OBJECTIVES)
        )
    needs_time = objective in TIMED or limits.step_us is not None
    if needs_time and base.gpu not in hardware_ids():
        raise CalcError("timing_gpu", given=base.gpu, allowed=", ".join(hardware_ids()))


def _ways(
    base: Scenario,
    engines: Sequence[str],
    backends: Sequence[str],
    kv_dtypes: Sequence[str],
    replications: Sequence[str],
) -> Iterator[Scenario]:
    """Engine, backend, format and query replication; a backend counts where its engine has it."""
    for engine in _all(engines, ENGINES) or (base.engine,):
        own = tuple(ENGINES[engine].backends) if engine in ENGINES else ()
        for backend in _all(backends, own):
            if engine in ENGINES and backend not in ("auto", *own):
                continue
            for kv_dtype in _all(kv_dtypes, KV_FORMATS) or (base.kv_dtype,):
                for replication in _all(replications, ("off", "on")):
                    yield replace(
                        base,
                        engine=engine,
                        dcp_backend=backend,
                        kv_dtype=kv_dtype,
                        query_replication=replication,
                        pcp=1,
                        pp_layers="even",
                    )


def _all(named: Sequence[str], every: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(named))
    return list(every) if chosen == ["all"] else chosen


def _layouts(way: Scenario, worlds: Sequence[int], concurrency: int | None) -> Iterator[Scenario]:
    """The legal layouts of one way; choices that only matter under dcp appear once without it."""
    model, engine = way.model_spec, way.engine_rules
    every = list(ENGINES[way.engine].backends)
    once = way.dcp_backend in ("auto", every[0]) and way.query_replication in ("auto", "off")
    sizes = [(tp, _sound_dcp(model, tp, engine)) for tp in legal_tp(model) if tp <= max(worlds)]
    for world in worlds:
        for tp, stripes in sizes:
            for pp in range(1, min(model.layer_count, world // tp) + 1):
                if world % (tp * pp):
                    continue
                dp = world // (tp * pp)
                fields: dict[str, Any] = {"tp": tp, "pp": pp, "dp": dp}
                if concurrency is not None:
                    fields["batch"] = int(ceil_div(concurrency, dp))
                    if fields["batch"] > MOST_BATCH:
                        continue
                sharing = legal_ep(model, Layout(tp=tp, pp=pp, dp=dp)) if model.moe_ffns else [1]
                for ep, dcp in itertools.product(sharing, stripes):
                    fields |= {"dcp": dcp, "ep": "on" if ep > 1 else "off"}
                    if dcp > 1:
                        yield replace(way, **fields)
                    elif once:
                        yield replace(way, **fields, dcp_backend="auto", query_replication="auto")


def _sound_dcp(model: ModelSpec, tp: int, engine: Engine) -> list[int]:
    return [dcp for dcp in legal_dcp(model, tp, engine) if not corrupted(model, tp, dcp, engine)]


def _lacks(figures: Figures, limits: Limits) -> tuple[tuple[str, float], ...]:
    found: list[tuple[str, float]] = []
    if not figures.fits:
        found.append(("memory", figures.short_bytes))
    if limits.step_us is not None and _time(figures) > limits.step_us:
        found.append(("step", _time(figures) - limits.step_us))
    if limits.sent_bytes is not None and figures.sent_bytes > limits.sent_bytes:
        found.append(("traffic", figures.sent_bytes - limits.sent_bytes))
    return tuple(found)


def _time(figures: Figures) -> float:
    """A step's time; a step that cannot be timed is longer than any."""
    return math.inf if figures.step_us is None else figures.step_us


def merit(row: Row, objective: Objective) -> float:
    """How good a row is by an objective: more is better."""
    figures = row.figures
    match objective:
        case "concurrency":
            return row.concurrency
        case "context":
            return UNLIMITED if figures.max_context is None else figures.max_context
        case "traffic":
            return -figures.sent_bytes
        case "step":
            return -_time(figures)
        case "user_rate":
            return figures.user_rate or 0
        case "gpu_rate":
            return figures.gpu_rate or 0
        case "gpus":
            return -row.gpus


def _ranked(rows: Sequence[Row], objective: Objective) -> list[Row]:
    """Best first; ties go to the shorter step, less traffic, then the simpler layout."""

    def order(row: Row) -> tuple[Any, ...]:
        made, figures = row.scenario, row.figures
        simple = (made.dcp, made.pp, made.tp, made.ep, made.engine, made.kv_dtype)
        if row.lacks:
            amounts = dict(row.lacks)
            away = tuple(amounts.get(what, 0) for what in ("memory", "step", "traffic"))
            return (1, *away, figures.sent_bytes, *simple)
        return (0, -merit(row, objective), _time(figures), figures.sent_bytes, *simple)

    return sorted(rows, key=order)


def _fronted(rows: Sequence[Row]) -> list[Row]:
    """Rows with the Pareto front marked: no other has more requests, a shorter step, fewer bytes
    sent and fewer GPUs at once."""

    def point(row: Row) -> tuple[float, float, float, float]:
        figures = row.figures
        return (-row.concurrency, _time(figures), figures.sent_bytes, row.gpus)

    front: list[tuple[float, float, float, float]] = []
    marked: set[int] = set()
    fitting = [place for place, row in enumerate(rows) if not row.lacks]
    for place in sorted(fitting, key=lambda place: point(rows[place])):
        own = point(rows[place])
        _, b, c, d = own  # none before it in this order has fewer requests
        if own in front or not any(y <= b and z <= c and w <= d for _, y, z, w in front):
            front.append(own)
            marked.add(place)
    return [replace(row, front=True) if at in marked else row for at, row in enumerate(rows)]
