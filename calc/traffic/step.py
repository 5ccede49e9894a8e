"""A step: all stages of a model in order, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from calc.engines import Engine
from calc.errors import CalcError
from calc.items import Item, formula, total
from calc.layers import LatentAttention, MoeFfn, Sharding
from calc.layout import Layout
from calc.model import Layer, ModelSpec
from calc.traffic.alternatives import Alternative, alternatives
from calc.traffic.ends import embedding, gather_boundary, logits, send_boundary, token_broadcast
from calc.traffic.experts import plan
from calc.traffic.feed_forward import layer_stages
from calc.traffic.stage import Options, Stage, Work
from calc.units import Number, ceil_div


@formula(unit="tokens", source="a verified request brings its last token and the proposed ones")
def step_tokens(batch: Number, speculative_tokens: int) -> Number:
    """Tokens of one replica in a decode step."""
    return batch * (1 + speculative_tokens)


@formula(unit="B", source="all ranks of a pipeline stage in all replicas send the same")
def over_ranks(sent_bytes: Number, tp: int, pcp: int, dp: int) -> Number:
    """Bytes sent per step by the ranks of one pipeline stage of the whole deployment."""
    return sent_bytes * tp * pcp * dp


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a replica.

    ``pipeline`` has the stages of each pipeline stage and ``per_rank`` what one
    of its ranks sends; ``stages`` is the list of the whole model. ``tokens`` are
    those of the replica. ``alternatives`` are what a layer of latent attention
    could send instead.
    """

    stages: tuple[Stage, ...]
    pipeline: tuple[tuple[Stage, ...], ...]
    per_rank: tuple[Item, ...]
    all_ranks: Item
    tokens: Number
    work: Work
    layers: tuple[Layer, ...]

    @property
    def sent_per_rank(self) -> Item:
        """What a rank of the pipeline stage sends that sends most."""
        return max(self.per_rank, key=lambda item: item.value)

    @property
    def moe_backend(self) -> str | None:
        """How tokens get to experts; None where they are there already or there are none."""
        if not any(isinstance(ffn, MoeFfn) for layer in self.layers for ffn in layer.ffns):
            return None
        return plan(self.work.layout, self.work.engine, self.work.options.moe_backend).backend

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """For each kind of latent attention, over its layers."""
        counts: Counter[LatentAttention] = Counter()
        for layer in self.layers:
            for mixer in layer.mixers:
                if isinstance(mixer, LatentAttention):
                    counts[mixer] += layer.count
        return tuple(
            way for mixer, count in counts.items() for way in alternatives(mixer, count, self.work)
        )


def decode_step(
    model: ModelSpec,
    layout: Layout,
    engine: Engine,
    batch: int,
    backend: str,
    query_replicated: bool,
    options: Options | None = None,
) -> Step:
    """The stages of one decode step for ``batch`` requests on each replica."""
    options = options or Options()
    tokens = step_tokens(batch, options.speculative_tokens)
    work = _work(model, layout, engine, backend, query_replicated, options, tokens, tokens)
    drafting = None
    if options.speculative_tokens and model.mtp_layers:
        drafting = replace(_rows(work, batch, batch), drafts=True)
        if not engine.stripes_drafts:  # each rank keeps all rows of the MTP layers
            drafting = replace(drafting, layout=replace(layout, dcp=1), query_replicated=False)
    return _step(model, work, tokens, drafting)


def prefill_step(
    model: ModelSpec,
    place: Sharding,
    layout: Layout,
    backend: str,
    query_replicated: bool,
    tokens: int,
    prefix: int,
    options: Options | None = None,
) -> Step:
    """The stages of one prefill chunk: ``tokens`` new ones of a request behind a cached prefix."""
    options = options or Options()
    work = _work(
        model, layout, place.engine, backend, query_replicated, options, tokens, layout.pcp
    )
    return _step(model, replace(work, prefix=prefix, place=place), tokens, None)


