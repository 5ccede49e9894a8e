"""Measures the DCP layer among real ranks: right, alone, and beside the expert all-to-all."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from calc.scenario import Scenario
from gpu.collective_plan import expert_payload
from gpu.collectives import BLOCKS, IDLE_S, SAMPLES, Ranks, repeat, settle, slowest, timed
from gpu.dcp_layer import Attend, DcpLayer, Exchange, layer_error, working_type
from gpu.memory import KV_LIMIT, fitted, free_bytes
from gpu.problem import OUT_BOUND, Problem, empty_cache, problem, reference
from gpu.shapes import PAGE, AttentionShape, Skipped, plan
from gpu.timing import Timing, captured

CPU_LIMIT = 2**24
"""Bytes of a stripe on a CPU, where only the result counts."""
LAYERS_IN_GRAPH = 4
CANDIDATES = ("flash_mla", "triton", "torch_bmm")
EXACT_BOUND = 1e-4
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def measure_layers(scenario: Scenario, place: Ranks, loaded: bool) -> Rows:
    """(rows for a result, what was left out) for the scenario's first latent layer."""
    shape, reason = _shape(scenario, place.ranks)
    if shape is None:
        return [], [asdict(Skipped("dcp_layer", reason, "no_layer"))]
    payload = expert_payload(scenario, place.ranks) if loaded else 0
    load = ExpertLoad(payload, place) if payload else None
    skipped = []
    if loaded and load is None:
        skipped.append(asdict(Skipped("dcp_layer", "the model has no experts", "no_experts")))
    exchanges: tuple[Exchange, ...] = ("a2a", "ag_rs")
    return [_row(shape, place, exchange, load) for exchange in exchanges], skipped


def _shape(scenario: Scenario, ranks: int) -> tuple[AttentionShape | None, str]:
    """One rank's attention: all heads of the DCP group over its stripe."""
    latent = [shape for shape in plan(scenario).attention if shape.latent]
    if not latent:
        return None, "no latent attention in this scenario"
    shape = latent[0]
    if ranks < 2:
        return None, "needs at least 2 ranks"
    if shape.heads % ranks:
        return None, f"{shape.heads} heads cannot be divided among {ranks} ranks"
    return shape, ""


