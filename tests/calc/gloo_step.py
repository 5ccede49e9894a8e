"""Eight real processes exchange what the simulated ranks exchange: latent attention, then experts.

Run as a program (needs torch): it prints one JSON line with the payload bytes of every stage and
the largest deviation from the plain form. torch.distributed moves float64; bytes are those of the
element types said to be on the wire, from the tensors handed to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from typing import Any

import numpy as np

from calc.reference import mla, moe

with contextlib.suppress(ModuleNotFoundError):  # pytest looks for doctests here without it too
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

RANKS, BATCH, HEADS = 8, 8, 16
SHAPE = mla.Shape(48, HEADS, 20, 16, 12, 6, 10)
BF16, FLOAT32 = 2, 4


class Exchanged:
    """Collectives over all processes that note the payload of each stage."""

    def __init__(self) -> None:
        self.payload: Counter[str] = Counter()

    def all_gather(self, stage: str, mine: Any, itemsize: int, axis: int = 0) -> Any:
        source = torch.from_numpy(np.ascontiguousarray(mine))
        parts = [torch.empty_like(source) for _ in range(RANKS)]
        dist.all_gather(parts, source)
        whole = np.concatenate([part.numpy() for part in parts], axis=axis)
        self.payload[stage] += whole.size * itemsize
        return whole

    def reduce_scatter(self, stage: str, mine: Any, itemsize: int, axis: int = 0) -> Any:
        self.payload[stage] += mine.size * itemsize
        blocks = np.stack(np.split(mine, RANKS, axis=axis))
        received = self._exchange(blocks)
        return received.sum(axis=0)

    def all_to_all(self, stage: str, blocks: Any, itemsize: int) -> Any:
        self.payload[stage] += blocks.size * itemsize
        return self._exchange(blocks)

    def all_reduce(self, stage: str, mine: Any, itemsize: int) -> Any:
        self.payload[stage] += mine.size * itemsize
        summed = torch.from_numpy(mine.copy())
        dist.all_reduce(summed)
        return summed.numpy()

    def _exchange(self, blocks: Any) -> Any:
        source = torch.from_numpy(np.ascontiguousarray(blocks))
        found = torch.empty_like(source)
        dist.all_to_all_single(found, source)
        return found.numpy()


def attention(rank: int, packed: bool, moved: Exchanged) -> float:
    """One layer of latent attention with tp = dcp = 8; its deviation from the plain form."""
    weights, rng = mla.random_weights(SHAPE), np.random.default_rng(5)
    contexts = [rng.normal(size=(length, 48)) for length in (3, 1, 26, 11, 7, 9, 2, 40)]
    hidden = np.stack([context[-1] for context in contexts])
    positions = np.array([len(context) - 1.0 for context in contexts])
    local = HEADS // RANKS
    mine = slice(rank * local, (rank + 1) * local)
    stripes = mla.striped_caches(weights, contexts, RANKS, RANKS)[rank]
    own = mla.absorbed_queries(weights, hidden, positions, mine)
    queries = moved.all_gather("gather_query", own, BF16, axis=1)
    output, lse = mla.partial_attention(SHAPE, queries, stripes)
    if packed:
        rows = np.zeros((*lse.shape, SHAPE.kv_latent + 2))
        rows[..., :-2], rows[..., -2] = output, lse
        blocks = np.stack(np.split(rows, RANKS, axis=1))
        arrived = moved.all_to_all("exchange_partials", blocks, BF16)
        share = mla.merge_weights(arrived[..., -2])[..., np.newaxis]
        merged = np.sum(share * arrived[..., :-2], axis=0)
    else:
        every = moved.all_gather("gather_lse", lse[np.newaxis], FLOAT32)
        corrected = output * mla.merge_weights(every)[rank][..., np.newaxis]
        merged = moved.reduce_scatter("reduce_partials", corrected, BF16, axis=1)
    values = np.einsum("bhc,chv->bhv", merged, weights.w_uv[:, mine])
    addend = np.einsum("bhv,hvo->bo", values, weights.w_o[mine])
    found = moved.all_reduce("o_proj", addend, BF16)
    wanted = mla.unsharded_attention(weights, contexts)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def experts(rank: int, moved: Exchanged) -> float:
    """Experts over eight attention replicas; the deviation from the plain form."""
    weights = moe.random_weights(48, 16, 16, 3)
    rows = np.random.default_rng(rank).normal(size=(BATCH, 48))
    ids, shares = moe.route(weights, rows)
    every = moved.all_gather("dispatch", rows, BF16)
    chosen = moved.all_gather("dispatch", ids.astype(float), FLOAT32)
    weight = moved.all_gather("dispatch", shares, FLOAT32)
    own = range(rank * 2, rank * 2 + 2)
    sums = moe.own_experts(weights, own, slice(None), every, chosen, weight)
    found = moved.reduce_scatter("combine", sums, BF16)
    wanted = moe.unsharded(weights, rows)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def work(rank: int, store: str, packed: bool) -> None:
    """What each process runs; the first one reports."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    moved = Exchanged()
    worst = torch.tensor(max(attention(rank, packed, moved), experts(rank, moved)))
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if rank == 0:
        sys.stdout.write(json.dumps({"payload": moved.payload, "worst": worst.item()}) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mp.spawn(work, args=(sys.argv[1], sys.argv[2] == "a2a"), nprocs=RANKS)
