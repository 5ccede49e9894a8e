"""Collectives through ``torch.distributed``: right, and how fast. NCCL on GPUs, gloo in tests.

``run_here`` starts one process a GPU; ``torchrun ... -m gpu collectives`` does
the same over several nodes. The environment goes to the processes as it is
(settings such as NCCL_NVLS_ENABLE included).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from calc.collectives import Collective
from gpu.collective_plan import Call
from gpu.timing import Timing, captured

DTYPES = {"fp8": torch.uint8, "bf16": torch.bfloat16, "float32": torch.float32}
CALLS_IN_GRAPH = 10
BLOCKS, SAMPLES, IDLE_S = 5, 4, 0.05
TIMEOUT_S = 60


class Collected:
    """One call's tensors on one rank; ``run`` moves them, ``right`` compares every element."""

    def __init__(self, call: Call, rank: int, device: Any) -> None:
        self.call, self.rank, self.device = call, rank, device
        self.share = call.elements // call.ranks
        self.kind = DTYPES[call.dtype]
        whole, share = (self._empty(size) for size in (call.elements, self.share))
        match call.collective:
            case Collective.ALL_GATHER:
                self.sent, self.got = self._of(rank, self.share), whole
            case Collective.REDUCE_SCATTER:
                self.sent, self.got = self._of(rank, call.elements), share
            case _:
                self.sent, self.got = self._of(rank, call.elements), whole

    def run(self) -> None:
        """The collective once. An all-reduce works in place, on a copy."""
        match self.call.collective:
            case Collective.ALL_GATHER:
                dist.all_gather_into_tensor(self.got, self.sent)
            case Collective.REDUCE_SCATTER:
                dist.reduce_scatter_tensor(self.got, self.sent)
            case Collective.ALL_TO_ALL:
                dist.all_to_all_single(self.got, self.sent)
            case _:
                dist.all_reduce(self.got)

    def right(self) -> bool:
        """Run it on known values and compare with what every rank must have sent."""
        self.got.zero_()
        if self.call.collective is Collective.ALL_REDUCE:
            self.got.copy_(self.sent)
        self.run()
        return torch.equal(self.got, self._expected())

    def _expected(self) -> Any:
        ranks, share = range(self.call.ranks), self.share
        mine = slice(self.rank * share, (self.rank + 1) * share)
        match self.call.collective:
            case Collective.ALL_GATHER:
                return torch.cat([self._of(rank, share) for rank in ranks])
            case Collective.ALL_TO_ALL:
                return torch.cat([self._of(rank, self.call.elements)[mine] for rank in ranks])
        total: Any = sum(self._of(rank, self.call.elements).float() for rank in ranks)
        total = total.to(self.kind)
        return total[mine] if self.call.collective is Collective.REDUCE_SCATTER else total

    def _of(self, rank: int, size: int) -> Any:
        """Small whole numbers, so that sums over ranks are exact in bf16 too."""
        index = torch.arange(size, device=self.device)
        return ((index * 7 + rank * 5) % 13 + rank % 3).to(self.kind)

    def _empty(self, size: int) -> Any:
        return torch.zeros(size, device=self.device, dtype=self.kind)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who this process is among the others, and how they exchange."""

    rank: int
    ranks: int
    nodes: int
    backend: str
    device: Any


def measure(call: Call, place: Ranks) -> dict[str, Any]:
    """One call's row for a result; the time is that of the slowest rank."""
    collected = Collected(call, place.rank, place.device)
    wrong = torch.tensor(0.0 if collected.right() else 1.0, device=place.device)
    dist.all_reduce(wrong)
    row = {
        "name": call.name,
        "collective": call.collective.value,
        "ranks": call.ranks,
        "nodes": place.nodes,
        "backend": place.backend,
        "payload_bytes": call.payload_bytes,
        "dtype": call.dtype,
        "right": not bool(wrong.item()),
    }
    if not row["right"]:
        return row
    timing = timed(collected.run, place.device)
    rate = call.bus_rate(timing.us / 1e6)
    return row | {"timing": timing.to_json()} | ({"bus_bytes_per_s": rate} if rate > 0 else {})


def timed(run: Callable[[], Any], device: Any, calls: int = CALLS_IN_GRAPH) -> Timing:
    """One call's time on the slowest rank; on a GPU several calls in one graph."""
    replay, graph = run, False
    count = 1
    if device.type == "cuda":
        count = calls
        replay, graph = captured(partial(repeat, run, count))
    return slowest([_block(replay, device) / count for _ in range(BLOCKS)], device, graph)


def slowest(blocks: list[float], device: Any, graph: bool) -> Timing:
    """Each block's time on the rank that took longest, and their median."""
    medians = torch.tensor(blocks, device=device)
    dist.all_reduce(medians, op=dist.ReduceOp.MAX)
    found = medians.tolist()
    return Timing(statistics.median(found), min(found), max(found), BLOCKS * SAMPLES, graph)


def repeat(run: Callable[[], Any], count: int) -> None:
    """Several calls, one after another."""
    for _ in range(count):
        run()


def _block(replay: Callable[[], Any], device: Any) -> float:
    time.sleep(IDLE_S)
    dist.barrier()
    replay()
    times = []
    for _ in range(SAMPLES):
        settle(device)
        begin = time.perf_counter()
        replay()
        settle(device)
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def settle(device: Any) -> None:
    """Wait for what a GPU has still to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def join(backend: str, store: str | None = None) -> Ranks:
    """Become a rank. ``store``: a file to meet at, else torchrun's environment."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    device = torch.device("cpu")
    if backend == "nccl":
        local = int(os.environ.get("LOCAL_RANK", rank))
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
    else:
        torch.set_num_threads(1)
    method = f"file://{store}" if store else "env://"
    options = {"timeout": timedelta(seconds=TIMEOUT_S)}
    dist.init_process_group(backend, init_method=method, rank=rank, world_size=ranks, **options)
    return Ranks(rank, ranks, max(1, ranks // here), backend, device)


def run_here(arguments: list[str], ranks: int, backend: str = "nccl") -> dict[str, Any]:
    """Start one process a rank on this machine and return what rank 0 says at last."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        command = [sys.executable, "-m", "gpu", "collectives", *arguments]
        command += ["--backend", backend, "--store", store, "--json"]
        running = [
            subprocess.Popen(
                command,
                env=os.environ | _place(rank, ranks),
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            out, err = running[0].communicate(timeout=TIMEOUT_S * 2)
        finally:
            for process in running:
                process.kill()
                process.wait()
    lines = out.splitlines()
    said: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    if "collectives" in said:
        return said
    message = said.get("error", {}).get("message") or (err or out).strip()[-300:]
    raise RuntimeError(f"the collectives stopped: {message}")


def _place(rank: int, ranks: int) -> dict[str, str]:
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    return {name: str(value) for name, value in where.items()}
