"""Feed-forward parts: they keep nothing in the cache; they weigh and they communicate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from calc.layers.base import Block, Width
from calc.layers.tensors import Role, Split, Tensor, vector


class DenseFfn(Block):
    """A dense feed-forward block; ``gated`` ones have three matrices, others two.

    ``adapter_rank`` is the low-rank addition that each layer has for itself to
    shared weights, ``exit_projection`` its own square matrix behind them.
    """

    kind: Literal["dense"] = "dense"
    intermediate_size: Width
    gated: bool = True
    bias: bool = False
    adapter_rank: int | None = Field(None, gt=0, le=2**20)
    exit_projection: bool = False

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner = self.intermediate_size
        adapter: tuple[Tensor, ...] = ()
        if self.adapter_rank:
            names = ("gate", "up") if self.gated else ("up",)
            down = Tensor("adapter_in", "dense", self.adapter_rank, hidden_size, shareable=False)
            adapter = (
                down,
                *(
                    Tensor(
                        f"adapter_{name}",
                        "dense",
                        inner,
                        self.adapter_rank,
                        Split.ROWS,
                        shareable=False,
                    )
                    for name in names
                ),
            )
        leaving = Tensor("exit_proj", "dense", hidden_size, hidden_size, shareable=False)
        return (
            *_matrices("dense", inner, hidden_size, self.gated, self.bias),
            *adapter,
            *((leaving,) if self.exit_projection else ()),
        )


class MoeFfn(Block):
    """A mixture of experts.

    ``shared_intermediate_size`` is the width of all shared experts together (0:
    none). With ``latent_size`` the routed experts work in that narrower width
    and the shared ones at full hidden size. ``router_bias`` is the correction
    that only steers the choice of experts; ``latent_norm`` a norm of the latent.
    """

    kind: Literal["moe"] = "moe"
    experts: Annotated[int, Field(gt=0, le=2**16)]
    top_k: Annotated[int, Field(gt=0, le=2**16)]
    intermediate_size: Width
    shared_intermediate_size: int = Field(0, ge=0, le=2**20)
    latent_size: int | None = Field(None, gt=0, le=2**20)
    gated: bool = True
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    latent_norm: bool = False
    groups: int = Field(1, gt=0)
    top_k_groups: int = Field(1, gt=0)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        width = self.latent_size or hidden_size
        made = [Tensor("router", "router", self.experts, hidden_size)]
        if self.bias or self.router_bias:
            made.append(vector("router_bias", "router", self.experts))
        if self.latent_size:
            made.append(Tensor("latent_in", "latent", self.latent_size, hidden_size))
            made.append(Tensor("latent_out", "latent", hidden_size, self.latent_size))
        if self.latent_size and self.latent_norm:
            made.append(vector("latent_norm", "norm", self.latent_size))
        if self.shared_intermediate_size:
            shared = self.shared_intermediate_size
            made += _matrices("shared", shared, hidden_size, self.gated, bias=False)
        if self.shared_gate:
            made.append(Tensor("shared_gate", "router", 1, hidden_size))
        return (
            *made,
            *_experts(
                self.intermediate_size, width, self.gated, self.bias, self.experts, self.top_k
            ),
        )


def _matrices(
    role: Role, inner: int, hidden_size: int, gated: bool, bias: bool
) -> tuple[Tensor, ...]:
    """Up (and gate) to ``inner``, and down again."""
    names = ("gate", "up") if gated else ("up",)
    made = [Tensor(f"{name}_proj", role, inner, hidden_size, Split.ROWS) for name in names]
    made.append(Tensor("down_proj", role, hidden_size, inner, Split.COLUMNS))
    if bias:
        made += [vector(f"{name}_bias", role, inner, Split.ROWS) for name in names]
        made.append(vector("down_bias", role, hidden_size))
    return tuple(made)


def _experts(
    inner: int, width: int, gated: bool, bias: bool, experts: int, used: int
) -> tuple[Tensor, ...]:
    """The same for every expert, spread over the expert-parallel ranks."""

    def tensor(name: str, rows: int, columns: int, split: Split) -> Tensor:
        return Tensor(name, "experts", rows, columns, split, experts, used)

    names = ("gate", "up") if gated else ("up",)
    made = [tensor(f"{name}_proj", inner, width, Split.EXPERT_ROWS) for name in names]
    made.append(tensor("down_proj", width, inner, Split.EXPERT_COLUMNS))
    if bias:
        made += [tensor(f"{name}_bias", inner, 1, Split.EXPERT_ROWS) for name in names]
        made.append(tensor("down_bias", width, 1, Split.EXPERTS))
    return tuple(made)


AnyFfn = Annotated[DenseFfn | MoeFfn, Field(discriminator="kind")]
