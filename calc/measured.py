"""Benchmark results: the schema, the reader for an uploaded one, and measured beside predicted.

A result is written by the benchmark (``gpu/``) and may come from another
machine, so it is read as untrusted input: bounded, strict, versioned.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from calc.errors import CalcError
from calc.layers import Part

VERSION = 1
MAX_BYTES = 2**20
"""Size of a result file that is read at most."""

Name = Annotated[str, Field(min_length=1, max_length=80)]
Sentence = Annotated[str, Field(min_length=1, max_length=400)]
Count = Annotated[int, Field(gt=0, le=2**40)]
Bytes = Annotated[int, Field(ge=0, le=2**60)]
Operations = Annotated[int, Field(ge=0, le=2**62)]
Microseconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Error = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


Transport = Literal["nccl", "gloo"]
"""NCCL between GPUs; gloo between CPU processes, whose times say nothing about a GPU."""


class Timing(Part):
    """A time in µs: median of block medians, the extreme blocks, samples in all."""

    us: Microseconds
    min_us: Microseconds
    max_us: Microseconds
    n: Count
    graph: bool

    @model_validator(mode="after")
    def _ordered(self) -> Timing:
        if not self.min_us <= self.us <= self.max_us:
            raise ValueError("min_us, us and max_us are not in order")
        return self

    @property
    def spread(self) -> float:
        """Slowest block over fastest, less one."""
        return self.max_us / self.min_us - 1


class AttentionFacts(Part):
    """Decode attention of one layer on one rank; ``wanted_tokens`` before it was cut to fit."""

    kind: Name
    layers: Count
    batch: Count
    tokens: Count
    wanted_tokens: Count
    heads: Count
    kv_heads: Count
    k_dim: Count
    v_dim: Count
    latent: bool


class StateFacts(Part):
    """The update of a recurrent state by one token, one layer on one rank."""

    kind: Name
    layers: Count
    batch: Count
    heads: Count
    key_heads: Count
    key_dim: Count
    value_dim: Count
    delta: bool
    channel_decay: bool
    element_bytes: Count


class FloorFacts(Part):
    """The least time by this card's ceilings; the tile floor fills heads up to whole tiles."""

    us: Microseconds
    side: Literal["memory", "compute"]
    tile_us: Microseconds
    tile_side: Literal["memory", "compute"]


class BackendResult(Part):
    """One backend on one shape. Only a right answer is timed."""

    id: Name
    name: Name
    status: Literal["timed", "unavailable", "wrong", "failed"]
    reason: Sentence | None = None
    timing: Timing | None = None
    out_error: Error | None = None
    lse_error: Error | None = None
    fraction: Fraction | None = None
    tile_fraction: Fraction | None = None
    verdict: Literal["good", "fair", "kernel_limited", "launch", "suspect"] | None = None

    @model_validator(mode="after")
    def _timed(self) -> BackendResult:
        if (self.status == "timed") != (self.timing is not None):
            raise ValueError("a backend has a timing exactly when its status is timed")
        return self


class KernelResult(Part):
    """All backends on one shape: decode attention, or a state's update."""

    attention: AttentionFacts | None = None
    state: StateFacts | None = None
    bytes: Bytes
    flops: Operations
    tile_flops: Operations
    floor: FloorFacts
    backends: tuple[BackendResult, ...] = Field(max_length=32)
    sustained_us: Microseconds | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> KernelResult:
        if (self.attention is None) == (self.state is None):
            raise ValueError("a kernel is either attention or state")
        return self

    @property
    def facts(self) -> AttentionFacts | StateFacts:
        found = self.attention or self.state
        assert found is not None
        return found

    @property
    def best(self) -> BackendResult | None:
        """The fastest backend with a right answer."""
        timed = [(row.timing.us, place) for place, row in enumerate(self.backends) if row.timing]
        return self.backends[min(timed)[1]] if timed else None


class Machine(Part):
    """What ran the benchmark."""

    gpu: Name
    gpus: Count
    driver: Name
    cuda: Name
    torch: Name
    triton: Name | None = None
    processors: Count
    l2_bytes: Bytes
    memory_bytes: Bytes
    power_limit_w: Annotated[float, Field(gt=0, le=10_000)] | None = None
    clock_mhz: Annotated[float, Field(gt=0, le=20_000)] | None = None


