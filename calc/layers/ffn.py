"""Feed-forward parts: they keep nothing in the cache; they weigh and they communicate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from calc.layers.base import Part, Width


class DenseFfn(Part):
    """A dense feed-forward block; ``gated`` ones have three matrices, others two."""

    kind: Literal["dense"] = "dense"
    intermediate_size: Width
    gated: bool = True
    bias: bool = False


class MoeFfn(Part):
    """A mixture of experts.

    ``shared_intermediate_size`` is the width of all shared experts together (0:
    none). With ``latent_size`` the routed experts work in that narrower width
    and the shared ones at full hidden size.
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
    groups: int = Field(1, gt=0)
    top_k_groups: int = Field(1, gt=0)


AnyFfn = Annotated[DenseFfn | MoeFfn, Field(discriminator="kind")]
