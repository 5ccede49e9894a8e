"""Scenario: everything a user can set, with its bounds and its frozen defaults.

One table, ``FIELDS``, drives the command line, the link and the page. The
defaults are those of the command line and of a link that lacks the key; once
published, a default never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from calc.budget import ACTIVATION_GIB, COMMUNICATION_GIB, CUDA_GRAPH_GIB
from calc.collectives import ALGORITHMS
from calc.engines import ENGINES, Engine
from calc.errors import CalcError, shown
from calc.fields import ChoiceField, Field, ListField, NumberField, SizeField, WholeField
from calc.formats import KV_FORMATS
from calc.hardware import CUSTOM_GPU, NO_GPU, Hardware, Reached, hardware_ids
from calc.layout import Layout
from calc.model import ModelSpec
from calc.presets import CUSTOM, load_preset
from calc.units import GIB
from calc.weight_formats import CHECKPOINT, WEIGHT_FORMATS

MOE_BACKENDS = tuple(
    dict.fromkeys(name for engine in ENGINES.values() for name in engine.moe_backends)
)
BACKENDS = tuple(dict.fromkeys(name for engine in ENGINES.values() for name in engine.backends))

FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        ChoiceField("engine", "vllm", tuple(ENGINES)),
        WholeField("tp", 1, 1, 1024),
        WholeField("dcp", 1, 1, 1024),
        WholeField("dp", 1, 1, 4096),
        WholeField("pp", 1, 1, 256),
        WholeField("context", 8192, 1, 2**30),
        WholeField("batch", 1, 1, 2**20),
        ChoiceField("kv_dtype", "bf16", tuple(KV_FORMATS)),
        ChoiceField("conv_dtype", "auto", ("auto", "bf16", "float32")),
        ChoiceField("state_dtype", "auto", ("auto", "bf16", "float32")),
        ChoiceField("dcp_backend", "auto", ("auto", *BACKENDS)),
        ChoiceField("query_replication", "auto", ("auto", "on", "off")),
        NumberField("kv_cache_memory_gib", 80.0, 0.001, 100_000.0),
        SizeField("ep", "off", ("off", "on")),
        WholeField("pcp", 1, 1, 1024),
        WholeField("speculative_tokens", 0, 0, 64),
        ChoiceField("moe_backend", "auto", ("auto", *MOE_BACKENDS)),
        ChoiceField("dispatch_dtype", "auto", ("auto", "bf16", "fp8", "nvfp4")),
        ChoiceField("query_dtype", "bf16", ("bf16", "fp8")),
        ChoiceField("sequence_parallel", "off", ("off", "on")),
        ChoiceField("collective_algorithm", ALGORITHMS[0], ALGORITHMS),
        WholeField("gpus_per_node", 8, 1, 1024),
        WholeField("prefill_tokens", 0, 0, 2**30),
        ChoiceField("gpu", "none", (NO_GPU, *hardware_ids(), CUSTOM_GPU)),
        NumberField("gpu_memory_gib", 80.0, 0.1, 10_000.0),
        ChoiceField("cache_memory", "auto", ("auto", "typed")),
        NumberField("gpu_memory_utilization", 0.92, 0.01, 1.0),
        NumberField("mem_fraction_static", 0.0, 0.0, 0.99),
        NumberField("activation_gib", ACTIVATION_GIB, 0.0, 1000.0),
        NumberField("cuda_graph_gib", CUDA_GRAPH_GIB, 0.0, 1000.0),
        NumberField("communication_gib", COMMUNICATION_GIB, 0.0, 1000.0),
        WholeField("max_num_batched_tokens", 8192, 1, 2**24),
        ChoiceField("async_scheduling", "on", ("on", "off")),
        WholeField("block_size", 0, 0, 2**20),
        ChoiceField("prefix_caching", "on", ("on", "off")),
        ChoiceField("hybrid_kv_manager", "on", ("on", "off")),
        NumberField("swa_full_tokens_ratio", 0.8, 0.01, 1.0),
        NumberField("mamba_full_memory_ratio", 0.9, 0.01, 100.0),
        WholeField("shared_prefix", 0, 0, 2**30),
        ListField("lengths", "off", ("off",), counted=True),
        ListField("pp_layers", "even", ("even",), largest=2048),
        ChoiceField("weight_format", CHECKPOINT, WEIGHT_FORMATS),
        NumberField("hbm_efficiency", 0.0, 0.0, 1.0),
        NumberField("attention_efficiency", 0.0, 0.0, 1.0),
        NumberField("gemm_efficiency", 0.0, 0.0, 1.0),
    )
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model and everything set for it; values out of bounds raise CalcError.

    ``model`` is a preset's id, or "custom" with ``spec``. ``batch`` is the
    requests of one replica, ``context`` the tokens of each, and
    ``kv_cache_memory_gib`` the memory for cache on one rank, in GiB. ``ep`` is
    off, on (all tp x pcp x dp ranks share the experts), or that number. The last
    ``prefill_tokens`` of ``context`` are a prefill chunk behind a cached prefix
    (0: no prefill step is computed).

    With a ``gpu`` the cache memory follows from its own (``gpu_memory_gib`` for
    a custom one), unless ``cache_memory`` says that it is typed. ``block_size``
    and ``mem_fraction_static`` 0 leave the choice to the engine. The first
    ``shared_prefix`` tokens are the same in all requests; ``lengths`` is a mix of
    requests (4096x30-131072x2) and ``pp_layers`` the layers of each stage.
    ``weight_format`` is one for all matrices, or as the checkpoint stores each.
    The efficiencies are shares of the data sheet's rates that a ``gpu`` at hand
    was measured to reach (0: what ``calc.timing`` fits to published times).
    """

    model: str
    engine: str = "vllm"
    tp: int = 1
    dcp: int = 1
    dp: int = 1
    pp: int = 1
    context: int = 8192
    batch: int = 1
    kv_dtype: str = "bf16"
    conv_dtype: str = "auto"
    state_dtype: str = "auto"
    dcp_backend: str = "auto"
    query_replication: str = "auto"
    kv_cache_memory_gib: float = 80.0
    ep: str = "off"
    pcp: int = 1
    speculative_tokens: int = 0
    moe_backend: str = "auto"
    dispatch_dtype: str = "auto"
    query_dtype: str = "bf16"
    sequence_parallel: str = "off"
    collective_algorithm: str = "ring"
    gpus_per_node: int = 8
    prefill_tokens: int = 0
    gpu: str = "none"
    gpu_memory_gib: float = 80.0
    cache_memory: str = "auto"
    gpu_memory_utilization: float = 0.92
    mem_fraction_static: float = 0.0
    activation_gib: float = ACTIVATION_GIB
    cuda_graph_gib: float = CUDA_GRAPH_GIB
    communication_gib: float = COMMUNICATION_GIB
    max_num_batched_tokens: int = 8192
    async_scheduling: str = "on"
    block_size: int = 0
    prefix_caching: str = "on"
    hybrid_kv_manager: str = "on"
    swa_full_tokens_ratio: float = 0.8
    mamba_full_memory_ratio: float = 0.9
    shared_prefix: int = 0
    lengths: str = "off"
    pp_layers: str = "even"
    weight_format: str = CHECKPOINT
    hbm_efficiency: float = 0.0
    attention_efficiency: float = 0.0
    gemm_efficiency: float = 0.0
    spec: ModelSpec | None = None

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            field.check(getattr(self, name))
        if not isinstance(self.model, str):
            raise CalcError("invalid_value", "model", reason="it is not the id of a preset")
        if self.model != CUSTOM:
            if self.spec is not None:
                raise CalcError("custom_unused", given=shown(self.model))
            load_preset(self.model)
        elif self.spec is None:
            raise CalcError("custom_missing")
        elif not isinstance(self.spec, ModelSpec):
            raise CalcError("invalid_value", "spec", reason="it is not a ModelSpec")
        elif self.spec.id != CUSTOM:
            raise CalcError("invalid_value", "spec", reason=f"its id is not {CUSTOM}")

    @property
    def model_spec(self) -> ModelSpec:
        """The model's description."""
        return self.spec if self.spec is not None else load_preset(self.model)

    @property
    def layout(self) -> Layout:
        everyone = self.tp * self.pcp * self.dp
        ep = {"off": 1, "on": everyone}.get(self.ep) or int(self.ep)
        return Layout(
            tp=self.tp,
            dcp=self.dcp,
            dp=self.dp,
            pp=self.pp,
            pcp=self.pcp,
            ep=ep,
            stage_layers=tuple(
                number for number, often in self.pairs("pp_layers") for _ in range(min(often, 2048))
            ),
        )

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        """A list field as (number, how often); empty where it is a word."""
        field = FIELDS[name]
        assert isinstance(field, ListField)
        value: str = getattr(self, name)
        return () if value in field.choices else field.pairs(value)

    @property
    def engine_rules(self) -> Engine:
        return ENGINES[self.engine]

    def measured(self, gpu: Hardware) -> Hardware:
        """A GPU with the efficiencies set here, which hold for the scenario's own GPU only."""
        if gpu.id != self.gpu:
            return gpu
        reached = Reached(
            hbm=self.hbm_efficiency,
            attention=self.attention_efficiency,
            gemm=self.gemm_efficiency,
        )
        return gpu.model_copy(update={"reached": reached})

    @property
    def budget_bytes(self) -> int:
        """The cache memory of one rank, bytes."""
        return int(self.kv_cache_memory_gib * GIB)


def scenario_fields() -> tuple[str, ...]:
    """The names of all fields, the model and its description included."""
    return tuple(field.name for field in fields(Scenario))
