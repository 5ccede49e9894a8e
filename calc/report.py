"""``evaluate``: a Scenario in, every number out; and the JSON of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.capacity import Cache, Component, Fit, cache, fit
from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.layers import Growth, Sharding, StateMixer
from calc.layout import check_layout
from calc.model import ModelSpec
from calc.scenario import FIELDS, Scenario
from calc.traffic import Stage, Step, decode_step

NOT_COUNTED = (
    "weights",
    "activations",
    "block_rounding",
    "expert_parallel",
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

    def headline(self) -> tuple[int, int, int, int]:
        """Cache bytes a request and rank, largest batch, bytes sent a rank and step, ranks."""
        return (
            self.cache.stage.per_request.value,
            self.fit.max_requests.value,
            round(self.step.sent_per_rank.value),
            self.scenario.layout.world_size,
        )

    def to_json(self) -> dict[str, Any]:
        """The stable JSON object of the command line; bytes are exact."""
        stage = self.cache.stage
        return {
            "scenario": {
                "model": self.scenario.model,
                "revision": self.model.revision,
                **{name: getattr(self.scenario, name) for name in FIELDS},
                "dcp_backend_used": self.backend,
                "query_replication_used": "on" if self.query_replicated else "off",
            },
            "layout": {
                "world_size": self.scenario.layout.world_size,
                "replica_ranks": self.scenario.layout.replica_ranks,
                "pipeline_stage_reported": self.cache.binding,
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
            "capacity": {
                "kv_budget_bytes_per_rank": self.fit.budget_bytes,
                "max_requests": self.fit.max_requests.value,
                "max_context": self.fit.max_context,
                "fits": self.fit.fits,
                "short_bytes_per_rank": self.fit.short_bytes,
            },
            "traffic": {
                "stages": [_stage(row) for row in self.step.stages],
                "sent_bytes_per_rank_per_step": plain(self.step.sent_per_rank.value),
                "sent_bytes_all_ranks_per_step": plain(self.step.all_ranks.value),
            },
            "not_counted": list(NOT_COUNTED),
        }


def evaluate(scenario: Scenario) -> Report:
    """Compute everything; raises CalcError when the scenario cannot exist."""
    model = scenario.model_spec
    layout = scenario.layout
    engine = scenario.engine_rules
    check_layout(model, layout, engine)
    _check_state_dtypes(scenario, model)
    backend = engine.resolve_backend(model, scenario.dcp_backend)
    if backend not in engine.backends:
        raise CalcError(
            "backend_unknown",
            engine=engine.name,
            given=backend,
            allowed=", ".join(engine.backends),
        )
    replicated = engine.resolve_query_replication(model, backend, scenario.query_replication)
    if replicated and not engine.can_replicate_query(model):
        raise CalcError("query_replication", engine=engine.name, backend=backend)
    place = Sharding(
        layout.tp,
        layout.dcp,
        engine,
        KV_FORMATS[scenario.kv_dtype],
        scenario.conv_dtype,
        scenario.state_dtype,
    )
    held = cache(model, layout, place, scenario.context, scenario.batch)
    if not held.stage.per_request.value:
        raise CalcError("nothing_kept", given=model.name)
    return Report(
        scenario,
        model,
        held,
        fit(held, scenario.budget_bytes, scenario.batch),
        decode_step(model, layout, engine, scenario.batch, backend, replicated),
        backend,
        replicated,
    )


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
    }


def _stage(row: Stage) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "layers": row.layers,
        "per": row.per,
        "collective": row.collective.value if row.collective else None,
        "group": row.group,
        "group_size": row.group_size,
        "calls_per_step": row.calls,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "payload_bytes": plain(row.payload.value) if row.payload else 0,
        "sent_bytes_per_rank": plain(row.sent.value) if row.sent else 0,
        "received_bytes_per_rank": plain(row.sent.value) if row.sent else 0,
    }


def plain(value: Any) -> int | float:
    """A number for JSON: an int where it is whole."""
    if isinstance(value, float) and value == int(value):
        return int(value)
    return value if isinstance(value, int) else float(value)
