"""The layers of a model in order: mixers, output projections, feed-forward parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from calc.collectives import Collective
from calc.layers import AnyFfn, AnyMixer, Attention, Indexer, LatentAttention, MoeFfn
from calc.model import Layer
from calc.traffic.attention import attention_stages, indexer_stages, latent_stages
from calc.traffic.experts import expert_stages, plan
from calc.traffic.prefill import latent_prefill_stages
from calc.traffic.stage import Stage, Work


def layer_stages(layers: Iterable[Layer], work: Work) -> Iterator[Stage]:
    """Stages of all layers; equal parts of different layers are counted together.

    Attention and feed-forward side by side (a parallel block) are summed in one
    all-reduce, unless tokens have to travel to their experts.
    """
    way = plan(work.layout, work.engine, work.options.moe_backend)
    fused = 0
    mixers: Counter[tuple[AnyMixer, bool, bool]] = Counter()
    ffns: Counter[tuple[AnyFfn, bool]] = Counter()
    for layer in layers:
        travels = way.backend is not None and any(isinstance(f, MoeFfn) for f in layer.ffns)
        one_sum = layer.parallel_block and bool(layer.mixers) and bool(layer.ffns) and not travels
        fused += layer.count if one_sum else 0
        divides = travels and way.divided and work.splits_before_experts
        for mixer in layer.mixers:
            mixers[mixer, one_sum, divides] += layer.count
        for ffn in layer.ffns:
            ffns[ffn, one_sum] += layer.count
    for (mixer, one_sum, divides), count in mixers.items():
        yield from _mixer_stages(mixer, count, work)
        if mixer.projects_output and not one_sum:
            yield from _output_projection(mixer, count, work, divides)
    for (ffn, one_sum), count in ffns.items():
        if isinstance(ffn, MoeFfn) and not one_sum:
            yield from expert_stages(ffn, count, work)
        elif not one_sum:
            yield from work.summed("ffn", ffn.kind, count)
    if fused:
        yield from work.summed("parallel_block", "model", fused)


def _mixer_stages(mixer: AnyMixer, layers: int, work: Work) -> Iterator[Stage]:
    if isinstance(mixer, LatentAttention):
        # a prefill chunk is attended with K and V written out, unless the layer is sparse
        unabsorbed = work.prefix is not None and not mixer.sparse
        stages = latent_prefill_stages if unabsorbed else latent_stages
        yield from stages(mixer, layers, work)
    elif isinstance(mixer, Attention):
        yield from attention_stages(mixer, layers, work)
    elif isinstance(mixer, Indexer):
        yield from indexer_stages(mixer, layers, work)


def _output_projection(mixer: AnyMixer, layers: int, work: Work, divides: bool) -> Iterator[Stage]:
    """Summed over tp; where the experts take divided rows, only as far as those."""
    number = 8 if isinstance(mixer, LatentAttention) else 0
    if divides:
        rows = work.divided_tokens * work.layout.tp
        yield work.hidden_rows(
            "o_proj", mixer.kind, layers, Collective.REDUCE_SCATTER, rows=rows, number=number
        )
    else:
        yield from work.summed("o_proj", mixer.kind, layers, number=number)
