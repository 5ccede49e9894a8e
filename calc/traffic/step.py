"""The decode step: all stages of a model in order, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calc.collectives import Collective
from calc.engines import Engine
from calc.items import Item, Status, formula, total
from calc.layers import AnyFfn, AnyMixer, Attention, LatentAttention, MoeFfn
from calc.layout import Layout
from calc.model import Layer, ModelSpec
from calc.traffic.attention import attention_stages, latent_stages
from calc.traffic.stage import BF16, Stage, Work
from calc.units import Number, exact_div, round_up


@formula(
    unit="B",
    source="vLLM 0.33 layers/logits_processor.py; vocabulary padded to a multiple of 64",
    status=Status.ENGINE,
)
def logits_bytes(batch: Number, vocab_size: int, element_bytes: int) -> Number:
    """Logits of every request over the whole vocabulary."""
    return batch * round_up(vocab_size, 64) * element_bytes


@formula(
    unit="B",
    source="vLLM 0.33 distributed/parallel_state.py isend_tensor_dict",
    status=Status.ENGINE,
)
def boundary_sent_bytes(tokens: Number, hidden_size: int, element_bytes: int, tp: int) -> Number:
    """Hidden and residual tensors of a pipeline boundary; each rank sends its part,
    or the whole of them where a tensor cannot be cut into equal parts."""
    return (
        exact_div(2 * tokens * hidden_size * element_bytes, tp)
        if tokens * hidden_size % tp == 0
        else 2 * tokens * hidden_size * element_bytes
    )


@formula(
    unit="B",
    source="vLLM 0.33 distributed/parallel_state.py irecv_tensor_dict",
    status=Status.ENGINE,
)
def boundary_gathered_bytes(tokens: Number, hidden_size: int, element_bytes: int) -> Number:
    """Hidden and residual tensors, gathered over tp by the receiving stage."""
    return 2 * tokens * hidden_size * element_bytes


@formula(unit="B", source="all ranks of a pipeline stage in all replicas send the same")
def over_ranks(sent_bytes: Number, tp: int, dp: int) -> Number:
    """Bytes sent per step by the ranks of one pipeline stage of the whole deployment."""
    return sent_bytes * tp * dp


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step of a replica.

    ``pipeline`` has the stages of each pipeline stage and ``per_rank`` what one
    of its ranks sends; ``stages`` is the list of the whole model.
    """

    stages: tuple[Stage, ...]
    pipeline: tuple[tuple[Stage, ...], ...]
    per_rank: tuple[Item, ...]
    all_ranks: Item

    @property
    def sent_per_rank(self) -> Item:
        """What a rank of the pipeline stage sends that sends most."""
        return max(self.per_rank, key=lambda item: item.value)


def decode_step(
    model: ModelSpec,
    layout: Layout,
    engine: Engine,
    batch: int,
    backend: str,
    query_replicated: bool,
) -> Step:
    """The stages of one decode step for ``batch`` requests on each replica."""
    work = Work(
        batch, model.hidden_size, layout, engine, engine.backends[backend], query_replicated
    )
    last = layout.pp - 1
    pipeline = tuple(
        tuple(
            _stages(
                layers,
                work,
                embedding=index == 0,
                vocabulary=model.vocab_size if index == last else 0,
                sends=int(index < last),
                receives=int(index > 0),
            )
        )
        for index, layers in enumerate(model.stages(layout.pp))
    )
    whole = pipeline[0]
    if last:
        everything = model.stages(1)[0]
        whole = tuple(_stages(everything, work, True, model.vocab_size, last, last))
    per_rank = tuple(
        total(f"traffic.stage{index}", "B", _sums(stages)) for index, stages in enumerate(pipeline)
    )
    everywhere = total(
        "traffic.all_ranks",
        "B",
        [
            over_ranks.item(f"{item.key}.ranks", sent_bytes=item, tp=layout.tp, dp=layout.dp)
            for item in per_rank
        ],
    )
    return Step(whole, pipeline, per_rank, everywhere)


def _sums(stages: Iterable[Stage]) -> Iterator[Item]:
    for stage in stages:
        per_step = stage.per_step
        if per_step is not None:
            yield per_step


