"""A whole run on this card: facts, ceilings, kernels, merge, stages, collectives, sustained."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from calc.measured import result_json
from calc.scenario import Scenario
from gpu.calibration import BACKENDS as CALIBRATED_BY
from gpu.calibration import SHAPES
from gpu.ceilings import as_ceilings, gemm_burst, gemm_sustained, memory_ceilings
from gpu.collective_plan import calls_for
from gpu.facts import UnavailableError, machine, usable_device
from gpu.floors import Ceilings
from gpu.kernels_run import KernelRun, chosen, run_attention, run_state
from gpu.memory import KV_LIMIT, Allocated, allocate, drop_unused, fitted, free_bytes
from gpu.options import as_arguments, as_query
from gpu.problem import empty_cache, problem
from gpu.progress import Progress
from gpu.shapes import AttentionShape, Plan, Skipped, plan
from gpu.stages import Product, latent_stages, time_stage
from gpu.stripes import BOUND, merge_errors, striped_attention, time_merge
from gpu.timing import Clock, Method

CEILING_SHAPE = AttentionShape("read", 1, 1, 2**21, 1, 1, 512, 512, True, 1.0, 2**21)
"""2 GiB to read where the scenario has no cache, or one too small to tell a rate."""
LEAST_CEILING_BYTES = 2**28
SUSTAINED_S = 1.0
LISTS = ("kernels", "memory", "merge", "stages", "collectives", "layers", "calibration")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure, and with how much of the card."""

    scenario: Scenario
    backends: tuple[str, ...] = ("quick",)
    memory_fraction: float = 0.5
    sustained: bool = True
    collectives: bool = True
    calibrate: bool = False
    loaded: bool = False