class CeilingFacts(Part):
    """Rates of this card, bytes and operations a second; ``over_bytes``: the tensor read."""

    read: Rate
    copy_rate: Rate
    gemm_burst: Rate
    gemm_sustained: Rate | None = None
    over_bytes: Bytes
    read_timing: Timing
    copy_timing: Timing
    gemm_timing: Timing


class MemoryFacts(Part):
    """Bytes of one layer's cache: by the formulas, and as the allocator handed them out."""

    kind: Name
    tensors: Count
    predicted_bytes: Bytes
    allocated_bytes: Bytes
    within: bool


class MergeFacts(Part):
    """Merging stripes by log-sum-exp: time of the merge, and striped against whole attention."""

    kind: Name
    parts: Count
    batch: Count
    heads: Count
    width: Count
    timing: Timing
    floor_us: Microseconds
    merge_error: Error
    plain_mean_error: Error
    stripes_error: Error | None = None
    stripes_lse_error: Error | None = None
    right: bool


class StageFacts(Part):
    """One of a rank's stages around attention under DCP."""

    name: Name
    timing: Timing | None = None
    floor_us: Microseconds | None = None
    note: Sentence | None = None


class CollectiveFacts(Part):
    """One collective at the scenario's size; bus bandwidth by nccl-tests' conventions."""

    name: Name
    collective: Literal["all_gather", "all_to_all", "reduce_scatter", "all_reduce"]
    ranks: Count
    payload_bytes: Bytes
    dtype: Name
    right: bool
    timing: Timing | None = None
    bus_bytes_per_s: Rate | None = None
    backend: Transport = "nccl"
    nodes: Count = 1


class LayerFacts(Part):
    """A latent layer over real ranks: gather the queries, attend to a stripe, exchange, merge.

    ``tokens`` are one rank's. ``loaded``: the same while the expert all-to-all
    (``expert``: that one alone, of ``expert_payload_bytes``) runs beside it.
    """

    kind: Name
    backend: Transport
    ranks: Count
    nodes: Count = 1
    batch: Count
    tokens: Count
    heads: Count
    k_dim: Count
    v_dim: Count
    exchange: Literal["a2a", "ag_rs"]
    attention: Name
    error: Error
    right: bool
    timing: Timing | None = None
    expert_payload_bytes: Bytes | None = None
    expert: Timing | None = None
    loaded: Timing | None = None


class SkippedFacts(Part):
    """Something that was not measured as the scenario has it, and why; ``code`` for the page."""

    what: Name
    reason: Sentence
    code: Name | None = None


class MethodFacts(Part):
    """How times were taken."""

    blocks: Count
    samples: Count
    idle_s: Annotated[float, Field(ge=0, le=60)]


class Measured(Part):
    """One result. ``scenario`` is the share link's query; ``recorded``: shipped as an example."""

    kind: Literal["gpu-benchmark"]
    version: Literal[1]
    recorded: bool = False
    created: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]
    model: Name
    scenario: Annotated[str, Field(max_length=8000)]
    machine: Machine
    method: MethodFacts
    ceilings: CeilingFacts
    kernels: tuple[KernelResult, ...] = Field(max_length=64)
    memory: tuple[MemoryFacts, ...] = Field((), max_length=64)
    merge: tuple[MergeFacts, ...] = Field((), max_length=8)
    stages: tuple[StageFacts, ...] = Field((), max_length=32)
    collectives: tuple[CollectiveFacts, ...] = Field((), max_length=64)
    layers: tuple[LayerFacts, ...] = Field((), max_length=16)
    calibration: tuple[KernelResult, ...] = Field((), max_length=128)
    skipped: tuple[SkippedFacts, ...] = Field((), max_length=64)
    seconds: Annotated[float, Field(ge=0, le=86_400)]


def read_result(text: str | bytes) -> Measured:
    """A result from JSON; CalcError says in one sentence what is wrong with it."""
    size = len(text)
    if size > MAX_BYTES:
        raise CalcError("result_too_large", "result", size=size, maximum=MAX_BYTES)
    try:
        return Measured.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        raise CalcError("result_not_json", "result")
    if place in ("kind", "version"):
        raise CalcError("result_version", "result", supported=VERSION)
    raise CalcError("result_invalid", "result", place=place or "whole", reason=first["msg"])


def result_json(result: dict[str, Any]) -> str:
    """Check plain data against the schema and write it as JSON, floats to 6 digits."""
    checked = Measured.model_validate_json(_dumped(result))
    return checked.model_dump_json(exclude_none=True)


def _dumped(value: Any) -> str:
    import json

    return json.dumps(_rounded(value), allow_nan=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return value