def _stages(
    layers: tuple[Layer, ...],
    work: Work,
    embedding: bool,
    vocabulary: int,
    sends: int,
    receives: int,
) -> Iterator[Stage]:
    """Stages of some layers, with the model's ends and pipeline boundaries that belong to them."""
    if embedding:
        yield work.all_reduce("embedding", "model", 1, work.hidden_size, per="step")
    if receives and work.tokens * work.hidden_size % work.layout.tp == 0:
        yield _gather_boundary(work, receives)
    yield from _layer_stages(layers, work)
    if sends:
        yield _send_boundary(work, sends)
    if vocabulary:
        yield _logits(vocabulary, work)


def _layer_stages(layers: tuple[Layer, ...], work: Work) -> Iterator[Stage]:
    """Stages of all layers; equal parts of different layers are counted together."""
    fused: Counter[bool] = Counter()
    mixers: Counter[tuple[AnyMixer, bool]] = Counter()
    ffns: Counter[tuple[AnyFfn, bool]] = Counter()
    for layer in layers:
        one_sum = layer.parallel_block and bool(layer.mixers) and bool(layer.ffns)
        fused[one_sum] += layer.count
        for mixer in layer.mixers:
            mixers[mixer, one_sum] += layer.count
        for ffn in layer.ffns:
            ffns[ffn, one_sum] += layer.count
    for (mixer, one_sum), count in mixers.items():
        if isinstance(mixer, LatentAttention):
            yield from latent_stages(mixer, count, work)
        elif isinstance(mixer, Attention):
            yield from attention_stages(mixer, count, work)
        if mixer.projects_output and not one_sum:
            number = 8 if isinstance(mixer, LatentAttention) else 0
            yield work.all_reduce("o_proj", mixer.kind, count, work.hidden_size, number=number)
    for (ffn, one_sum), count in ffns.items():
        if not one_sum:
            yield from _feed_forward(ffn, count, work)
    if fused[True]:
        yield work.all_reduce("parallel_block", "model", fused[True], work.hidden_size)


def _feed_forward(ffn: AnyFfn, layers: int, work: Work) -> Iterator[Stage]:
    """Routed and shared experts are summed before one all-reduce, unless their widths differ."""
    if isinstance(ffn, MoeFfn) and ffn.latent_size is not None:
        yield work.all_reduce("routed_experts", ffn.kind, layers, ffn.latent_size)
        if ffn.shared_intermediate_size:
            yield work.all_reduce("shared_experts", ffn.kind, layers, work.hidden_size)
    else:
        yield work.all_reduce("ffn", ffn.kind, layers, work.hidden_size)


def _send_boundary(work: Work, boundaries: int) -> Stage:
    payload = boundary_sent_bytes.item(
        "model.pipeline_send.payload",
        tokens=work.tokens,
        hidden_size=work.hidden_size,
        element_bytes=BF16,
        tp=work.layout.tp,
    )
    shape = (2, payload.value // (2 * BF16))
    stage = Stage("pipeline_send", "model", boundaries, "step", shape, "bf16")
    return stage.moved_by(Collective.SEND, "pp", work.layout.pp, payload)


def _gather_boundary(work: Work, boundaries: int) -> Stage:
    payload = boundary_gathered_bytes.item(
        "model.pipeline_gather.payload",
        tokens=work.tokens,
        hidden_size=work.hidden_size,
        element_bytes=BF16,
    )
    shape = (2, work.tokens, work.hidden_size)
    stage = Stage("pipeline_gather", "model", boundaries, "step", shape, "bf16")
    return stage.moved_by(Collective.ALL_GATHER, "tp", work.layout.tp, payload)


def _logits(vocabulary: int, work: Work) -> Stage:
    payload = logits_bytes.item(
        "model.logits.payload", batch=work.tokens, vocab_size=vocabulary, element_bytes=BF16
    )
    shape = (work.tokens, round_up(vocabulary, 64))
    stage = Stage("logits", "model", 1, "step", shape, "bf16")
    return stage.moved_by(Collective.ALL_GATHER, "tp", work.layout.tp, payload)
