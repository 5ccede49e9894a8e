"""One latent layer's decode over real ranks: gather queries, attend, exchange, merge.

Each rank has its stripe of tokens and its own heads' queries. The result of
its heads must equal unsharded attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from gpu.problem import Problem, empty_cache, problem, reference, relative
from gpu.shapes import AttentionShape

Attend = Callable[[Problem], Callable[[], tuple[Any, Any]]]


class DcpLayer:
    """Tensors and steps of one rank; ``step`` can be captured in a graph.

    ``shape`` is the whole problem: all heads of the group, all tokens. Queries
    are kept head-major ([heads, B, d]) so that the gathered ones need no copy.
    """

    def __init__(self, shape: AttentionShape, rank: int, ranks: int, attend: Attend, device: Any):
        self.ranks, self.rank = ranks, rank
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        whole = problem(shape, empty_cache(shape, device, kind), seed=7)
        self.whole = whole
        own = shape.heads // ranks
        self.own = slice(rank * own, (rank + 1) * own)
        self.q_own = whole.q[:, self.own].transpose(0, 1).contiguous()
        self.q_all = torch.empty(shape.heads, shape.batch, shape.k_dim, device=device, dtype=kind)
        stripe = whole.k[:, rank::ranks].contiguous()
        local = replace(shape, tokens=stripe.shape[1], wanted_tokens=stripe.shape[1])
        self.task = Problem(local, torch.empty_like(whole.q), stripe, stripe)
        self.attend = attend(self.task)
        size = (ranks, shape.batch, own, shape.v_dim)
        self.out_sent = torch.empty(size, device=device, dtype=kind)
        self.lse_sent = torch.empty(size[:-1], device=device)
        self.out_got, self.lse_got = (
            torch.empty_like(self.out_sent),
            torch.empty_like(self.lse_sent),
        )

    def step(self) -> Any:
        """All stages once; [B, own heads, v_dim]."""
        dist.all_gather_into_tensor(self.q_all, self.q_own)
        self.task.q.copy_(self.q_all.transpose(0, 1))
        out, lse = self.attend()
        shape = self.task.shape
        own = shape.heads // self.ranks
        split = out.view(shape.batch, self.ranks, own, shape.v_dim)
        self.out_sent.copy_(split.transpose(0, 1))
        self.lse_sent.copy_(lse.view(shape.batch, self.ranks, own).transpose(0, 1))
        dist.all_to_all_single(self.out_got, self.out_sent)
        dist.all_to_all_single(self.lse_got, self.lse_sent)
        weights = torch.softmax(self.lse_got, 0)
        return (weights[..., None] * self.out_got.float()).sum(0)

    def error(self) -> float:
        """Largest relative error of this rank's heads over the requests."""
        found = self.step()
        worst = 0.0
        for request in range(self.whole.shape.batch):
            expected, _ = reference(self.whole, request)
            worst = max(worst, relative(found[request], expected[self.own]))
        return worst
