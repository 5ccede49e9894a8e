"""The model's two ends and the boundaries between pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator

from calc.collectives import Collective
from calc.items import Status, formula
from calc.traffic.stage import BF16, Stage, Work
from calc.units import Number, exact_div, round_up

TOKEN_ID = 4


@formula(
    unit="B",
    source="vLLM 0.33 layers/logits_processor.py; vocabulary padded to a multiple of 64",
    status=Status.ENGINE,
)
def logits_bytes(batch: Number, vocab_size: int, element_bytes: int) -> Number:
    """Logits of every sampled row over the whole vocabulary."""
    return batch * round_up(vocab_size, 64) * element_bytes


@formula(
    unit="B",
    source="vLLM 0.33 distributed/parallel_state.py isend_tensor_dict",
    status=Status.ENGINE,
)
def boundary_sent_bytes(
    tensors: int, tokens: Number, hidden_size: int, element_bytes: int, tp: int
) -> Number:
    """Hidden and residual tensors of a pipeline boundary (or several residual streams);
    each rank sends its part, or the whole where a tensor cannot be cut into equal parts."""
    return (
        exact_div(tensors * tokens * hidden_size * element_bytes, tp)
        if tokens * hidden_size % tp == 0
        else tensors * tokens * hidden_size * element_bytes
    )


@formula(
    unit="B",
    source="vLLM 0.33 distributed/parallel_state.py irecv_tensor_dict",
    status=Status.ENGINE,
)
def boundary_gathered_bytes(
    tensors: int, tokens: Number, hidden_size: int, element_bytes: int
) -> Number:
    """The tensors of a boundary, gathered over tp by the receiving stage."""
    return tensors * tokens * hidden_size * element_bytes


@formula(unit="B", source="one 32-bit id for each row that was sampled", status=Status.ENGINE)
def token_id_bytes(tokens: Number, element_bytes: int) -> Number:
    """The sampled tokens, which every pipeline stage must know before the next step."""
    return tokens * element_bytes


def embedding(work: Work, calls: int = 1) -> Stage:
    """Each rank looks up its part of the vocabulary; the sum is the row."""
    return work.all_reduce("embedding", "model", calls, work.hidden_size, per="step")


def logits(vocabulary: int, work: Work, calls: int = 1) -> Stage:
    """Each rank's part of the vocabulary, gathered for sampling."""
    payload = logits_bytes.item(
        "model.logits.payload", batch=work.sampled, vocab_size=vocabulary, element_bytes=BF16
    )
    shape = (work.sampled, round_up(vocabulary, 64))
    stage = Stage("logits", "model", calls, "step", shape, "bf16")
    return work.moved(stage, Collective.ALL_GATHER, "tp", work.layout.tp, payload)


def send_boundary(work: Work, boundaries: int) -> Stage:
    """To the next pipeline stage."""
    payload = boundary_sent_bytes.item(
        "model.pipeline_send.payload",
        tensors=work.boundary_tensors,
        tokens=work.tokens,
        hidden_size=work.hidden_size,
        element_bytes=BF16,
        tp=work.layout.tp,
    )
    tensors = work.boundary_tensors
    shape = (tensors, payload.value // (tensors * BF16))
    stage = Stage("pipeline_send", "model", boundaries, "step", shape, "bf16")
    return work.moved(stage, Collective.SEND, "pp", work.layout.pp, payload)


def gather_boundary(work: Work, boundaries: int) -> Iterator[Stage]:
    """From the pipeline stage before, where its ranks sent a part each."""
    if work.tokens * work.hidden_size % work.layout.tp:
        return
    payload = boundary_gathered_bytes.item(
        "model.pipeline_gather.payload",
        tensors=work.boundary_tensors,
        tokens=work.tokens,
        hidden_size=work.hidden_size,
        element_bytes=BF16,
    )
    shape = (work.boundary_tensors, work.tokens, work.hidden_size)
    stage = Stage("pipeline_gather", "model", boundaries, "step", shape, "bf16")
    yield work.moved(stage, Collective.ALL_GATHER, "tp", work.layout.tp, payload)


def token_broadcast(work: Work) -> Iterator[Stage]:
    """The last pipeline stage tells the others what was sampled."""
    if work.layout.pp > 1:
        payload = token_id_bytes.item(
            "model.token_broadcast.payload", tokens=work.sampled, element_bytes=TOKEN_ID
        )
        stage = Stage("token_broadcast", "model", 1, "step", (work.sampled,), "int32")
        yield work.moved(stage, Collective.BROADCAST, "pp", work.layout.pp, payload)
