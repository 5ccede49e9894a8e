"""``evaluate``: a Scenario in, every number out; and the JSON of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.capacity import Cache, Component, Fit, cache, fit
from calc.engine_cache import EngineReport, engine_report, place_of
from calc.errors import CalcError
from calc.layers import Growth, Sharding, StateMixer
from calc.layout import check_layout, corrupted
from calc.model import ModelSpec
from calc.scenario import FIELDS, Scenario
from calc.traffic import Options, Step, decode_step, prefill_step
from calc.traffic.choices import step_options
from calc.traffic.json import alternative_json, plain, step_json
from calc.version import FORMULAS, VERSION
from calc.weights_json import weights_json

NOT_COUNTED = (
    "weights",
    "activations",
    "block_rounding",
    "request_metadata",
)
"""What no figure of a report includes; the page words these."""


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one scenario. ``backend`` and ``query_replicated`` are as resolved."""

    scenario: Scenario
    model: ModelSpec
    cache: Cache
    fit: Fit
    step: Step
    backend: str
    query_replicated: bool
    prefill: Step | None
    engine: EngineReport

    def headline(self) -> tuple[int, int, int, int]:
        """Cache bytes a request and rank, largest batch, bytes sent a rank and step, ranks."""
        return (
            self.cache.stage.per_request.value,
            self.fit.max_requests.value,
            round(self.step.sent_per_rank.value),
            self.scenario.layout.world_size,
        )

    def not_counted(self) -> list[str]:
        """What the formulas' figures leave out; a budget made from a GPU counts more."""
        counted = () if self.engine.budget.typed else ("weights", "activations")
        return [name for name in NOT_COUNTED if name not in counted]

    def cautions(self) -> list[str]:
        """What an engine lets through and should not."""
        made = self.scenario
        spoiled = corrupted(self.model, made.tp, made.dcp, made.engine_rules)
        return ["dcp_heads"] if spoiled else []

    def to_json(self) -> dict[str, Any]:
        """The stable JSON object of the command line; bytes are exact."""
        stage = self.cache.stage
        return {
            "version": {"package": VERSION, "formulas": FORMULAS},
            "scenario": {
                "model": self.scenario.model,
                "revision": self.model.revision,
                **{name: getattr(self.scenario, name) for name in FIELDS},
                "dcp_backend_used": self.backend,
                "moe_backend_used": self.step.moe_backend,
                "query_replication_used": "on" if self.query_replicated else "off",
            },
            "layout": {
                "world_size": self.scenario.layout.world_size,
                "replica_ranks": self.scenario.layout.replica_ranks,
                "pipeline_stage_reported": self.cache.binding,
                "ep": self.scenario.layout.ep,
                "pcp": self.scenario.layout.pcp,
            },
            "cache": {
                "growing_bytes_per_token_per_rank": plain(stage.growing_per_token.value),
                "window_bytes_per_request_per_rank": stage.window_per_request.value,
                "state_bytes_per_request_per_rank": stage.state_per_request.value,
                "bytes_per_request_per_rank": stage.per_request.value,
                "bytes_per_request_per_replica": self.cache.per_replica.value,
                "batch_bytes_per_rank": self.cache.batch.value,
                "components": [_component(part) for part in stage.components],
            },
            "weights": weights_json(self.model, self.engine.weights, self.scenario.weight_format),
            "capacity": {
                "kv_budget_bytes_per_rank": self.fit.budget_bytes,
                "max_requests": self.fit.max_requests.value,
                "max_context": self.fit.max_context,
                "fits": self.fit.fits,
                "short_bytes_per_rank": self.fit.short_bytes,
                "pipeline_stage": self.fit.stage,
                **self.engine.to_json(self.scenario, self.fit),
            },
            "traffic": {
                **step_json(self.step),
                "alternatives": [alternative_json(way) for way in self.step.alternatives],
            },
            "prefill": step_json(self.prefill) if self.prefill else None,
            "not_counted": self.not_counted(),
            "cautions": self.cautions(),
        }


def evaluate(scenario: Scenario) -> Report:
    """Compute everything; raises CalcError when the scenario cannot exist."""
    model = scenario.model_spec
    layout = scenario.layout
    engine = scenario.engine_rules
    backend, replicated = resolved(scenario)
    options = step_options(scenario)
    place = place_of(scenario)
    held = cache(model, layout, place, scenario.context, scenario.batch)
    if not held.stage.per_request.value:
        raise CalcError("nothing_kept", given=model.name)
    account = engine_report(scenario, place, held, replicated)
    return Report(
        scenario,
        model,
        held,
        fit(held, account.budget.left, scenario.batch),
        decode_step(model, layout, engine, scenario.batch, backend, replicated, options),
        backend,
        replicated,
        _prefill(scenario, place, backend, replicated, options),
        account,
    )


def resolved(scenario: Scenario) -> tuple[str, bool]:
    """The backend and query replication in use; raises CalcError when a layout cannot exist."""
    model, layout, engine = scenario.model_spec, scenario.layout, scenario.engine_rules
    check_layout(model, layout, engine)
    _check_state_dtypes(scenario, model)
    if scenario.shared_prefix > scenario.context:
        raise CalcError(
            "prefix_context",
            "shared_prefix",
            given=scenario.shared_prefix,
            context=scenario.context,
        )
    backend = engine.resolve_backend(model, scenario.dcp_backend)
    if backend not in engine.backends:
        raise CalcError(
            "backend_unknown",
            engine=engine.name,
            given=backend,
            allowed=", ".join(engine.backends),
        )
    replicated = engine.resolve_query_replication(model, backend, scenario.query_replication)
    if replicated and not engine.can_replicate_query(model, backend):
        raise CalcError("query_replication", engine=engine.name, backend=backend)
    return backend, replicated


def _prefill(
    scenario: Scenario, place: Sharding, backend: str, replicated: bool, options: Options
) -> Step | None:
    new = scenario.prefill_tokens
    if not new:
        return None
    model, prefix = scenario.model_spec, scenario.context - new
    return prefill_step(model, place, scenario.layout, backend, replicated, new, prefix, options)


def _check_state_dtypes(scenario: Scenario, model: ModelSpec) -> None:
    engine = scenario.engine_rules
    for mixer in model.mixers:
        if isinstance(mixer, StateMixer):
            _, state = engine.state_dtypes(mixer, scenario.conv_dtype, scenario.state_dtype)
            allowed = engine.allowed_state_dtypes(mixer)
            if state not in allowed:
                raise CalcError(
                    "state_dtype_kind",
                    "state_dtype",
                    kind=mixer.kind,
                    given=state,
                    allowed=", ".join(allowed),
                )


def _component(part: Component) -> dict[str, Any]:
    store = part.store
    return {
        "kind": store.kind,
        "name": store.name,
        "growth": store.growth.value,
        "layers": part.layers,
        "bytes_per_token_per_rank": plain(part.per_token.value) if part.per_token else None,
        "bytes_per_request_per_rank": part.per_request.value,
        "token_limit": store.limit if store.growth in (Growth.WINDOW, Growth.CHUNK) else None,
        "dcp_stripes": store.dcp,
        "copies_in_tp_group": store.copies,
        "drafts": part.drafts,
    }
