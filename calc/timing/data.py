"""Measured times, condensed: ``presets/timing/*.yaml``, one file for a GPU that was measured.

A GPU without a file borrows the nearest one's: collectives from the GPU whose
link is of the same kind and nearest in rate, kernels from the GPU nearest in
memory rate. Rates are scaled by the ratio of the two, fixed times are kept.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from calc.errors import CalcError
from calc.hardware import Hardware, load_hardware
from calc.layers.base import Part
from calc.model import first_fault
from calc.yaml_files import read_yaml

FOLDER = Path(__file__).resolve().parent.parent.parent / "presets" / "timing"

Operation = Literal[
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_reduce",
    "custom_all_reduce",
    "deepep_dispatch",
    "deepep_combine",
]
KernelKind = Literal["latent", "heads", "convolution", "recurrence"]
Positive = Annotated[float, Field(gt=0, le=1e9)]


class Curve(Part):
    """One collective over ``ranks`` GPUs of a node; ``largest`` payload it is used for."""

    op: Operation
    ranks: Annotated[int, Field(gt=1, le=1024)]
    start_us: Positive
    rate_gb_s: Positive
    chunk_us: Positive
    largest: int | None = None
    points: tuple[tuple[int, float], ...] = Field(min_length=1, max_length=32)
    source: str | None = None


class Kernel(Part):
    """One kind of decode kernel.

    ``split_us`` comes on top as the tokens grow beyond ``split_tokens`` and are
    split over thread blocks; ``stream_tb_s`` is what one request (or one KV head
    of it) reads at most; ``tiles`` are (query rows of a tile, most rows this
    kernel is used for, TFLOP/s); ``wave_us`` the start of each further wave of
    thread blocks.
    """

    kind: KernelKind
    launch_us: Positive
    split_us: float = 0.0
    split_tokens: Positive = 1.0
    rate_tb_s: Positive
    stream_tb_s: float | None = None
    wave_us: float = 0.0
    tiles: tuple[tuple[int, int, float], ...] = ()
    source: str


class Measurements(Part):
    """What was measured on one GPU; ``processors`` are its streaming multiprocessors."""

    id: str
    source: str
    processors: int | None = None
    kernels: tuple[Kernel, ...] = ()
    collectives: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Measurements of ``gpu``, to be scaled by ``scale`` (and ``compute`` for arithmetic)."""

    gpu: str
    scale: float
    compute: float
    measurements: Measurements

    @property
    def exact(self) -> bool:
        """Whether they are of this GPU itself."""
        return self.scale == self.compute == 1.0


@functools.cache
def measured_ids() -> tuple[str, ...]:
    """The GPUs with measurements."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@functools.cache
def load_measurements(gpu: str) -> Measurements:
    """The measurements of one GPU."""
    path = FOLDER / f"{gpu}.yaml"
    try:
        made = Measurements.model_validate(read_yaml(path))
    except ValidationError as error:
        raise first_fault(error, path.name) from None
    if made.id != gpu:
        raise CalcError(
            "preset_invalid", field="id", file=path.name, reason="it is not the file's name"
        )
    return made


def collectives_for(gpu: Hardware, without: str | None = None) -> Borrowed:
    """Measured collectives nearest to this GPU's link (``without``: one left out, for tests)."""
    known = [load_hardware(name) for name in measured_ids() if name != without]
    fast = gpu.link.kind != "pcie"
    alike = [other for other in known if (other.link.kind != "pcie") == fast] or known
    nearest = min(alike, key=lambda other: (_distance(gpu, other), other.id != gpu.id))
    scale = gpu.link.rate.value / nearest.link.rate.value
    return Borrowed(nearest.id, scale, scale, load_measurements(nearest.id))


def kernel_for(gpu: Hardware, kind: KernelKind) -> tuple[Kernel, Borrowed]:
    """The measured kernel of a kind on the GPU nearest in memory rate."""
    found = [
        (kernel, load_hardware(name), load_measurements(name))
        for name in measured_ids()
        for kernel in load_measurements(name).kernels
        if kernel.kind == kind
    ]
    kernel, other, measurements = min(
        found,
        key=lambda row: (
            abs(math.log(gpu.memory_rate.value / row[1].memory_rate.value)),
            row[1].id != gpu.id,
        ),
    )
    scale = gpu.memory_rate.value / other.memory_rate.value
    compute = gpu.flops["bf16"].value / other.flops["bf16"].value
    return kernel, Borrowed(other.id, scale, compute, measurements)


def _distance(gpu: Hardware, other: Hardware) -> float:
    return abs(math.log(gpu.link.rate.value / other.link.rate.value))
