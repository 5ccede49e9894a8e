"""Loads the model presets from ``presets/models/*.yaml``.

A preset names its mixers and ffns once and lists the layers by those names; a
``repeat`` block stands for a pattern. Every value must be covered by an entry
of ``sources``: a dotted path (``mixers.mla``, ``hidden_size``) and where it
was read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from calc.errors import CalcError, shown
from calc.layers import AnyFfn, AnyMixer, Part
from calc.model import MAX_LAYERS, EngineDefaults, ExtraTensor, ModelSpec, first_fault, read_model
from calc.yaml_files import read_yaml

FOLDER = Path(__file__).resolve().parent.parent / "presets" / "models"
CUSTOM = "custom"
"""The model id of a scenario that carries its own description."""


class LayerLine(Part):
    """``count`` layers made of the named mixers and ffns."""

    mixers: tuple[str, ...] = ()
    ffns: tuple[str, ...] = ()
    count: Annotated[int, Field(gt=0, le=MAX_LAYERS)] = 1
    parallel_block: bool = False


class RepeatBlock(Part):
    """A pattern of layers, ``repeat`` times over."""

    repeat: Annotated[int, Field(gt=0, le=MAX_LAYERS)]
    layers: tuple[LayerLine, ...] = Field(min_length=1)


class PresetFile(Part):
    """The schema of a preset file."""

    id: str
    name: str
    revision: int
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool = False
    max_context: int | None = None
    mixers: dict[str, AnyMixer] = Field({})
    ffns: dict[str, AnyFfn] = Field({})
    layers: tuple[LayerLine | RepeatBlock, ...]
    mtp_layers: tuple[LayerLine, ...] = ()
    norms_per_part: int = 1
    boundary_tensors: int = 2
    extra_weights: dict[str, ExtraTensor] = Field({})
    checkpoint: dict[str, str] = Field({})
    engine_defaults: dict[str, EngineDefaults] = Field({})
    doubts: tuple[str, ...] = ()
    sources: dict[str, str]

    def lines(self) -> Iterator[LayerLine]:
        """The layer lines with every repeat written out."""
        for entry in self.layers:
            if isinstance(entry, RepeatBlock):
                for _ in range(entry.repeat):
                    yield from entry.layers
            else:
                yield entry


def preset_ids() -> list[str]:
    """The ids of all model presets, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@functools.cache
def load_preset(preset: str) -> ModelSpec:
    """A model preset by id; raises CalcError for an unknown id or a faulty file."""
    if preset not in preset_ids():
        raise CalcError("unknown_preset", given=shown(preset), allowed=", ".join(preset_ids()))
    return read_preset(FOLDER / f"{preset}.yaml")


def read_preset(path: Path) -> ModelSpec:
    """A ModelSpec from one preset file."""
    name = path.name
    data = read_yaml(path)
    try:
        preset = PresetFile.model_validate(data)
    except ValidationError as error:
        raise first_fault(error, name) from None
    if preset.id != path.stem:
        raise CalcError("preset_invalid", field="id", file=name, reason="it is not the file's name")
    _check_sources(data, preset.sources, name)
    return read_model(_spec_data(preset, name), name)


def _spec_data(preset: PresetFile, file: str) -> dict[str, Any]:
    def named(table: dict[str, Any], name: str, field: str) -> Any:
        if name not in table:
            raise CalcError(
                "preset_invalid", field=field, file=file, reason=f"{name} is not defined"
            )
        return table[name]

    def layer(line: LayerLine, field: str) -> dict[str, Any]:
        return {
            "count": line.count,
            "mixers": tuple(named(preset.mixers, name, f"{field}.mixers") for name in line.mixers),
            "ffns": tuple(named(preset.ffns, name, f"{field}.ffns") for name in line.ffns),
            "parallel_block": line.parallel_block,
        }

    built = {
        "layers": tuple(layer(line, "layers") for line in preset.lines()),
        "mtp_layers": tuple(layer(line, "mtp_layers") for line in preset.mtp_layers),
    }
    same = set(PresetFile.model_fields) - {"mixers", "ffns", *built}
    return {name: getattr(preset, name) for name in same} | built


def _check_sources(data: dict[str, Any], sources: dict[str, str], file: str) -> None:
    """Every leaf outside ids, names and doubts must be under a path named in ``sources``."""
    free = {"id", "name", "revision", "sources", "doubts"}
    for path in _leaves({key: value for key, value in data.items() if key not in free}):
        parents = [path[:end] for end in range(1, len(path) + 1)]
        if not any(".".join(parent) in sources for parent in parents):
            raise CalcError("preset_unsourced", field=".".join(path), file=file)


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, str(key)))
    else:
        yield path
