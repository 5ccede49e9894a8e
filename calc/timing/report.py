"""The times of a whole report, and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.hardware import Hardware, hardware_ids, load_hardware
from calc.layers import Sharding
from calc.timing.data import collectives_for, kernel_for
from calc.timing.errors import error_rows
from calc.timing.prefill import prefill_time
from calc.timing.step import StepTime, decode_time

if TYPE_CHECKING:
    from calc.report import Report
    from calc.scenario import Scenario

ERROR_OF = {
    "products": None,
    "attention": ("latent", "heads"),
    "state": ("states",),
    "communication": ("collectives",),
}
"""The tables of reference points that say how far off a group of parts is (None: no table)."""


@dataclass(frozen=True, slots=True)
class Times:
    """The decode step and, where there is one, the prefill chunk on one GPU kind."""

    decode: StepTime
    prefill: StepTime | None


def times(report: Report, gpu: Hardware | None = None) -> Times:
    """All times of a report, on its own GPU unless another is named."""
    scenario = report.scenario
    gpu = scenario.measured(gpu or gpu_of(scenario))
    weight_format = scenario.weight_format
    place = Sharding(
        scenario.tp,
        scenario.dcp,
        scenario.engine_rules,
        KV_FORMATS[scenario.kv_dtype],
        scenario.conv_dtype,
        scenario.state_dtype,
    )
    decode = decode_time(
        report.model, place, report.step, gpu, scenario.batch, scenario.context, weight_format
    )
    prefill = None
    if report.prefill is not None:
        prefill = prefill_time(report.model, place, report.prefill, gpu, weight_format)
    return Times(decode, prefill)


def gpu_of(scenario: Scenario) -> Hardware:
    """The GPU of a scenario; one without known rates and links cannot be timed."""
    gpu: str = getattr(scenario, "gpu", "none")
    if gpu not in hardware_ids():
        raise CalcError("timing_gpu", given=gpu, allowed=", ".join(hardware_ids()))
    return load_hardware(gpu)


def borrowed_from(gpu: Hardware) -> dict[str, str]:
    """Whose measurements stand behind a GPU's estimates."""
    found = {"collectives": collectives_for(gpu).gpu}
    for kind in ("latent", "heads", "convolution", "recurrence"):
        found[kind] = kernel_for(gpu, kind)[1].gpu
    return found


def times_json(found: Times) -> dict[str, Any]:
    """Both steps, whose measurements they rest on, and how far off those estimates were."""
    return {
        "status": "estimate",
        "gpu": found.decode.gpu.id,
        "measurements_of": borrowed_from(found.decode.gpu),
        "efficiencies": found.decode.gpu.reached.model_dump(),
        "median_error": {row.table: round(row.median, 4) for row in error_rows()},
        "decode": step_time_json(found.decode),
        "prefill": step_time_json(found.prefill) if found.prefill else None,
    }


def step_time_json(step: StepTime) -> dict[str, Any]:
    """One step with its parts."""
    return {
        "step_us": round(float(step.total.value), 3),
        "tokens_per_second_per_user": round(float(step.tokens_per_second_user.value), 3),
        "tokens_per_second_per_gpu": round(float(step.tokens_per_second_gpu.value), 3),
        "groups_us": {
            name: round(float(step.group(name)), 3)  # type: ignore[arg-type]
            for name in ERROR_OF
        },
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "group": part.group,
                "calls": part.calls,
                "each_us": round(float(part.each.value), 3),
                "total_us": round(float(part.total.value), 3),
            }
            for part in step.parts
        ],
    }