class ExpertLoad:
    """The expert all-to-all, in a process group of its own so that it can run beside the layer."""

    def __init__(self, payload_bytes: int, place: Ranks) -> None:
        self.place = place
        size = max(1, payload_bytes // 2 // place.ranks) * place.ranks
        self.payload_bytes = size * 2
        self.group = dist.new_group()
        self.sent = torch.ones(size, device=place.device, dtype=torch.bfloat16)
        self.got = torch.empty_like(self.sent)

    def run(self) -> None:
        dist.all_to_all_single(self.got, self.sent, group=self.group)

    def begin(self) -> Any:
        """Without waiting for it (on a CPU)."""
        return dist.all_to_all_single(self.got, self.sent, group=self.group, async_op=True)


def _row(
    shape: AttentionShape, place: Ranks, exchange: Exchange, load: ExpertLoad | None
) -> dict[str, Any]:
    name, attend, error = _right_backend(shape, place, exchange)
    task, queries = _stripe(shape, place)
    row = {
        "kind": shape.kind,
        "backend": place.backend,
        "ranks": place.ranks,
        "nodes": place.nodes,
        "batch": shape.batch,
        "tokens": task.shape.tokens,
        "heads": shape.heads,
        "k_dim": shape.k_dim,
        "v_dim": shape.v_dim,
        "exchange": exchange,
        "attention": name,
        "error": min(error, 1e9),
        "right": attend is not None,
    }
    if attend is None:
        return row
    layer = DcpLayer(task, queries, place.ranks, attend, exchange)
    alone = timed(layer.step, place.device, LAYERS_IN_GRAPH)
    row["timing"] = alone.to_json()
    if load is not None:
        expert = timed(load.run, place.device)
        beside = _beside(layer, load, alone, expert)
        row |= {"expert_payload_bytes": load.payload_bytes}
        row |= {"expert": expert.to_json(), "loaded": beside.to_json()}
    return row


def _right_backend(
    shape: AttentionShape, place: Ranks, exchange: Exchange
) -> tuple[str, Attend | None, float]:
    """The first backend whose layer equals unsharded attention on every rank."""
    tokens = PAGE * 4 * place.ranks
    small = replace(shape, batch=min(2, shape.batch), tokens=tokens, wanted_tokens=tokens)
    bound = OUT_BOUND if place.device.type == "cuda" else EXACT_BOUND
    name, error = "none", math.inf
    for name, attend in _candidates(shape, place.device):
        try:
            own = layer_error(small, place.rank, place.ranks, attend, place.device, exchange)
        except (ImportError, AttributeError, TypeError):
            own = math.inf
        worst = torch.tensor(own, device=place.device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        error = float(worst)
        if error < bound:
            return name, attend, error
    return name, None, error


def _candidates(shape: AttentionShape, device: Any) -> Iterator[tuple[str, Attend]]:
    if device.type != "cuda":
        yield "torch, fp32", _exact
        return
    from gpu.backends import ALL  # some need Triton

    for backend in ALL:
        if backend.id in CANDIDATES and backend.why_not(shape, device) is None:
            yield backend.name, backend.prepare


def _exact(task: Problem) -> Callable[[], tuple[Any, Any]]:
    def call() -> tuple[Any, Any]:
        rows = [reference(task, request) for request in range(task.shape.batch)]
        return torch.stack([out for out, _ in rows]), torch.stack([lse for _, lse in rows])

    return call


def _stripe(shape: AttentionShape, place: Ranks) -> tuple[Problem, Any]:
    """A stripe of real size (as far as every rank has the memory), and the own heads' queries."""
    on_gpu = place.device.type == "cuda"
    limit = min(KV_LIMIT, free_bytes(place.device) // 2) if on_gpu else CPU_LIMIT
    tokens = torch.tensor(fitted(shape, limit).tokens, device=place.device)
    dist.all_reduce(tokens, op=dist.ReduceOp.MIN)
    local = replace(shape, tokens=int(tokens))
    task = problem(local, empty_cache(local, place.device, working_type(place.device)), place.rank)
    own = shape.heads // place.ranks
    return task, task.q[:, :own].transpose(0, 1).contiguous()


def _beside(layer: DcpLayer, load: ExpertLoad, alone: Timing, expert: Timing) -> Timing:
    """The layer's time while as many all-to-alls as outlast it run in the other group."""
    count = max(2, math.ceil(2 * alone.us / expert.us))
    device = load.place.device
    if device.type == "cuda":
        sample = _sampled_on_gpu(layer, load, count)
    else:
        sample = partial(_sample_on_cpu, layer, load, min(count, 64))
    blocks = []
    for _ in range(BLOCKS):
        time.sleep(IDLE_S)
        taken = []
        for _ in range(SAMPLES):
            dist.barrier()
            settle(device)
            taken.append(sample())
        blocks.append(statistics.median(taken))
    return slowest(blocks, device, device.type == "cuda")


def _sampled_on_gpu(layer: DcpLayer, load: ExpertLoad, count: int) -> Callable[[], float]:
    busy, _ = captured(partial(repeat, load.run, count))
    once, _ = captured(layer.step)
    aside = torch.cuda.Stream()

    def sample() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(aside):
            busy()
        begin.record()
        once()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end) * 1e3)

    return sample


def _sample_on_cpu(layer: DcpLayer, load: ExpertLoad, count: int) -> float:
    under_way = [load.begin() for _ in range(count)]
    begin = time.perf_counter()
    layer.step()
    taken = (time.perf_counter() - begin) * 1e6
    for work in under_way:
        work.wait()
    return taken
