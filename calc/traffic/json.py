"""Steps as plain data, for the command line and exports."""

from __future__ import annotations

from typing import Any

from calc.traffic.alternatives import Alternative
from calc.traffic.stage import Stage
from calc.traffic.step import Step


def step_json(step: Step) -> dict[str, Any]:
    """All stages and what they add up to; bytes of a stage are per call."""
    return {
        "tokens_per_replica": step.tokens,
        "stages": [stage_json(row) for row in step.stages],
        "sent_bytes_per_rank_per_step": plain(step.sent_per_rank.value),
        "sent_bytes_all_ranks_per_step": plain(step.all_ranks.value),
        "calls_per_step": sum(row.calls for row in step.stages),
    }


def stage_json(row: Stage) -> dict[str, Any]:
    """One row."""
    return {
        "name": row.name,
        "kind": row.kind,
        "layers": row.layers,
        "per": row.per,
        "drafts": row.drafts,
        "collective": row.collective.value if row.collective else None,
        "group": row.group,
        "group_size": row.group_size,
        "crosses_nodes": row.crosses_nodes,
        "algorithm": row.algorithm if row.collective else None,
        "calls_per_step": row.calls,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "payload_bytes": plain(row.payload.value) if row.payload else 0,
        "sent_bytes_per_rank": plain(row.sent.value) if row.sent else 0,
        "received_bytes_per_rank": plain(row.received.value) if row.received else 0,
        "busbw_factor": row.bus_factor,
    }


def alternative_json(way: Alternative) -> dict[str, Any]:
    """A way not taken."""
    return {
        "name": way.name,
        "instead_of": way.instead_of,
        "layers": way.stage.layers,
        "sent_bytes_per_rank": plain(way.stage.sent.value) if way.stage.sent else 0,
        "weight_bytes_per_rank": way.weight_bytes.value,
        "flops_per_rank": way.flops.value,
    }


def plain(value: Any) -> int | float:
    """A number for JSON: an int where it is whole."""
    if isinstance(value, float) and value == int(value):
        return int(value)
    return value if isinstance(value, int) else float(value)
