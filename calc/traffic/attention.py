"""Stages of an attention layer: from the hidden state to the output projection.

Under DCP each rank attends with the query heads of its whole DCP group over
its own stripe of tokens, and the partial outputs are merged by their
log-sum-exp. What is gathered and exchanged does not depend on the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from calc.collectives import Collective
from calc.items import Item, Status, formula
from calc.layers import Attention, Growth, Indexer, LatentAttention
from calc.traffic.stage import BF16, DTYPES, Stage, Work
from calc.units import Number, exact_div

FLOAT32 = 4


@formula(unit="heads", source="query heads are split over tp and gathered over dcp")
def heads_in_group(heads: int, tp: int, dcp: int) -> int:
    """Query heads that attend over one rank's stripe."""
    return exact_div(heads, tp) * dcp


@formula(unit="B", source="a tensor of tokens x heads x width elements")
def per_head_bytes(tokens: Number, group_heads: int, width: int, element_bytes: int) -> Number:
    """Queries or partial outputs of the heads of a DCP group."""
    return tokens * group_heads * width * element_bytes


@formula(
    unit="B",
    source="vLLM 0.33 v1/attention/ops/dcp.py; SGLang 0.5.23 layers/dcp/comm.py",
    status=Status.ENGINE,
)
def packed_partials_bytes(
    tokens: Number, group_heads: int, width: int, statistics: int, element_bytes: int
) -> Number:
    """Partial outputs, each with the elements that carry its log-sum-exp."""
    return tokens * group_heads * (width + statistics) * element_bytes


@formula(
    unit="B",
    source="vLLM 0.33 v1/attention/ops/dcp.py; SGLang 0.5.23 layers/dcp/comm.py",
    status=Status.ENGINE,
)
def gathered_statistics_bytes(
    ranks: int, tokens: Number, group_heads: int, element_bytes: int
) -> Number:
    """The float32 log-sum-exp of every head and token, from every rank."""
    return ranks * tokens * group_heads * element_bytes


@formula(
    unit="B",
    source="vLLM 0.33 model_executor/layers/sparse_attn_indexer.py _merge_dcp_topk_global",
    status=Status.ENGINE,
)
def gathered_candidates_bytes(ranks: int, tokens: Number, top_k: int) -> Number:
    """A float32 score and a 32-bit id of each rank's best tokens, from every rank."""
    return ranks * tokens * top_k * 8


@dataclass(frozen=True, slots=True)
class Exchange:
    """What attention layers of one kind gather and merge over the DCP group."""

    kind: str
    layers: int
    heads: int
    query_width: int
    output_width: int
    reduces_whole_output: bool = False
    """K/V attention in SGLang all-reduces the output and slices it (no reduce-scatter)."""

    def group_heads(self, work: Work) -> Item:
        """Query heads of the DCP group."""
        return heads_in_group.item(
            f"{self.kind}.group_heads",
            heads=self.heads,
            tp=work.layout.tp,
            dcp=work.layout.dcp,
        )

    def gather_query(self, work: Work) -> Stage:
        """Every rank's queries to every rank of the group; nothing when they are replicated."""
        group = self.group_heads(work)
        shape = (work.tokens, group.value, self.query_width)
        dtype = DTYPES[work.query_bytes]
        stage = Stage("gather_query", self.kind, self.layers, "layer", shape, dtype, 4)
        if work.query_replicated:
            return replace(stage, drafts=work.drafts)
        payload = per_head_bytes.item(
            f"{self.kind}.gather_query.payload",
            tokens=work.tokens,
            group_heads=group,
            width=self.query_width,
            element_bytes=work.query_bytes,
        )
        return work.moved(stage, Collective.ALL_GATHER, "dcp", work.layout.dcp, payload)

    def merge(self, work: Work) -> Iterator[Stage]:
        """Partial outputs to the owners of their heads."""
        if work.backend.packed_statistics is None:
            yield self._gather_statistics(work)
            yield self._reduce_output(work)
        else:
            yield self._exchange_partials(work, work.backend.packed_statistics)

    def _exchange_partials(self, work: Work, statistics: int) -> Stage:
        group = self.group_heads(work)
        payload = packed_partials_bytes.item(
            f"{self.kind}.exchange_partials.payload",
            tokens=work.tokens,
            group_heads=group,
            width=self.output_width,
            statistics=statistics,
            element_bytes=BF16,
        )
        shape = (work.tokens, group.value, self.output_width + statistics)
        stage = Stage("exchange_partials", self.kind, self.layers, "layer", shape, "bf16", 6)
        return work.moved(stage, Collective.ALL_TO_ALL, "dcp", work.layout.dcp, payload)

    def _gather_statistics(self, work: Work) -> Stage:
        group = self.group_heads(work)
        payload = gathered_statistics_bytes.item(
            f"{self.kind}.gather_lse.payload",
            ranks=work.layout.dcp,
            tokens=work.tokens,
            group_heads=group,
            element_bytes=FLOAT32,
        )
        shape = (work.layout.dcp, work.tokens, group.value)
        stage = Stage("gather_lse", self.kind, self.layers, "layer", shape, "float32", 6)
        return work.moved(stage, Collective.ALL_GATHER, "dcp", work.layout.dcp, payload)

    def _reduce_output(self, work: Work) -> Stage:
        group = self.group_heads(work)
        collective = Collective.REDUCE_SCATTER
        element_bytes = work.backend.output_bytes
        if self.reduces_whole_output:
            collective, element_bytes = Collective.ALL_REDUCE, BF16
        payload = per_head_bytes.item(
            f"{self.kind}.reduce_partials.payload",
            tokens=work.tokens,
            group_heads=group,
            width=self.output_width,
            element_bytes=element_bytes,
        )
        shape = (work.tokens, group.value, self.output_width)
        dtype = DTYPES[element_bytes]
        stage = Stage("reduce_partials", self.kind, self.layers, "layer", shape, dtype, 6)
        return work.moved(stage, collective, "dcp", work.layout.dcp, payload)


