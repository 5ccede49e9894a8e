"""GPUs and their links as data: ``presets/hardware/*.yaml``, each figure with its source.

A figure's ``basis`` says how it is known: ``measured`` (read off a card by us),
``public`` (printed by a card and published) or ``vendor`` (a data sheet). Rates
are bytes or operations a second, decimal, without sparsity; a link's rate is
what one GPU can send in one direction.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from calc.errors import CalcError
from calc.layers.base import Part
from calc.model import first_fault
from calc.yaml_files import read_yaml

FOLDER = Path(__file__).resolve().parent.parent / "presets" / "hardware"
NO_GPU = "none"
"""The choice that stands for a typed cache budget."""
CUSTOM_GPU = "custom"
"""The choice that stands for a GPU of which only the memory is given."""

Basis = Literal["measured", "public", "vendor"]
Positive = Annotated[float, Field(gt=0, le=1e18)]


class Figure(Part):
    """One value and where it is from."""

    value: Positive
    basis: Basis
    source: Annotated[str, Field(min_length=3, max_length=300)]


class Bytes(Part):
    """A whole number of bytes and where it is from."""

    value: Annotated[int, Field(gt=0, le=2**50)]
    basis: Basis
    source: Annotated[str, Field(min_length=3, max_length=300)]


class Link(Part):
    """How a GPU reaches others: ``ranks`` of them, at ``rate`` bytes a second each way."""

    kind: Literal["nvlink", "xgmi", "pcie", "network"]
    ranks: Annotated[int, Field(gt=0, le=2**16)]
    rate: Figure


class CurvePoint(Part):
    """A measured time (seconds) of a collective or kernel at one size."""

    size: Annotated[int, Field(gt=0, le=2**50)]
    seconds: Positive


class Curve(Part):
    """Measured points of one operation over ``ranks`` GPUs."""

    ranks: Annotated[int, Field(gt=0, le=2**16)] = 1
    source: str
    points: tuple[CurvePoint, ...] = Field(min_length=1, max_length=512)


class Reached(Part):
    """Shares of the data sheet's rates that kernels reach; 0: as ``calc.timing`` fits or assumes.

    ``hbm``: decode attention reading its cache; ``attention``: its arithmetic,
    whole tiles counted; ``gemm``: large matrix products.
    """

    hbm: Annotated[float, Field(ge=0, le=1)] = 0.0
    attention: Annotated[float, Field(ge=0, le=1)] = 0.0
    gemm: Annotated[float, Field(ge=0, le=1)] = 0.0


class Hardware(Part):
    """One GPU in its usual server.

    ``cuda_capability`` (NVIDIA's only) decides which kernels an engine takes;
    ``memory_bytes`` is what the driver reports to a program, which is what an
    engine multiplies by its memory fraction; ``flops`` dense operations a second
    by dtype; ``link`` the fast one inside a node or rack; ``network`` the share
    of the network card that belongs to one GPU; ``curves`` replace rates where
    something was measured; ``reached`` is what was measured on one such card.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9\-]{0,31}$")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    maker: Literal["nvidia", "amd"]
    cuda_capability: Figure | None = None
    gpus_per_node: Annotated[int, Field(gt=0, le=1024)]
    memory_bytes: Bytes
    memory_rate: Figure
    flops: dict[Literal["bf16", "fp8", "fp4"], Figure]
    link: Link
    network: Figure | None = None
    curves: dict[str, Curve] = Field({})
    reached: Reached = Reached()
    doubts: tuple[str, ...] = ()


def hardware_ids() -> list[str]:
    """The ids of all hardware presets, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@functools.cache
def load_hardware(gpu: str) -> Hardware:
    """A hardware preset by id; raises CalcError for an unknown id or a faulty file."""
    if gpu not in hardware_ids():
        allowed = ", ".join(hardware_ids())
        raise CalcError("not_a_choice", "gpu", given=repr(gpu[:64]), allowed=allowed)
    return read_hardware(FOLDER / f"{gpu}.yaml")


def read_hardware(path: Path) -> Hardware:
    """A Hardware from one file; a CalcError names the file, the field and the reason."""
    try:
        made = Hardware.model_validate(read_yaml(path))
    except ValidationError as error:
        raise first_fault(error, path.name) from None
    if made.id != path.stem:
        raise CalcError(
            "preset_invalid", field="id", file=path.name, reason="it is not the file's name"
        )
    return made
