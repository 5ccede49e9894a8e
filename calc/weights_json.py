"""Weights as plain data: counts of the whole model, bytes of one rank, what ranks hold twice."""

from __future__ import annotations

from typing import Any

from calc.model import ModelSpec
from calc.weights import RankWeights, parameters


def weights_json(model: ModelSpec, held: RankWeights, weight_format: str) -> dict[str, Any]:
    """The ``weights`` of a report; parts are those of the fullest pipeline stage."""
    counted = parameters(model)
    return {
        "parameters_total": counted.total.value,
        "parameters_active": counted.active.value,
        "parameters_mtp": counted.mtp.value,
        "format": weight_format,
        "bytes_per_rank": held.total.value,
        "bytes_per_rank_by_stage": list(held.stage_bytes),
        "pipeline_stage": held.stage,
        "replicated_bytes_per_rank": sum(part.item.value for part in held.replicated),
        "parts": [
            {
                "name": part.name,
                "role": part.role,
                "layers": part.layers,
                "tensors": list(part.tensors),
                "format": part.format,
                "copies_in_tp_group": part.replicas,
                "bytes_per_rank": part.item.value,
            }
            for part in held.parts
        ],
    }
