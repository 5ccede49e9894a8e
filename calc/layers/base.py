"""What every layer kind says about itself: the stores it keeps on one rank."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from calc.items import Formula, Item, formula
from calc.layers.tensors import Tensor
from calc.units import Number, ceil_div, lesser, ratio

if TYPE_CHECKING:
    from calc.engines.base import Engine
    from calc.formats import KvFormat

Width = Annotated[int, Field(gt=0, le=2**20)]
Heads = Annotated[int, Field(gt=0, le=2**14)]
Tokens = Annotated[int, Field(gt=0, le=2**30)]


class Part(BaseModel):
    """A piece of a layer, read strictly: no unknown fields, no strings for numbers.

    Its validator is built at first use: most kinds are only ever read as part of a model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Growth(StrEnum):
    """How a store grows with the request; also what a prefix hit needs of it."""

    GROWING = "growing"  # one row a token; a hit needs every row from token 0 on
    WINDOW = "window"  # the last w rows; a hit needs the last w - 1 before the boundary
    CHUNK = "chunk"  # rows of the current chunk; a hit needs those from the chunk's start
    STATE = "state"  # fixed size; a hit needs a snapshot exactly at the boundary


AMPERE, HOPPER, BLACKWELL, BLACKWELL_PRO = 8, 9, 10, 12
"""CUDA capabilities without their fractions."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """One rank's place: how the layout, engine and formats divide what a layer keeps.

    ``conv_drafts``: draft tokens by which the engine widens convolution windows.
    ``drafting``: the model's MTP layers run and keep a cache of their own.
    ``cuda``: the GPU's CUDA capability without its fraction, on which the choice
    of kernels depends; Hopper's where no GPU is named, 0 on one without CUDA.
    """

    tp: int
    dcp: int
    engine: Engine
    kv_format: KvFormat
    conv_dtype: str = "auto"
    state_dtype: str = "auto"
    conv_drafts: int = 0
    drafting: bool = False
    cuda: int = HOPPER

    def of_drafts(self) -> Sharding:
        """The place of the MTP layers on the same rank."""
        return self if self.engine.stripes_drafts else replace(self, dcp=1)


@dataclass(frozen=True, slots=True)
class Store:
    """Something one layer keeps on one rank.

    ``bytes`` is one token's row (growing, window, chunk) or one request's
    state; ``limit`` the window or chunk in tokens; ``dcp`` the ranks over which
    the token axis is striped (1: each rank holds every token); ``copies`` the
    ranks of one TP group that hold these same bytes; ``tokens_per_row`` how many
    tokens a row stands for (compressed caches, which are never striped).
    """

    name: str
    kind: str
    growth: Growth
    bytes: Item
    limit: int = 0
    dcp: int = 1
    copies: int = 1
    tokens_per_row: int = 1

    def rows(self, context: int) -> int:
        """Rows of one request that a store without stripes holds."""
        if self.growth is Growth.GROWING:
            return context // self.tokens_per_row
        return min(context, self.limit)

    def per_token(self, layers: int) -> Item:
        """Bytes that one more token of a request adds on a rank over ``layers`` layers.

        For a window or a chunk this is the slope until it is full; a state has none.
        """
        key = f"{self.kind}.{self.name}.per_token"
        if self.tokens_per_row > 1:
            return compressed_per_token.item(
                key, row_bytes=self.bytes, layers=layers, compress_ratio=self.tokens_per_row
            )
        return growing_per_token.item(key, row_bytes=self.bytes, layers=layers, dcp=self.dcp)

    def per_request(self, layers: int, context: Number) -> Item:
        """Bytes of one request of ``context`` tokens on the fullest rank."""
        rule, arguments = self._request_rule(layers, context)
        return rule.item(f"{self.kind}.{self.name}.request", **arguments)

    def request_bytes(self, layers: int, context: Number) -> Number:
        """The value of ``per_request`` alone, for searches."""
        rule, arguments = self._request_rule(layers, context)
        return rule.value(**arguments)

    def _request_rule(
        self, layers: int, context: Number
    ) -> tuple[Formula[..., Number], dict[str, Number | Item]]:
        common = {"row_bytes": self.bytes, "layers": layers}
        match self.growth:
            case Growth.STATE:
                return state_per_request, {"bytes_per_layer": self.bytes, "layers": layers}
            case Growth.GROWING if self.tokens_per_row > 1:
                grouped = {"context": context, "compress_ratio": self.tokens_per_row}
                return compressed_per_request, common | grouped
            case Growth.GROWING:
                return growing_per_request, common | {"context": context, "dcp": self.dcp}
            case Growth.WINDOW:
                return window_per_request, common | {"context": context, "window": self.limit}
            case Growth.CHUNK:
                return chunk_per_request, common | {"context": context, "chunk": self.limit}


@formula(unit="B/token", source="one row a token, striped over dcp ranks")
def growing_per_token(row_bytes: int, layers: int, dcp: int) -> Number:
    """Bytes on one rank per token of one request; a fraction when a stripe is shared."""
    return ratio(row_bytes * layers, dcp)


@formula(unit="B", source="token i lies on rank i mod dcp; the fullest rank holds ceil(S/dcp)")
def growing_per_request(row_bytes: int, layers: int, context: Number, dcp: int) -> Number:
    """Rows of one request on the fullest rank."""
    return row_bytes * layers * ceil_div(context, dcp)


@formula(unit="B/token", source="one row for several tokens, on average")
def compressed_per_token(row_bytes: int, layers: int, compress_ratio: int) -> Number:
    """Bytes on one rank per token of one request, where a row stands for several tokens."""
    return ratio(row_bytes * layers, compress_ratio)


@formula(unit="B", source="a row is written when its group of tokens is complete")
def compressed_per_request(
    row_bytes: int, layers: int, context: Number, compress_ratio: int
) -> Number:
    """Rows of one request, one for each complete group of tokens."""
    return row_bytes * layers * (context // compress_ratio)


@formula(unit="B", source="a window keeps the last w tokens")
def window_per_request(row_bytes: int, layers: int, context: Number, window: int) -> Number:
    """Rows of one request in sliding-window layers."""
    return row_bytes * layers * lesser(context, window)


@formula(unit="B", source="the fullest moment of a chunk: min(S, c) tokens")
def chunk_per_request(row_bytes: int, layers: int, context: Number, chunk: int) -> Number:
    """Rows of one request in chunked-attention layers, at their peak."""
    return row_bytes * layers * lesser(context, chunk)


@formula(unit="B", source="a state does not depend on the context")
def state_per_request(bytes_per_layer: int, layers: int) -> Number:
    """States of one request."""
    return bytes_per_layer * layers


class Block(Part):
    """A part that has weights.

    Parts with equal ``shared_weights`` use one set of weights in several layers;
    it is counted once (Zamba2's shared transformer blocks).
    """

    kind: str
    shared_weights: str | None = Field(None, min_length=1, max_length=32)

    @model_serializer(mode="wrap")
    def _keep_kind(self, others: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A part without its kind cannot be read back, even where defaults are left out."""
        return {"kind": self.kind, **others(self)}

    @abstractmethod
    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """The weights of one such part; norms of hidden width belong to the layer."""


class Mixer(Block):
    """A token mixer: attention or a recurrence. Subclasses set ``kind`` and widths."""

    projects_output: ClassVar[bool] = True
    """Whether the mixer ends in an output projection of its own, summed over TP."""

    def least_block(self, place: Sharding) -> int:
        """Tokens of a block (vLLM) or page (SGLang) that the layer's kernels ask for; 0: any."""
        return 0

    @abstractmethod
    def stores(self, place: Sharding) -> tuple[Store, ...]:
        """What one layer keeps on one rank."""

    @abstractmethod
    def split_counts(self) -> dict[str, int]:
        """Counts that tp must divide, by the name used in messages."""

    def replicable_counts(self) -> dict[str, int]:
        """Counts that tp must divide or be a multiple of, by the name used in messages."""
        return {}
