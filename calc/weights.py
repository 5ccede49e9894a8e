"""Parameters of a model, and the bytes its weights take on one rank.

Counted: every matrix, norm and bias of the layers, embeddings and head. Not
counted: the second copy of W_UK and W_UV that engines keep for absorbed MLA,
rotary tables, padding of vocabularies and of shards, and redundant experts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from calc.errors import CalcError
from calc.items import Item, formula, total
from calc.layers.base import Block
from calc.layers.tensors import Role, Split, Tensor, vector
from calc.model import Layer, ModelSpec
from calc.units import Number, ceil_div, exact_div
from calc.weight_formats import (
    CHECKPOINT,
    QUANTISED_ROLES,
    STORED_FORMATS,
    WEIGHT_FORMATS,
    WeightFormat,
)

OWN_PART: tuple[Role, ...] = ("experts", "shared", "router", "latent")
"""Roles that are shown apart from the rest of their block."""


class Groups(Protocol):
    """The sizes of the parallel groups (``calc.layout.Layout`` has them)."""

    @property
    def tp(self) -> int: ...

    @property
    def dcp(self) -> int: ...

    @property
    def pp(self) -> int: ...

    @property
    def ep(self) -> int: ...

    @property
    def expert_ranks(self) -> int: ...


@formula(unit="parameters", source="equal layers hold equally many")
def parameters_in_layers(layer_parameters: int, layers: int) -> int:
    """Parameters of a part over all layers that have it."""
    return layer_parameters * layers


@formula(unit="elements", source="a dimension split over ranks; the fullest holds the ceiling")
def share_of(elements: int, shares: int) -> Number:
    """Rows, columns or experts on one rank."""
    return ceil_div(elements, shares)


@formula(unit="B", source="equal layers weigh the same")
def weight_bytes_in_layers(bytes_per_layer: int, layers: int) -> int:
    """Bytes of a part over all layers of a stage that have it."""
    return bytes_per_layer * layers


@dataclass(frozen=True, slots=True)
class WeightPart:
    """Parameters of one part: ``per_layer``, in ``layers`` layers, ``active`` for one token."""

    name: str
    role: Role
    layers: int
    per_layer: Item
    total: Item
    active: Item


@dataclass(frozen=True, slots=True)
class WeightReport:
    """``total`` and ``active`` are the text backbone; ``mtp`` comes on top when it drafts."""

    total: Item
    active: Item
    mtp: Item
    parts: tuple[WeightPart, ...]
    mtp_parts: tuple[WeightPart, ...]


@dataclass(frozen=True, slots=True)
class RankPart:
    """Bytes of one part on a rank; ``replicas`` ranks of the TP group hold these same bytes."""

    name: str
    role: Role
    layers: int
    replicas: int
    tensors: tuple[str, ...]
    format: str
    item: Item


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Bytes on one rank of pipeline stage ``stage``, the fullest of ``stage_bytes``."""

    total: Item
    stage: int
    stage_bytes: tuple[int, ...]
    parts: tuple[RankPart, ...]

    @property
    def replicated(self) -> tuple[RankPart, ...]:
        """The parts that more than one rank of the TP group holds."""
        return tuple(part for part in self.parts if part.replicas > 1)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The tensors of one part, in ``layers`` layers."""

    name: str
    role: Role
    layers: int
    tensors: tuple[Tensor, ...]


def parameters(model: ModelSpec) -> WeightReport:
    """Total and active parameters, part by part; kept with the model."""
    return model.kept("weights.parameters", lambda: _report(model))


def rank_bytes(
    model: ModelSpec,
    groups: Groups,
    weight_format: str = CHECKPOINT,
    query_replicated: bool = False,
    drafting: bool = False,
) -> RankWeights:
    """Bytes of weights on one rank of the fullest pipeline stage.

    Experts are spread over ``ep`` ranks (1: split by width over tp x pcp x dp instead).
    ``drafting`` adds the MTP layers to the last stage.
    """
    if weight_format not in WEIGHT_FORMATS:
        allowed = ", ".join(WEIGHT_FORMATS)
        raise CalcError(
            "not_a_choice", field="weight_format", given=repr(weight_format), allowed=allowed
        )
    sizes = (groups.tp, groups.dcp, groups.pp, groups.ep, groups.expert_ranks, _cut(groups))
    key = ("weights.rank_bytes", *sizes, weight_format, query_replicated, drafting)
    return model.kept(
        key, lambda: _rank_weights(model, groups, weight_format, query_replicated, drafting)
    )


def _report(model: ModelSpec) -> WeightReport:
    embedding, head = _embedding(model), _head(model)
    everything = [*embedding, *_stage_pieces(model, model.layers), *_final(model), *head]
    everything += _extras(model)
    parts = tuple(_part(piece, model) for piece in everything)
    drafts = tuple(_part(piece, model) for piece in _mtp_pieces(model))
    return WeightReport(
        total("parameters", "parameters", [part.total for part in parts]),
        total("active", "parameters", [part.active for part in parts]),
        total("mtp", "parameters", [part.total for part in drafts]),
        parts,
        drafts,
    )


def _part(piece: _Piece, model: ModelSpec) -> WeightPart:
    tensors, name = piece.tensors, piece.name
    one = total(f"{name}.layer", "parameters", [t.parameters(name) for t in tensors])
    working = [t.active_parameters(f"{name}.active") for t in tensors if t.used]
    used = total(f"{name}.active_layer", "parameters", working)

    def in_layers(key: str, per_layer: Item) -> Item:
        return parameters_in_layers.item(key, layer_parameters=per_layer, layers=piece.layers)

    return WeightPart(
        name, piece.role, piece.layers, one, in_layers(name, one), in_layers(f"{name}.used", used)
    )


def _embedding(model: ModelSpec) -> list[_Piece]:
    table = Tensor("table", "embedding", model.vocab_size, model.hidden_size, Split.ROWS)
    return [_Piece("embedding", "embedding", 1, (table,))]


def _head(model: ModelSpec) -> list[_Piece]:
    if model.tied_embeddings:
        return []
    table = Tensor("table", "head", model.vocab_size, model.hidden_size, Split.ROWS)
    return [_Piece("head", "head", 1, (table,))]


def _final(model: ModelSpec) -> list[_Piece]:
    return [_Piece("final_norm", "norm", 1, (vector("final_norm", "norm", model.hidden_size),))]


def _extras(model: ModelSpec) -> list[_Piece]:
    return [
        _Piece(
            f"extra.{name}",
            "extra",
            1,
            (
                Tensor(
                    name,
                    "extra",
                    extra.rows,
                    extra.columns,
                    Split.ROWS if extra.split else Split.REPLICATED,
                    extra.copies,
                    extra.copies if extra.active else 0,
                ),
            ),
        )
        for name, extra in model.extra_weights.items()
    ]


def _mtp_pieces(model: ModelSpec) -> list[_Piece]:
    """The MTP layers; each joins the hidden state and an embedding in a projection of its own."""
    count = sum(layer.count for layer in model.mtp_layers)
    if not count:
        return []
    hidden = model.hidden_size
    joining = (
        Tensor("eh_proj", "extra", hidden, 2 * hidden),
        vector("norms", "norm", 3 * hidden),
    )
    return _renamed(
        [*_stage_pieces(model, model.mtp_layers), _Piece("joining", "extra", count, joining)]
    )


def _renamed(pieces: Iterable[_Piece]) -> list[_Piece]:
    return [_Piece(f"mtp.{p.name}", p.role, p.layers, p.tensors) for p in pieces]


def _stage_pieces(model: ModelSpec, layers: Iterable[Layer]) -> list[_Piece]:
    """The parts of some layers, equal ones counted together, under names of their own."""
    counts: Counter[Block] = Counter()
    norms = 0
    for layer in layers:
        for block in (*layer.mixers, *layer.ffns):
            counts[block] += layer.count
        parts = bool(layer.mixers) + bool(layer.ffns)
        norms += layer.count * (min(parts, 1) if layer.parallel_block else parts)
    pieces = _distinct_names(
        piece for block, count in counts.items() for piece in _block_pieces(model, block, count)
    )
    if norms and model.norms_per_part:
        size = model.hidden_size * model.norms_per_part
        pieces.append(_Piece("norms", "norm", norms, (vector("norm", "norm", size),)))
    return pieces


def _block_pieces(model: ModelSpec, block: Block, count: int) -> Iterator[_Piece]:
    """One block by role; shared weights are there once, however many layers use them."""
    groups: dict[tuple[str, Role, int], list[Tensor]] = {}
    for tensor in block.tensors(model.hidden_size):
        own = tensor.role in OWN_PART
        name = f"{block.kind}.{tensor.role}" if own else block.kind
        shared = block.shared_weights is not None and tensor.shareable
        role = tensor.role if own or tensor.role != "norm" else _main_role(block, model)
        groups.setdefault((name, role, 1 if shared else count), []).append(tensor)
    for (name, role, layers), tensors in groups.items():
        yield _Piece(name, role, layers, tuple(tensors))


def _main_role(block: Block, model: ModelSpec) -> Role:
    """The role of a block's first matrix, under which its inner norms are listed."""
    return block.tensors(model.hidden_size)[0].role


