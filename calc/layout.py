"""The parallel layout: how ranks divide a model, what is legal, and what would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calc.errors import CalcError
from calc.layers import Attention, Growth

if TYPE_CHECKING:
    from calc.engines import Engine
    from calc.model import ModelSpec

MAX_SIZE = 1024
"""The largest group size that is tried when a message lists what would be legal."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the parallel groups.

    ``dcp`` ranks lie inside a tp group; ``pcp`` groups split the tokens of a
    step; a *replica* is tp x pcp x pp ranks and serves its own requests; ``dp``
    replicas make the deployment. ``ep`` ranks share the experts: 1, or all the
    tp x pcp x dp ranks of a pipeline stage. ``stage_layers`` are the layers of
    each pipeline stage where they are given (else they are as equal as can be).
    """

    tp: int = 1
    dcp: int = 1
    dp: int = 1
    pp: int = 1
    pcp: int = 1
    ep: int = 1
    stage_layers: tuple[int, ...] = ()

    @property
    def replica_ranks(self) -> int:
        return self.tp * self.pcp * self.pp

    @property
    def world_size(self) -> int:
        return self.tp * self.pcp * self.dp * self.pp

    @property
    def expert_ranks(self) -> int:
        """The ranks of one pipeline stage, over which the experts can be spread."""
        return self.tp * self.pcp * self.dp


def check_layout(model: ModelSpec, layout: Layout, engine: Engine) -> None:
    """Raise CalcError with the broken rule and the values that would do."""
    fault = _tp_fault(model, layout.tp)
    if fault:
        raise CalcError(fault.code, **fault.values, allowed=_listed(legal_tp(model)))
    fault = _dcp_fault(model, layout.tp, layout.dcp, engine)
    if fault:
        allowed = _listed(legal_dcp(model, layout.tp, engine))
        raise CalcError(fault.code, **fault.values, allowed=allowed)
    if layout.pcp > 1:
        _check_pcp(model, layout, engine)
    if layout.ep > 1:
        _check_ep(model, layout)
    if layout.pp > model.layer_count:
        raise CalcError("pp_layers", pp=layout.pp, layers=model.layer_count)
    given = layout.stage_layers
    if given and (len(given) != layout.pp or sum(given) != model.layer_count):
        raise CalcError(
            "pp_cut", stages=len(given), total=sum(given), pp=layout.pp, layers=model.layer_count
        )


def legal_tp(model: ModelSpec) -> list[int]:
    """The tp sizes up to MAX_SIZE that every layer of the model allows."""
    return [tp for tp in range(1, MAX_SIZE + 1) if _tp_fault(model, tp) is None]


def legal_dcp(model: ModelSpec, tp: int, engine: Engine) -> list[int]:
    """The dcp sizes that every layer allows on this engine, for a legal tp."""
    return [dcp for dcp in range(1, tp + 1) if _dcp_fault(model, tp, dcp, engine) is None]


def corrupted(model: ModelSpec, tp: int, dcp: int, engine: Engine) -> bool:
    """Whether the engine would start with this dcp and spoil some layer's cache."""
    dense = [mixer for mixer in model.mixers if isinstance(mixer, Attention)]
    return any(engine.corrupts(mixer, tp, dcp) for mixer in dense)


def legal_ep(model: ModelSpec, layout: Layout) -> list[int]:
    """The ep sizes for these tp, pcp and dp: off, or all of their ranks."""
    everyone = layout.expert_ranks
    spread = [] if any(ffn.experts % everyone for ffn in model.moe_ffns) else [everyone]
    return list(dict.fromkeys([1, *spread]))


def _check_pcp(model: ModelSpec, layout: Layout, engine: Engine) -> None:
    kinds = [mixer.kind for mixer in model.mixers if mixer.kind not in engine.pcp_kinds]
    if kinds:
        raise CalcError("pcp_kind", engine=engine.name, kind=kinds[0])
    if layout.dcp > 1:
        raise CalcError("pcp_dcp", engine=engine.name, rule=engine.pcp_dcp_rule)


def _check_ep(model: ModelSpec, layout: Layout) -> None:
    everyone = layout.expert_ranks
    if not model.moe_ffns:
        raise CalcError("ep_nothing")
    if layout.ep != everyone:
        raise CalcError("ep_size", ep=layout.ep, ranks=everyone, allowed=f"off, on ({everyone})")
    for ffn in model.moe_ffns:
        if ffn.experts % layout.ep:
            divisors = [n for n in range(1, MAX_SIZE + 1) if ffn.experts % n == 0]
            raise CalcError(
                "ep_experts", ep=layout.ep, experts=ffn.experts, allowed=_listed(divisors)
            )


@dataclass(frozen=True, slots=True)
class _Fault:
    """The rule that a layout breaks: the code of its message, and the message's values."""

    code: str
    values: dict[str, Any]


def _tp_fault(model: ModelSpec, tp: int) -> _Fault | None:
    for mixer in model.mixers:
        for what, count in mixer.split_counts().items():
            if count % tp:
                values = {"tp": tp, "heads": count, "what": what, "kind": mixer.kind}
                return _Fault("tp_heads", values)
        for what, count in mixer.replicable_counts().items():
            if tp % count and count % tp:
                values = {"tp": tp, "count": count, "what": what, "kind": mixer.kind}
                return _Fault("tp_replicas", values)
    return None


def _dcp_fault(model: ModelSpec, tp: int, dcp: int, engine: Engine) -> _Fault | None:
    if tp % dcp:
        return _Fault("dcp_divides_tp", {"dcp": dcp, "tp": tp})
    if dcp == 1:
        return None
    attentions = [mixer for mixer in model.mixers if isinstance(mixer, Attention)]
    if not attentions and not model.latent_mixers:
        return _Fault("dcp_nothing", {})
    for mixer in attentions:
        if mixer.growth is not Growth.GROWING:
            return _Fault("dcp_kind", {"engine": engine.name, "kind": mixer.kind})
        if dcp not in engine.dcp_values(mixer, tp):
            values = {
                "dcp": dcp,
                "tp": tp,
                "heads": mixer.heads,
                "kv_heads": mixer.kv_heads,
                "engine": engine.name,
                "rule": engine.dcp_rule,
            }
            return _Fault("dcp_kv_heads", values)
    return None


def _listed(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)
