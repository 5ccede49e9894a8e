"""What a prefill chunk moves that a decode step does not."""

from __future__ import annotations

from collections.abc import Iterator

from calc.collectives import Collective
from calc.items import Item, Status, formula
from calc.layers import LatentAttention
from calc.traffic.attention import gather_new_rows
from calc.traffic.stage import Stage, Work
from calc.units import Number


@formula(
    unit="B",
    source="vLLM 0.33 model_executor/layers/attention/mla_attention.py (chunked context)",
    status=Status.ENGINE,
)
def prefix_rows_bytes(tokens: Number, row_bytes: int) -> Number:
    """Cached rows of a prefix, as they are stored."""
    return tokens * row_bytes


def latent_prefill_stages(mixer: LatentAttention, layers: int, work: Work) -> Iterator[Stage]:
    """Latent attention over a chunk, with K and V of the local heads written out.

    The cached prefix lies striped over dcp and is gathered as latent rows; the
    chunk itself is on every rank already (under pcp: after its gather).
    """
    tokens, kind, prefix = work.tokens, mixer.kind, work.prefix or 0
    own = work.heads_per_rank(mixer.heads)
    query_dim = mixer.nope_dim + mixer.rope_dim

    def computes(name: str, *shape: int) -> Stage:
        return Stage(name, kind, layers, "layer", shape, "bf16", drafts=work.drafts)

    q_width = mixer.q_lora_rank or own * query_dim
    attended = prefix + tokens * work.layout.pcp
    yield computes("down_projection", tokens, mixer.row_elements + q_width)
    yield from gather_new_rows(kind, mixer.row_elements, layers, work)
    yield computes("cache_write", tokens * work.layout.pcp, mixer.row_elements)
    yield computes("query_up_projection", tokens, own, query_dim)
    if prefix and work.layout.dcp > 1:
        yield _gather_prefix(mixer, layers, prefix, work)
    yield computes("kv_up_projection", attended, own, mixer.nope_dim + mixer.v_dim)
    yield computes("attention", tokens, own, mixer.v_dim)


def _gather_prefix(mixer: LatentAttention, layers: int, prefix: int, work: Work) -> Stage:
    row: Item = work.latent_row(mixer)
    payload = prefix_rows_bytes.item(
        f"{mixer.kind}.gather_prefix.payload", tokens=prefix, row_bytes=row
    )
    shape = (prefix, mixer.row_elements)
    stage = Stage("gather_prefix", mixer.kind, layers, "layer", shape, work.kv_format)
    return work.moved(stage, Collective.ALL_GATHER, "dcp", work.layout.dcp, payload)