def _distinct_names(pieces: Iterable[_Piece]) -> list[_Piece]:
    seen: Counter[str] = Counter()
    made = []
    for piece in pieces:
        seen[piece.name] += 1
        name = piece.name if seen[piece.name] == 1 else f"{piece.name}_{seen[piece.name]}"
        made.append(_Piece(name, piece.role, piece.layers, piece.tensors))
    return made


# ---------------------------------------------------------------- one rank


def _rank_weights(
    model: ModelSpec, groups: Groups, weight_format: str, query_replicated: bool, drafting: bool
) -> RankWeights:
    place = _Place(model, groups, weight_format, query_replicated)
    stages = _stages(model, groups.pp, _cut(groups), drafting)
    sizes: tuple[int, ...] = ()
    if len(stages) > 1:
        sizes = tuple(sum(place.bytes(piece) for piece in stage) for stage in stages)
    fullest = max(range(len(sizes)), key=sizes.__getitem__, default=0)
    parts = tuple(part for piece in stages[fullest] for part in place.rank_parts(piece))
    whole = total("weights", "B", [part.item for part in parts])
    return RankWeights(whole, fullest, sizes or (int(whole.value),), parts)


def stage_bytes(
    model: ModelSpec,
    groups: Groups,
    weight_format: str = CHECKPOINT,
    query_replicated: bool = False,
    drafting: bool = False,
) -> tuple[int, ...]:
    """``rank_bytes(...).stage_bytes`` without its Items, for searches over many layouts."""
    place = _Place(model, groups, weight_format, query_replicated)
    stages = _stages(model, groups.pp, _cut(groups), drafting)
    sizes = {id(stage): sum(place.bytes(piece) for piece in stage) for stage in stages}
    return tuple(sizes[id(stage)] for stage in stages)


