"""One latent layer's decode over real ranks: gather queries, attend, exchange, merge.

Each rank has its stripe of tokens and its own heads' queries. The result of
its heads must equal unsharded attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist

from gpu.problem import Problem, empty_cache, problem, reference, relative
from gpu.shapes import AttentionShape

Attend = Callable[[Problem], Callable[[], tuple[Any, Any]]]
Exchange = Literal["a2a", "ag_rs"]


def working_type(device: Any) -> Any:
    """What tensors are made of: bf16 on a GPU; on a CPU fp32, which shows every mistake."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


class DcpLayer:
    """Tensors and steps of one rank; ``step`` can be captured in a graph.

    ``task`` holds the rank's stripe and has room for the queries of all heads of
    the group. ``q_own`` are its own heads' queries, head-major ([heads, B, d]),
    so that the gathered ones need no copy. ``a2a``: partial outputs and their
    log-sum-exp go to the heads' owners, who merge them. ``ag_rs``: the
    log-sum-exp are gathered, and a sum of the scaled outputs is scattered.
    """

    def __init__(
        self, task: Problem, q_own: Any, ranks: int, attend: Attend, exchange: Exchange = "a2a"
    ) -> None:
        shape = task.shape
        self.task, self.q_own, self.ranks = task, q_own, ranks
        self.own = shape.heads // ranks
        self.attend = attend(task)
        self.exchange = self._all_to_all if exchange == "a2a" else self._gather_and_scatter
        device, kind = task.device, task.q.dtype
        self.q_all = torch.empty(shape.heads, shape.batch, shape.k_dim, device=device, dtype=kind)
        size = (ranks, shape.batch, self.own, shape.v_dim)
        self.out_sent = torch.empty(size, device=device, dtype=kind)
        self.out_got = torch.empty_like(self.out_sent)
        self.lse_sent = torch.empty(size[:-1], device=device)
        self.lse_got = torch.empty_like(self.lse_sent)
        self.lse_all = torch.empty(ranks * shape.batch, shape.heads, device=device)
        self.scaled = torch.empty(shape.heads, shape.batch, shape.v_dim, device=device, dtype=kind)
        self.summed = torch.empty(self.own, shape.batch, shape.v_dim, device=device, dtype=kind)

    def step(self) -> Any:
        """All stages once; [B, own heads, v_dim]."""
        dist.all_gather_into_tensor(self.q_all, self.q_own)
        self.task.q.copy_(self.q_all.transpose(0, 1))
        return self.exchange(*self.attend())

    def _all_to_all(self, out: Any, lse: Any) -> Any:
        shape = self.task.shape
        split = out.view(shape.batch, self.ranks, self.own, shape.v_dim)
        self.out_sent.copy_(split.transpose(0, 1))
        self.lse_sent.copy_(lse.view(shape.batch, self.ranks, self.own).transpose(0, 1))
        dist.all_to_all_single(self.out_got, self.out_sent)
        dist.all_to_all_single(self.lse_got, self.lse_sent)
        return self._merged()

    def _merged(self) -> Any:
        if self.out_got.device.type != "cuda":
            weights = torch.softmax(self.lse_got, 0)
            return (weights[..., None] * self.out_got.float()).sum(0)
        from gpu.own import merge

        total = torch.empty_like(self.lse_got[0])
        return merge(
            self.out_got, self.lse_got, torch.empty_like(self.out_got[0]), total, part_axis=0
        )[0]

    def _gather_and_scatter(self, out: Any, lse: Any) -> Any:
        dist.all_gather_into_tensor(self.lse_all, lse.contiguous())
        stripes = self.lse_all.view(self.ranks, *lse.shape)
        weight = torch.exp(lse - torch.logsumexp(stripes, 0))
        self.scaled.copy_((out * weight[..., None]).transpose(0, 1))
        dist.reduce_scatter_tensor(self.summed, self.scaled)
        return self.summed.transpose(0, 1)


def layer_error(
    shape: AttentionShape,
    rank: int,
    ranks: int,
    attend: Attend,
    device: Any,
    exchange: Exchange = "a2a",
) -> float:
    """Largest relative error of this rank's heads against unsharded attention in fp32.

    ``shape`` is the whole problem: all heads of the group, all tokens. Every rank
    makes it from the same seed; stripe r holds the tokens with index r mod ``ranks``.
    """
    whole = problem(shape, empty_cache(shape, device, working_type(device)), seed=7)
    for part in range(ranks):  # stripes whose log-sum-exp differ: an even merge would go unnoticed
        whole.k[:, part::ranks] *= 0.25 + 1.5 * part / ranks
    own = shape.heads // ranks
    mine = slice(rank * own, (rank + 1) * own)
    stripe = whole.k[:, rank::ranks].contiguous()
    local = replace(shape, tokens=stripe.shape[1], wanted_tokens=stripe.shape[1])
    task = Problem(local, torch.zeros_like(whole.q), stripe, stripe)
    queries = whole.q[:, mine].transpose(0, 1).contiguous()
    found = DcpLayer(task, queries, ranks, attend, exchange).step()
    worst = 0.0
    for request in range(shape.batch):
        expected, _ = reference(whole, request)
        error = relative(found[request], expected[mine])
        worst = max(worst, error) if error == error else float("inf")
    return worst
