"""The parallel layout: how ranks divide a model, what is legal, and what would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calc.errors import CalcError
from calc.layers import Attention, Growth, Mixer

if TYPE_CHECKING:
    from calc.engines import Engine
    from calc.model import ModelSpec

MAX_SIZE = 1024
"""The largest group size that is tried when a message lists what would be legal."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the parallel groups.

    ``dcp`` ranks lie inside a tp group; a *replica* is tp x pp ranks and serves
    its own requests; ``dp`` replicas make the deployment.
    """

    tp: int = 1
    dcp: int = 1
    dp: int = 1
    pp: int = 1

    @property
    def replica_ranks(self) -> int:
        return self.tp * self.pp

    @property
    def world_size(self) -> int:
        return self.tp * self.dp * self.pp


def check_layout(model: ModelSpec, layout: Layout, engine: Engine) -> None:
    """Raise CalcError with the broken rule and the values that would do."""
    for mixer in model.mixers:
        _check_tp(mixer, layout.tp, model)
    if layout.tp % layout.dcp:
        raise CalcError(
            "dcp_divides_tp", dcp=layout.dcp, tp=layout.tp, allowed=_listed(_divisors(layout.tp))
        )
    if layout.dcp > 1:
        _check_dcp(model, layout, engine)
    if layout.pp > model.layer_count:
        raise CalcError("pp_layers", pp=layout.pp, layers=model.layer_count)


def legal_tp(model: ModelSpec) -> Iterator[int]:
    """The tp sizes that every layer of the model allows."""
    for tp in range(1, MAX_SIZE + 1):
        try:
            for mixer in model.mixers:
                _check_tp(mixer, tp, None)
        except CalcError:
            continue
        yield tp


def legal_dcp(model: ModelSpec, tp: int, engine: Engine) -> list[int]:
    """The dcp sizes that divide tp and that every layer allows on this engine."""
    values = []
    for dcp in _divisors(tp):
        try:
            check_layout(model, Layout(tp=tp, dcp=dcp), engine)
        except CalcError:
            continue
        values.append(dcp)
    return values


def _check_tp(mixer: Mixer, tp: int, model: ModelSpec | None) -> None:
    """``model`` is named only to list the legal sizes."""
    for what, count in mixer.split_counts().items():
        if count % tp:
            allowed = _listed(legal_tp(model)) if model else ""
            raise CalcError(
                "tp_heads", tp=tp, heads=count, what=what, kind=mixer.kind, allowed=allowed
            )
    if isinstance(mixer, Attention) and tp % mixer.kv_heads and mixer.kv_heads % tp:
        allowed = _listed(legal_tp(model)) if model else ""
        raise CalcError("tp_kv_heads", tp=tp, kv_heads=mixer.kv_heads, allowed=allowed)


def _check_dcp(model: ModelSpec, layout: Layout, engine: Engine) -> None:
    attentions = [mixer for mixer in model.mixers if isinstance(mixer, Attention)]
    if not attentions and not model.latent_mixers:
        raise CalcError("dcp_nothing")
    for mixer in attentions:
        if mixer.growth is not Growth.GROWING:
            raise CalcError("dcp_kind", engine=engine.name, kind=mixer.kind)
    for mixer in attentions:
        legal = engine.dcp_values(mixer, layout.tp)
        if layout.dcp not in legal:
            raise CalcError(
                "dcp_kv_heads",
                dcp=layout.dcp,
                tp=layout.tp,
                heads=mixer.heads,
                kv_heads=mixer.kv_heads,
                engine=engine.name,
                rule=engine.dcp_rule,
                allowed=_listed([1, *legal]),
            )


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]


def _listed(values: Iterator[int] | list[int]) -> str:
    return ", ".join(str(value) for value in values)