def _cut(groups: Groups) -> tuple[int, ...]:
    """The layers of each pipeline stage, where they are given."""
    given: tuple[int, ...] = getattr(groups, "stage_layers", ())
    return given


def _stages(
    model: ModelSpec, pp: int, layers_each: tuple[int, ...], drafting: bool
) -> list[list[_Piece]]:
    """The pieces of each pipeline stage: embedding on the first, head and MTP on the last.

    A tied embedding is on both ends.
    """

    def cut() -> list[list[_Piece]]:
        cut_layers = model.stages(pp, layers_each)
        pieces = {layers: _stage_pieces(model, layers) for layers in set(cut_layers)}
        stages = [pieces[layers] for layers in cut_layers]
        stages[0] = [*stages[0], *_embedding(model), *_extras(model)]
        tied = _embedding(model) if model.tied_embeddings and pp > 1 else []
        stages[-1] = [*stages[-1], *tied, *_final(model), *_head(model)]
        return stages

    stages = model.kept(("weights.stages", pp, layers_each), cut)
    return [*stages[:-1], stages[-1] + _mtp_pieces(model)] if drafting else stages


@dataclass(frozen=True, slots=True)
class _Place:
    """One rank: how its layout and format divide tensors."""

    model: ModelSpec
    groups: Groups
    weight_format: str
    query_replicated: bool

    def stored(self, tensor: Tensor) -> WeightFormat:
        if tensor.is_vector or tensor.role == "norm":
            return STORED_FORMATS["bf16"]
        if self.weight_format == CHECKPOINT:
            return STORED_FORMATS[self.model.checkpoint.get(tensor.role, "bf16")]
        if tensor.role in QUANTISED_ROLES:
            return STORED_FORMATS[self.weight_format]
        return STORED_FORMATS["bf16"]

    def shares(self, tensor: Tensor) -> tuple[int, int, int]:
        """Into how many shares rows, columns and copies are divided."""
        tp, ep = self.groups.tp, self.groups.ep
        # replicas share the experts: without expert parallelism each one is cut over all ranks
        width = self.groups.expert_ranks // ep
        match tensor.split:
            case Split.ROWS:
                return min(tp, tensor.most_shares), 1, 1
            case Split.COLUMNS:
                return 1, tp, 1
            case Split.QUERY:
                ways = exact_div(tp, self.groups.dcp) if self.query_replicated else tp
                return min(ways, tensor.most_shares), 1, 1
            case Split.EXPERT_ROWS:
                return width, 1, ep
            case Split.EXPERT_COLUMNS:
                return 1, width, ep
            case Split.EXPERTS:
                return 1, 1, ep
            case _:
                return 1, 1, 1

    def replicas(self, tensor: Tensor) -> int:
        """Ranks of the TP group that hold the same share."""
        rows, columns, copies = self.shares(tensor)
        return max(1, self.groups.tp // (rows * columns * copies))

    def bytes(self, piece: _Piece) -> int:
        """Bytes of a piece, without Items (for the choice of the fullest stage)."""
        weight = 0
        for tensor in piece.tensors:
            rows, columns, copies = self.shares(tensor)
            weight += self.stored(tensor).bytes(
                ceil_div(_size(tensor.rows), rows),
                ceil_div(_size(tensor.columns), columns),
                ceil_div(tensor.copies, copies),
            )
        return weight * piece.layers

    def rank_parts(self, piece: _Piece) -> Iterator[RankPart]:
        """A piece as Items, apart by the number of ranks that hold the same bytes."""
        apart: dict[int, list[Tensor]] = {}
        for tensor in piece.tensors:
            apart.setdefault(self.replicas(tensor), []).append(tensor)
        for replicas, tensors in apart.items():
            name = piece.name if len(apart) == 1 else f"{piece.name}.x{replicas}"
            held = [self._tensor_item(f"{name}.{tensor.name}", tensor) for tensor in tensors]
            item = weight_bytes_in_layers.item(
                f"weights.{name}",
                bytes_per_layer=total(f"{name}.layer", "B", held),
                layers=piece.layers,
            )
            names = tuple(tensor.name for tensor in tensors)
            main = self.stored(tensors[0]).id
            yield RankPart(name, piece.role, piece.layers, replicas, names, main, item)

    def _tensor_item(self, key: str, tensor: Tensor) -> Item:
        rows, columns, copies = self.shares(tensor)
        return self.stored(tensor).item(
            key,
            rows=_share(f"{key}.rows", tensor.rows, rows),
            columns=_share(f"{key}.columns", tensor.columns, columns),
            copies=_share(f"{key}.copies", tensor.copies, copies),
        )


def _share(key: str, elements: int | Item, shares: int) -> int | Item:
    return elements if shares == 1 else share_of.item(key, elements=elements, shares=shares)


def _size(elements: int | Item) -> int:
    return int(elements.value) if isinstance(elements, Item) else elements
