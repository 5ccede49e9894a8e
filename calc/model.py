"""A model as data: an ordered list of layers, each made of mixers and feed-forward parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from calc.errors import CalcError
from calc.layers import AnyFfn, AnyMixer, LatentAttention, Mixer, MoeFfn, Part
from calc.layers.tensors import Role
from calc.weight_formats import StoredFormat

MAX_LAYERS = 2048
MAX_KEPT = 256
"""Results kept with one model before all are dropped."""

T = TypeVar("T")


class Layer(Part):
    """``count`` equal layers in a row.

    Several mixers or ffns work side by side (Falcon-H1, MLA with its indexer);
    none at all is a layer without that part. ``parallel_block``: attention and
    feed-forward read the same input and are summed in one all-reduce.
    """

    count: Annotated[int, Field(gt=0, le=MAX_LAYERS)] = 1
    mixers: tuple[AnyMixer, ...] = Field((), max_length=4)
    ffns: tuple[AnyFfn, ...] = Field((), max_length=4)
    parallel_block: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The mixer kinds of one such layer; ``("none",)`` without any."""
        return tuple(mixer.kind for mixer in self.mixers) or ("none",)


class EngineDefaults(Part):
    """What an engine sets for this model when the user says nothing."""

    dcp_backend: str | None = None
    query_replication: bool | None = None


class ExtraTensor(Part):
    """Weights outside the layer parts: ``copies`` matrices of rows x columns.

    ``split``: over tp by rows, else whole on every rank. Not ``active``: a table
    of which one token reads a single row.
    """

    rows: Annotated[int, Field(gt=0, le=2**40)]
    columns: Annotated[int, Field(gt=0, le=2**40)] = 1
    copies: Annotated[int, Field(gt=0, le=2**20)] = 1
    split: bool = False
    active: bool = True


class ModelSpec(Part):
    """Everything the calculator knows of a model; ``layers`` is ordered.

    ``norms_per_part``: vectors of hidden width around each mixer or feed-forward
    part (2 where the output is normalised too, or where a norm has a bias).
    ``boundary_tensors`` of hidden width pass from one pipeline stage to the next: the
    hidden state and the residual, or one for each stream of hyper-connections.
    ``mtp_layers`` draft further tokens; they count only when speculation is on.
    ``checkpoint`` is the format in which the published weights store a role,
    bf16 where it names none.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.\-]{0,63}$")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    revision: Annotated[int, Field(gt=0, le=10**6)] = 1
    hidden_size: Annotated[int, Field(gt=0, le=2**20)]
    vocab_size: Annotated[int, Field(gt=0, le=2**26)]
    tied_embeddings: bool = False
    max_context: int | None = Field(None, gt=0, le=2**40)
    layers: tuple[Layer, ...] = Field(min_length=1, max_length=MAX_LAYERS)
    mtp_layers: tuple[Layer, ...] = Field((), max_length=64)
    norms_per_part: Annotated[int, Field(ge=0, le=4)] = 1
    boundary_tensors: Annotated[int, Field(gt=0, le=64)] = 2
    extra_weights: dict[str, ExtraTensor] = Field({})
    checkpoint: dict[Role, StoredFormat] = Field({})
    engine_defaults: dict[Literal["vllm", "sglang"], EngineDefaults] = Field({})
    doubts: tuple[str, ...] = ()
    sources: dict[str, str] = Field({})

    @model_validator(mode="after")
    def _bounded(self) -> ModelSpec:
        if self.layer_count > MAX_LAYERS:
            raise ValueError(f"{self.layer_count} layers; at most {MAX_LAYERS} are allowed")
        return self

    @cached_property
    def layer_count(self) -> int:
        """Layers of the whole model, those without a mixer included."""
        return sum(layer.count for layer in self.layers)

    @cached_property
    def mixers(self) -> tuple[Mixer, ...]:
        """The distinct mixers, in order of first appearance."""
        return tuple(dict.fromkeys(mixer for layer in self.layers for mixer in layer.mixers))

    @cached_property
    def latent_mixers(self) -> tuple[LatentAttention, ...]:
        """The distinct latent-attention mixers."""
        return tuple(mixer for mixer in self.mixers if isinstance(mixer, LatentAttention))

    @cached_property
    def moe_ffns(self) -> tuple[MoeFfn, ...]:
        """The distinct mixtures of experts, those of drafting layers included."""
        layers = (*self.layers, *self.mtp_layers)
        ffns = dict.fromkeys(ffn for layer in layers for ffn in layer.ffns)
        return tuple(ffn for ffn in ffns if isinstance(ffn, MoeFfn))

    def defaults_in(self, engine: str) -> EngineDefaults:
        """This model's defaults in an engine."""
        for name, defaults in self.engine_defaults.items():
            if name == engine:
                return defaults
        return EngineDefaults()

    @cached_property
    def _stages(self) -> dict[tuple[int, ...], tuple[tuple[Layer, ...], ...]]:
        return {}

    def stage_sizes(self, pp: int) -> tuple[int, ...]:
        """Layers of each pipeline stage where nobody says.

        As vLLM 0.33 ``distributed/utils.py get_pp_indices``: layers / pp each,
        and the remainder one by one to the stages before the last.
        """
        sizes = [self.layer_count // pp] * pp
        for back in range(2, self.layer_count % pp + 2):
            sizes[-back] += 1
        return tuple(sizes)

    def stages(self, pp: int, sizes: tuple[int, ...] = ()) -> tuple[tuple[Layer, ...], ...]:
        """The layers of each pipeline stage, equal ones counted together.

        ``sizes``: layers of each stage, where the cut is given.
        """
        sizes = sizes or self.stage_sizes(pp)
        if sizes not in self._stages:
            cut: list[tuple[Layer, ...]] = []
            made: dict[frozenset[tuple[int, int]], tuple[Layer, ...]] = {}
            for size, end in zip(sizes, accumulate(sizes), strict=True):
                single = self._one_by_one[end - size : end]
                # stages of the same layers, in whatever order, are one object: worked out once
                same = frozenset(Counter(map(id, single)).items())
                if same not in made:
                    made[same] = tuple(
                        layer.model_copy(update={"count": count})
                        for layer, count in Counter(single).items()
                    )
                cut.append(made[same])
            self._stages[sizes] = tuple(cut)
        return self._stages[sizes]

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, remembered with this model under a key of the caller's."""
        if key not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _one_by_one(self) -> list[Layer]:
        single = [(layer.model_copy(update={"count": 1}), layer.count) for layer in self.layers]
        return [layer for layer, count in single for _ in range(count)]


def read_model(data: Any, file: str = "model") -> ModelSpec:
    """A ModelSpec from plain data; a CalcError names the file, the field and the reason."""
    try:
        return ModelSpec.model_validate(data)
    except ValidationError as error:
        raise first_fault(error, file) from None


def read_model_json(text: str | bytes, file: str = "model") -> ModelSpec:
    """A ModelSpec from JSON text; a CalcError names the file, the field and the reason."""
    try:
        return ModelSpec.model_validate_json(text)
    except ValidationError as error:
        raise first_fault(error, file) from None


def first_fault(error: ValidationError, file: str) -> CalcError:
    """The first fault that pydantic found, as an error with file, field and reason."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])[:120] or "whole"
    return CalcError("preset_invalid", field=field, file=file, reason=first["msg"])
