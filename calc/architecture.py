"""A model layer by layer: its kinds, what each keeps and weighs, and in which formats it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from calc.engine_cache import place_of
from calc.engines import ENGINES
from calc.errors import CalcError
from calc.formats import KV_FORMATS, scales_of
from calc.items import Item, total
from calc.layers import Growth, Mixer, Sharding, StateMixer, Store
from calc.layers.base import Block
from calc.model import ModelSpec
from calc.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Cell:
    """One layer: its mixers and feed-forward parts as indices into the distinct ones."""

    number: int  # from 1
    stage: int  # from 0
    mixers: int
    ffns: int


@dataclass(frozen=True, slots=True)
class LayerMap:
    """All layers in order; equal mixers (shared weights apart) have one index."""

    cells: tuple[Cell, ...]
    mixers: tuple[tuple[Block, ...], ...]
    ffns: tuple[tuple[Block, ...], ...]


def layer_map(model: ModelSpec, stage_sizes: tuple[int, ...]) -> LayerMap:
    """Every layer with its kind and its pipeline stage."""
    mixers: dict[tuple[Block, ...], int] = {}
    ffns: dict[tuple[Block, ...], int] = {}
    stages = [stage for stage, size in enumerate(stage_sizes) for _ in range(size)]
    cells: list[Cell] = []
    for layer in model.layers:
        mixed = mixers.setdefault(_own(layer.mixers), len(mixers))
        fed = ffns.setdefault(_own(layer.ffns), len(ffns))
        for _ in range(layer.count):
            number = len(cells)
            cells.append(Cell(number + 1, stages[number], mixed, fed))
    return LayerMap(tuple(cells), tuple(mixers), tuple(ffns))


def _own(parts: tuple[Block, ...]) -> tuple[Block, ...]:
    """Parts without the name under which they share weights."""
    return tuple(
        part.model_copy(update={"shared_weights": None}) if part.shared_weights else part
        for part in parts
    )


@dataclass(frozen=True, slots=True)
class KindRow:
    """One distinct part: in how many layers, what one layer keeps whole and here, what it weighs.

    ``whole`` are stores of one rank alone (tp 1), ``here`` those of a rank of the
    scenario; ``parameters`` are of one layer, ``active`` those that work on a token.
    """

    part: Block
    layers: int
    whole: tuple[Store, ...]
    here: tuple[Store, ...]
    parameters: Item
    active: Item


def kind_rows(scenario: Scenario) -> tuple[KindRow, ...]:
    """The distinct mixers, then the feed-forward parts, of a scenario's model."""
    model, place = scenario.model_spec, place_of(scenario)
    alone = replace(place, tp=1, dcp=1)
    counts: dict[Block, int] = {}
    for layer in model.layers:
        for part in _own(layer.mixers):
            counts[part] = counts.get(part, 0) + layer.count
    for layer in model.layers:
        for part in _own(layer.ffns):
            counts[part] = counts.get(part, 0) + layer.count
    return tuple(_row(model, part, count, alone, place) for part, count in counts.items())


def _row(model: ModelSpec, part: Block, layers: int, alone: Sharding, place: Sharding) -> KindRow:
    tensors = part.tensors(model.hidden_size)
    name = part.kind
    return KindRow(
        part,
        layers,
        part.stores(alone) if isinstance(part, Mixer) else (),
        part.stores(place) if isinstance(part, Mixer) else (),
        total(f"{name}.layer", "parameters", [each.parameters(name) for each in tensors]),
        total(
            f"{name}.active_layer",
            "parameters",
            [each.active_parameters(f"{name}.active") for each in tensors if each.used],
        ),
    )


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One KV format: growing bytes of a token over all layers at tp 1, or why it cannot be.

    ``rows`` are one layer's rows of the distinct mixers, ``scales`` their scale bytes;
    ``kinds`` and ``names`` say which store of which layer kind each is.
    """

    id: str
    granularity: str
    rows: tuple[Item, ...]
    scales: tuple[Item | None, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...] = ()
    refusal: CalcError | None = None


def format_rows(scenario: Scenario) -> tuple[FormatRow, ...]:
    """Every KV format for the token rows of a model, one layer of each kind on one rank alone."""
    alone = replace(place_of(scenario), tp=1, dcp=1)
    mixers = [mixer for mixer in scenario.model_spec.mixers if not isinstance(mixer, StateMixer)]
    return tuple(_format_row(name, mixers, alone) for name in KV_FORMATS)


def _format_row(name: str, mixers: list[Mixer], alone: Sharding) -> FormatRow:
    chosen = KV_FORMATS[name]
    place = replace(alone, kv_format=chosen)
    try:
        found = list(dict(_rows(mixers, place)).values())
    except CalcError as error:
        return FormatRow(name, chosen.scales, (), (), (), refusal=error)
    rows = tuple(store.bytes for store in found)
    return FormatRow(
        name,
        chosen.scales,
        rows,
        tuple(scales_of(row) for row in rows),
        tuple(store.kind for store in found),
        tuple(store.name for store in found),
    )


def _rows(mixers: list[Mixer], place: Sharding) -> Iterator[tuple[tuple[str, int], Store]]:
    """Rows that differ in kind or size."""
    for mixer in mixers:
        for store in mixer.stores(place):
            if store.growth is not Growth.STATE:
                yield (store.kind, int(store.bytes.value)), store


@dataclass(frozen=True, slots=True)
class StateRow:
    """Dtypes of one state kind: (convolution, recurrent) of each engine by default, and in use."""

    kind: str
    defaults: dict[str, tuple[str, str]]
    used: tuple[str, str]
    from_model: bool


def state_rows(scenario: Scenario) -> tuple[StateRow, ...]:
    """The state kinds of a model with the dtypes that engines keep them in."""
    found: dict[str, StateRow] = {}
    for mixer in scenario.model_spec.mixers:
        if isinstance(mixer, StateMixer):
            found[mixer.kind] = StateRow(
                mixer.kind,
                {
                    engine.id: engine.state_dtypes(mixer, "auto", "auto")
                    for engine in ENGINES.values()
                },
                scenario.engine_rules.state_dtypes(
                    mixer, scenario.conv_dtype, scenario.state_dtype
                ),
                mixer.state_dtype is not None,
            )
    return tuple(found.values())
