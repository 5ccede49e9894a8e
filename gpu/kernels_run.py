"""Measure one kernel shape: every backend detected, checked against fp32, then timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu.backends import ALL, Backend
from gpu.floors import Ceilings, Floor, attention_floor, state_floor, verdict
from gpu.memory import drop_unused
from gpu.problem import Checked, Problem, References
from gpu.shapes import StateShape
from gpu.states import check_state, state_tensors
from gpu.timing import SHORT, Clock, Timing

STATE_BOUND = 1e-2
Call = Callable[[], tuple[Any, Any]]


@dataclass(slots=True)
class KernelRun:
    """A ``KernelResult`` in the making, and the fastest call for what comes after."""

    row: dict[str, Any]
    best: Call | None = None
    best_us: float = float("inf")
    backends: list[dict[str, Any]] = field(default_factory=list)

    def add(self, backend: dict[str, Any], call: Call | None) -> None:
        self.backends.append(backend)
        timing = backend.get("timing")
        if timing and call is not None and timing["us"] < self.best_us:
            self.best, self.best_us = call, timing["us"]

    def to_json(self) -> dict[str, Any]:
        return self.row | {"backends": self.backends}


def chosen(wanted: Sequence[str]) -> tuple[Backend, ...]:
    """Backends by id; "quick" for the usual ones, "all" for every one."""
    if "all" in wanted:
        return ALL
    if "quick" in wanted:
        return tuple(backend for backend in ALL if backend.quick)
    return tuple(backend for backend in ALL if backend.id in wanted)


def run_attention(
    task: Problem, ceilings: Ceilings, backends: Sequence[Backend], clock: Clock
) -> KernelRun:
    """All backends on a problem."""
    shape = task.shape
    floor = attention_floor(shape, ceilings)
    run = KernelRun(
        {
            "attention": shape.to_json(),
            "bytes": shape.kv_bytes + shape.other_bytes,
            "flops": shape.flops,
            "tile_flops": shape.tile_flops,
            "floor": floor.to_json(),
        }
    )
    references = References(task)
    for backend in backends:
        run.add(*_one(backend, task, references, floor, clock))
        drop_unused()
    return run


def _one(
    backend: Backend, task: Problem, references: References, floor: Floor, clock: Clock
) -> tuple[dict[str, Any], Call | None]:
    named = {"id": backend.id, "name": backend.name}
    reason = backend.why_not(task.shape, task.device)
    if reason is not None:
        return named | {"status": "unavailable", "reason": reason}, None
    try:
        call = backend.prepare(task)
        checked = references.check(*call())
        row = named | _errors(checked)
        if not checked.right:
            reason = "its answer is not the fp32 one, so it was not timed"
            return row | {"status": "wrong", "reason": reason}, None
        timing = clock.time(call, method=SHORT if backend.weak else None)
    except torch.cuda.OutOfMemoryError:
        return named | {"status": "failed", "reason": "not enough memory for its scratch"}, None
    except (RuntimeError, ImportError, AttributeError, TypeError, AssertionError) as error:
        if _sticky(error):
            raise
        return named | {"status": "failed", "reason": _sentence(error)}, None
    return row | {"status": "timed"} | judged(timing, floor), call


def judged(timing: Timing, floor: Floor) -> dict[str, Any]:
    """A timing with its fractions of the floors and the verdict."""
    fraction = floor.fraction(timing.us)
    row: dict[str, Any] = {"timing": timing.to_json(), "verdict": verdict(fraction)}
    if fraction is not None:
        row |= {"fraction": fraction, "tile_fraction": floor.tile_us / timing.us}
    return row


def run_state(shape: StateShape, ceilings: Ceilings, clock: Clock, device: Any) -> KernelRun:
    """Our update kernel on one layer's states."""
    floor = state_floor(shape, ceilings)
    flops = shape.batch * shape.heads * shape.key_dim * shape.value_dim * (7 if shape.delta else 5)
    run = KernelRun(
        {
            "state": shape.to_json(),
            "bytes": shape.moved_bytes,
            "flops": flops,
            "tile_flops": flops,
            "floor": floor.to_json(),
        }
    )
    named = {"id": "triton_state", "name": "own Triton kernel"}
    power_of_two = all(size & (size - 1) == 0 for size in (shape.key_dim, shape.value_dim))
    if not power_of_two:
        reason = f"no tiling for a state of {shape.key_dim} x {shape.value_dim}"
        run.add(named | {"status": "unavailable", "reason": reason}, None)
        return run
    try:
        run.add(*_state_row(shape, named, floor, clock, device))
    except torch.cuda.OutOfMemoryError:
        run.add(named | {"status": "failed", "reason": "not enough memory for the states"}, None)
    return run


def _state_row(
    shape: StateShape, named: dict[str, Any], floor: Floor, clock: Clock, device: Any
) -> tuple[dict[str, Any], Call | None]:
    from gpu.own import update_state

    tensors = state_tensors(shape, device)
    error = check_state(shape, tensors)
    if not error < STATE_BOUND:
        reason = "its answer is not the fp32 one, so it was not timed"
        row = {"status": "wrong", "reason": reason}
        return named | row | ({"out_error": error} if error == error else {}), None
    timing = clock.time(lambda: update_state(shape, tensors))
    return named | {"status": "timed", "out_error": error} | judged(timing, floor), None


def _errors(checked: Checked) -> dict[str, Any]:
    """Errors that are numbers; a NaN is left out and the status says wrong."""
    found = {"out_error": checked.out, "lse_error": checked.lse}
    return {name: value for name, value in found.items() if value is not None and value == value}


def _sticky(error: Exception) -> bool:
    """After these every later CUDA call of the process fails."""
    text = str(error).lower()
    return "illegal memory access" in text or "device-side assert" in text


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
