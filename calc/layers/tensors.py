"""Weight tensors: what a layer part is made of, and how a layout divides each of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from calc.items import Item, formula
from calc.units import Number

Role = Literal[
    "attention",
    "state",
    "indexer",
    "dense",
    "shared",
    "experts",
    "latent",
    "router",
    "norm",
    "embedding",
    "head",
    "extra",
]
"""What a tensor is for; checkpoints are quantised role by role."""


class Split(StrEnum):
    """Which ranks hold a share of a tensor instead of the whole of it."""

    REPLICATED = "replicated"  # whole on every rank
    ROWS = "rows"  # output width over tp
    COLUMNS = "columns"  # input width over tp
    QUERY = "query"  # as rows; over tp / dcp where queries are replicated in a DCP group
    EXPERT_ROWS = "expert_rows"  # experts over ep, the output width over what is left
    EXPERT_COLUMNS = "expert_columns"  # experts over ep, the input width over what is left
    EXPERTS = "experts"  # experts over ep, each one whole


@formula(unit="elements", source="one block of rows for each head")
def head_rows(heads: int, head_dim: int) -> int:
    """Output width of a projection that serves several heads."""
    return heads * head_dim


@formula(unit="parameters", source="a linear layer stores one weight for each input and output")
def tensor_parameters(rows: int, columns: int, copies: int) -> Number:
    """Parameters of ``copies`` equal matrices (a vector has one column)."""
    return rows * columns * copies


@dataclass(frozen=True, slots=True)
class Tensor:
    """``copies`` equal matrices of a layer part: rows (output) x columns (input).

    ``used`` copies work on one token. ``most_shares`` is how many different
    shares there are: beyond them a share is held by several ranks (the KV heads
    of grouped attention, the groups of Mamba-2).
    """

    name: str
    role: Role
    rows: int | Item
    columns: int | Item
    split: Split = Split.REPLICATED
    copies: int = 1
    used: int = 1
    most_shares: int = 2**20
    shareable: bool = True
    """Whether layers with shared weights share this tensor too (adapters are their own)."""

    @property
    def is_vector(self) -> bool:
        """Vectors (norms, biases) stay in 16 bits in every checkpoint."""
        return self.columns == 1

    def parameters(self, prefix: str) -> Item:
        """All its parameters."""
        return self._counted(prefix, self.copies)

    def active_parameters(self, prefix: str) -> Item:
        """The parameters that work on one token."""
        return self._counted(prefix, self.used)

    def _counted(self, prefix: str, copies: int) -> Item:
        return tensor_parameters.item(
            f"{prefix}.{self.name}", rows=self.rows, columns=self.columns, copies=copies
        )


def vector(name: str, role: Role, size: int | Item, split: Split = Split.REPLICATED) -> Tensor:
    """A norm's weights, a bias, or a similar list of numbers."""
    return Tensor(name, role, size, 1, split)


def by_heads(name: str, heads: int, width: int) -> Item:
    """The output width of a projection over heads, as an Item that keeps both factors."""
    return head_rows.item(f"{name}.rows", heads=heads, head_dim=width)