def _work(
    model: ModelSpec,
    layout: Layout,
    engine: Engine,
    backend: str,
    query_replicated: bool,
    options: Options,
    tokens: int,
    sampled: int,
) -> Work:
    if options.sequence_parallel and not engine.can_split_sequence:
        raise CalcError("sequence_parallel", engine=engine.name)
    work = Work(
        tokens,
        model.hidden_size,
        layout,
        engine,
        engine.backends[backend],
        query_replicated,
        options,
        boundary_tensors=model.boundary_tensors,
        splits_before_experts=engine.splits_before_experts(model, layout.pp),
    )
    return _rows(work, tokens, sampled)


def _rows(work: Work, tokens: int, sampled: int) -> Work:
    """The rows of one rank: under pcp its part of a replica's tokens."""
    pcp = work.layout.pcp
    return replace(work, tokens=ceil_div(tokens, pcp), sampled=ceil_div(sampled, pcp))


def _step(model: ModelSpec, work: Work, tokens: Number, drafting: Work | None) -> Step:
    layout = work.layout
    last = layout.pp - 1

    def drafts() -> Iterator[Stage]:
        if drafting is not None:
            yield from _draft_stages(model, drafting)

    def on_rank(layers: tuple[Layer, ...], index: int) -> tuple[Stage, ...]:
        return (
            *_stages(
                layers,
                work,
                first=index == 0,
                vocabulary=model.vocab_size if index == last else 0,
                sends=int(index < last),
                receives=int(index > 0),
            ),
            *(drafts() if index == last else ()),
            *token_broadcast(work),
        )

    alike: dict[tuple[tuple[Layer, ...], bool, bool], tuple[Stage, ...]] = {}
    pipeline: tuple[tuple[Stage, ...], ...] = ()
    for index, layers in enumerate(model.stages(layout.pp, layout.stage_layers)):
        same = (layers, index == 0, index == last)
        if same not in alike:
            alike[same] = on_rank(layers, index)
        pipeline = (*pipeline, alike[same])
    whole = pipeline[0]
    if last:
        everything = model.stages(1)[0]
        whole = (
            *_stages(everything, work, True, model.vocab_size, last, last),
            *drafts(),
            *token_broadcast(work),
        )
    per_rank = tuple(
        total(f"traffic.stage{index}", "B", _sums(stages)) for index, stages in enumerate(pipeline)
    )
    everywhere = total(
        "traffic.all_ranks",
        "B",
        [
            over_ranks.item(
                f"{item.key}.ranks", sent_bytes=item, tp=layout.tp, pcp=layout.pcp, dp=layout.dp
            )
            for item in per_rank
        ],
    )
    return Step(whole, pipeline, per_rank, everywhere, tokens, work, model.stages(1)[0])


def _sums(stages: Iterable[Stage]) -> Iterator[Item]:
    for stage in stages:
        per_step = stage.per_step
        if per_step is not None:
            yield per_step


def _stages(
    layers: tuple[Layer, ...],
    work: Work,
    first: bool,
    vocabulary: int,
    sends: int,
    receives: int,
) -> Iterator[Stage]:
    """Stages of some layers, with the model's ends and pipeline boundaries that belong to them."""
    if first:
        yield embedding(work)
    if receives:
        yield from gather_boundary(work, receives)
    yield from layer_stages(layers, work)
    if sends:
        yield send_boundary(work, sends)
    if vocabulary:
        yield logits(vocabulary, work)


def _draft_stages(model: ModelSpec, work: Work) -> Iterator[Stage]:
    """Each proposed token is one forward of a drafting layer; further ones start over with the
    first layer."""
    forwards = work.options.speculative_tokens
    count = sum(layer.count for layer in model.mtp_layers)
    singles = [layer for layer in model.mtp_layers for _ in range(layer.count)]
    runs = [
        layer.model_copy(update={"count": ceil_div(forwards - index, count)})
        for index, layer in enumerate(singles)
        if index < forwards
    ]
    yield embedding(work, forwards)
    yield from layer_stages(runs, work)
    yield logits(model.vocab_size, work, forwards)