def latent_stages(mixer: LatentAttention, layers: int, work: Work) -> Iterator[Stage]:
    """Stages 1 to 7 of absorbed latent attention; the output projection follows."""
    tokens, kind = work.tokens, mixer.kind
    own = work.heads_per_rank(mixer.heads)
    exchange = Exchange(kind, layers, mixer.heads, mixer.row_elements, mixer.kv_lora_rank)
    computed = own * work.layout.dcp if work.query_replicated else own
    group = exchange.group_heads(work).value

    def computes(name: str, number: int, *shape: int) -> Stage:
        return Stage(
            name, kind, layers, "layer", (tokens, *shape), "bf16", number, drafts=work.drafts
        )

    q_width = mixer.q_lora_rank or own * (mixer.nope_dim + mixer.rope_dim)
    yield computes("down_projection", 1, mixer.row_elements + q_width)
    yield from gather_new_rows(kind, mixer.row_elements, layers, work)
    yield computes("cache_write", 2, mixer.row_elements)
    yield computes("query_up_projection", 3, computed, mixer.nope_dim + mixer.rope_dim)
    yield computes("query_absorption", 3, computed, mixer.row_elements)
    if work.layout.dcp > 1:
        yield exchange.gather_query(work)
    yield computes("attention", 5, group, mixer.kv_lora_rank)
    if work.layout.dcp > 1:
        yield from exchange.merge(work)
    yield computes("value_up_projection", 7, own, mixer.v_dim)


def attention_stages(mixer: Attention, layers: int, work: Work) -> Iterator[Stage]:
    """Projections, cache write and attention of a K/V layer; the output projection follows.

    Without a cached prefix a prefill step has nothing to attend to on other ranks.
    """
    tokens, kind, drafts = work.tokens, mixer.kind, work.drafts
    own = work.heads_per_rank(mixer.heads)
    whole_output = work.engine.reduces_whole_kv_output
    exchange = Exchange(kind, layers, mixer.heads, mixer.k_dim, mixer.v_dim, whole_output)
    group = exchange.group_heads(work).value
    striped = work.layout.dcp > 1 and work.prefix != 0 and mixer.growth is Growth.GROWING
    attending = group if striped else own

    def computes(name: str, *shape: int) -> Stage:
        return Stage(name, kind, layers, "layer", (tokens, *shape), "bf16", drafts=drafts)

    yield computes("query_projection", own, mixer.k_dim)
    if striped:
        yield exchange.gather_query(work)
    yield computes("attention", attending, mixer.v_dim)
    if striped:
        yield from exchange.merge(work)


def indexer_stages(mixer: Indexer, layers: int, work: Work) -> Iterator[Stage]:
    """The indexer of sparse attention: it scores the cached tokens and names the best.

    Striped keys give each rank only its own best; exact merging needs everyone's
    scores and ids. An engine that keeps all keys on every rank sends nothing.
    """
    tokens, kind, dcp = work.tokens, mixer.kind, work.layout.dcp
    yield from gather_new_rows(kind, mixer.index_dim, layers, work)
    shape = (tokens, mixer.top_k)
    yield Stage("index_scores", kind, layers, "layer", shape, "float32", drafts=work.drafts)
    if dcp == 1 or not work.engine.stripes_indexer:
        return
    payload = gathered_candidates_bytes.item(
        f"{kind}.merge_top_k.payload", ranks=dcp, tokens=tokens, top_k=mixer.top_k
    )
    stage = Stage("merge_top_k", kind, layers, "layer", (tokens, dcp * mixer.top_k, 2), "float32")
    yield work.moved(stage, Collective.ALL_GATHER, "dcp", dcp, payload)


def gather_new_rows(kind: str, width: int, layers: int, work: Work) -> Iterator[Stage]:
    """Under pcp every rank caches every token, so the ranks gather each other's new rows."""
    pcp = work.layout.pcp
    if pcp > 1:
        yield work.hidden_rows(
            "gather_new_rows",
            kind,
            layers,
            Collective.ALL_GATHER,
            width=width,
            rows=pcp * work.tokens,
            group="pcp",
            group_size=pcp,
        )