class Worker:
    """One run. Parts fill ``result``; each part is a step of the progress."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.started = time.monotonic()
        self.device = usable_device()
        self.plan: Plan = plan(wanted.scenario)
        self.method = Method()
        self.clock = Clock(self.method, self.device)
        self.skipped = list(self.plan.skipped)
        self.rates: dict[str, float] = {}
        self.ceilings: Ceilings | None = None
        self.found: dict[str, Any] = {name: [] for name in LISTS}

    def run(self) -> str:
        """Measure everything; the result as JSON."""
        parts = self._parts()
        progress = Progress(len(parts))
        for name, part in parts:
            progress.step(name, part())
            drop_unused()
        return result_json(self._result())

    def _parts(self) -> list[tuple[str, Callable[[], Any]]]:
        largest, rest = self.plan.attention[:1], self.plan.attention[1:]
        stages = latent_stages(self.wanted.scenario)
        parts: list[tuple[str, Callable[[], Any]]] = [
            ("machine", self._machine),
            ("memory", self._memory_asked),
            ("gemm", self._gemm),
        ]
        if largest:
            parts.append((f"attention {largest[0].kind}", partial(self._attention, largest[0])))
        else:
            parts.append(("read", self._read_only))
        parts += [(f"attention {one.kind}", partial(self._attention, one)) for one in rest]
        parts += [(f"state {one.kind}", partial(self._state, one)) for one in self.plan.states]
        if largest:
            parts.append(("merge", partial(self._merge, largest[0])))
        if stages:
            parts.append(("stages", partial(self._stages, stages)))
        if self.wanted.calibrate:
            parts += [(f"calibration {one.kind}", partial(self._calibrate, one)) for one in SHAPES]
        if self.wanted.collectives:
            parts.append(("collectives", self._collectives))
        if self.wanted.sustained:
            parts.append(("sustained", self._sustained))
        return parts

    def _machine(self) -> dict[str, Any]:
        self.found["machine"] = machine(self.device)
        return {"gpu": self.found["machine"]["gpu"]}

    def _memory_asked(self) -> dict[str, int]:
        """What the run will ask for, before it does."""
        limit = self._limit()
        backends = chosen(self.wanted.backends)
        asked = 0
        for shape in (fitted(one, limit) for one in self.plan.attention):
            scratch = [
                one.scratch_bytes(shape) for one in backends if not one.why_not(shape, self.device)
            ]
            asked = max(asked, shape.kv_bytes + max(scratch, default=0))
        asked = max([asked, *(state.state_bytes for state in self.plan.states)])
        return {"asked_bytes": asked + 10**9, "free_bytes": free_bytes(self.device)}

    def _limit(self) -> int:
        return min(KV_LIMIT, int(free_bytes(self.device) * self.wanted.memory_fraction))

    def _gemm(self) -> dict[str, float]:
        timing, rate = gemm_burst(self.clock, self.device)
        self.found["gemm"] = timing
        self.rates["gemm"] = rate
        return {"flops_per_s": rate}

    def _read_only(self) -> dict[str, float]:
        """Ceilings over a tensor of their own, where no cache is to be read."""
        self._allocated(fitted(CEILING_SHAPE, self._limit()))
        return {"read": self.rates["read"], "copy": self.rates["copy"]}

    def _allocated(self, shape: AttentionShape) -> tuple[AttentionShape, Any, Allocated]:
        """The shape's cache; the first one serves to measure the memory ceilings."""
        if self.ceilings is None and shape.kv_bytes < LEAST_CEILING_BYTES:
            self._read_only()
        shape, cache, seen = allocate(shape, lambda one: empty_cache(one, self.device))
        if self.ceilings is None:
            cache.normal_()
            reading, copying, rates = memory_ceilings(cache, self.clock)
            self.rates |= rates
            self.found |= {"read": reading, "copy": copying}
            self.found["over"] = shape.kv_bytes
            self.ceilings = as_ceilings(self.rates, self.rates["gemm"])
        return shape, cache, seen

    def _attention(self, shape: AttentionShape) -> dict[str, Any]:
        try:
            shape, cache, seen = self._allocated(fitted(shape, self._limit()))
        except torch.cuda.OutOfMemoryError:
            reason = f"no memory for one page of cache: {free_bytes(self.device)} bytes free"
            if self.ceilings is None:
                raise UnavailableError("out_of_memory", reason) from None
            self.skipped.append(Skipped(shape.kind, reason, "no_memory"))
            return {"skipped": reason}
        self.found["memory"].append({"kind": shape.kind} | seen.to_json())
        assert self.ceilings is not None
        task = problem(shape, cache)
        run = run_attention(task, self.ceilings, chosen(self.wanted.backends), self.clock)
        self.found["kernels"].append(run.to_json())
        if self.wanted.sustained and run.best is not None and len(self.found["kernels"]) == 1:
            # last of this shape: it heats the card, and the cache is still here
            us = self.clock.sustained(run.best, SUSTAINED_S)
            self.found["kernels"][-1]["sustained_us"] = us
            time.sleep(1.0)
        return _short(run)

    def _calibrate(self, shape: AttentionShape) -> dict[str, Any]:
        """A shape that no preset has, with the backends that come near the floor."""
        assert self.ceilings is not None
        shape, cache, _ = self._allocated(fitted(shape, self._limit()))
        task = problem(shape, cache)
        run = run_attention(task, self.ceilings, chosen(CALIBRATED_BY), self.clock)
        self.found["calibration"].append(run.to_json())
        return _short(run)

    def _state(self, shape: Any) -> dict[str, Any]:
        assert self.ceilings is not None
        run = run_state(shape, self.ceilings, self.clock, self.device)
        self.found["kernels"].append(run.to_json())
        return _short(run)

    def _merge(self, shape: AttentionShape) -> dict[str, Any]:
        layout = self.wanted.scenario.layout
        parts = layout.dcp if layout.dcp > 1 else 8
        heads = max(1, shape.heads // parts)
        timing, moved = time_merge(parts, shape, heads, self.clock, self.device)
        merged, plain_mean = merge_errors(parts, 256, shape.v_dim, self.device)
        striped = striped_attention(shape, parts, self.device)
        row = {
            "kind": shape.kind,
            "parts": parts,
            "batch": shape.batch,
            "heads": heads,
            "width": shape.v_dim,
            "timing": timing.to_json(),
            "floor_us": moved / self.rates["read"] * 1e6,
            "merge_error": merged,
            "plain_mean_error": plain_mean,
            "right": merged < BOUND < plain_mean and (striped is None or striped[0] < BOUND),
        }
        if striped is not None:
            row |= {"stripes_error": striped[0], "stripes_lse_error": striped[1]}
        self.found["merge"].append(row)
        return {"us": timing.us, "right": row["right"]}

    def _stages(self, stages: list[Any]) -> dict[str, Any]:
        rows = self.found["stages"]
        for stage in stages:
            try:
                timing = time_stage(stage, self.clock, self.device)
            except torch.cuda.OutOfMemoryError:
                rows.append({"name": stage.name, "note": "not enough memory for its weights"})
                continue
            row = {"name": stage.name, "timing": timing.to_json()}
            row["floor_us"] = stage.moved_bytes / self.rates["read"] * 1e6
            if not isinstance(stage, Product):
                row["note"] = "the copy on this rank alone, without the network"
            rows.append(row)
            drop_unused()
        return {"stages": len(rows)}

    def _collectives(self) -> dict[str, Any]:
        """One process a GPU, started from here; a latent layer over them under DCP."""
        from gpu.collectives import run_here

        ranks = torch.cuda.device_count()
        layout = self.wanted.scenario.layout
        if not calls_for(self.wanted.scenario, max(ranks, 1)):
            skipped = Skipped(
                "collectives", "the scenario has no collectives: one rank", "one_rank"
            )
        elif ranks < 2:
            reason = f"needs at least 2 GPUs; this machine shows {ranks}"
            skipped = Skipped("collectives", reason, "one_gpu")
        else:
            options = as_arguments(self.wanted.scenario)
            options += ["--layer"] * (layout.dcp > 1) + ["--loaded"] * self.wanted.loaded
            try:
                said = run_here(options, ranks)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                skipped = Skipped("collectives", " ".join(str(error).split())[:300], "failed")
            else:
                self.found |= {"collectives": said["collectives"], "layers": said["layers"]}
                self.skipped += [Skipped(**part) for part in said["skipped"]]
                return {"collectives": len(said["collectives"]), "layers": len(said["layers"])}
        self.skipped.append(skipped)
        return {"skipped": skipped.reason}

    def _sustained(self) -> dict[str, float]:
        self.found["sustained"] = gemm_sustained(self.clock, self.device)
        return {"flops_per_s": self.found["sustained"]}

    def _result(self) -> dict[str, Any]:
        found = self.found
        ceilings = {
            "read": self.rates["read"],
            "copy_rate": self.rates["copy"],
            "gemm_burst": self.rates["gemm"],
            "over_bytes": found["over"],
            "read_timing": found["read"].to_json(),
            "copy_timing": found["copy"].to_json(),
            "gemm_timing": found["gemm"].to_json(),
        }
        if "sustained" in found:
            ceilings["gemm_sustained"] = found["sustained"]
        scenario = self.wanted.scenario
        return {
            "kind": "gpu-benchmark",
            "version": 1,
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "model": scenario.model_spec.name,
            "scenario": as_query(scenario),
            "method": {
                "blocks": self.method.blocks,
                "samples": self.method.samples,
                "idle_s": self.method.idle_s,
            },
            "ceilings": ceilings,
            "machine": found["machine"],
            **{name: found[name] for name in LISTS},
            "skipped": [asdict(part) for part in self.skipped],
            "seconds": time.monotonic() - self.started,
        }


def _short(run: KernelRun) -> dict[str, Any]:
    """The line of progress for a kernel: the best time, and how each backend fared."""
    fared = {
        row["id"]: row["timing"]["us"] if row["status"] == "timed" else row["status"]
        for row in run.backends
    }
    return {"us": run.best_us if run.best_us < float("inf") else None, "backends": fared}
