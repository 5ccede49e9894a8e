"""The rules in which inference engines differ, as methods of one class each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from calc.items import Item

if TYPE_CHECKING:
    from calc.layers import Attention, Sharding, StateMixer
    from calc.model import ModelSpec


@dataclass(frozen=True, slots=True)
class DcpBackend:
    """How the partial outputs of a DCP group are combined.

    ``packed_statistics``: elements (of the output's dtype) that carry the LSE
    beside each head's output in one all-to-all; None means that the LSE is
    all-gathered in float32 and the corrected outputs are reduce-scattered in
    ``output_bytes`` a element.
    """

    id: str
    packed_statistics: int | None
    output_bytes: int = 2


class Engine(ABC):
    """One engine at one version."""

    id: ClassVar[str]
    name: ClassVar[str]
    version: ClassVar[str]
    backends: ClassVar[dict[str, DcpBackend]]
    default_backend: ClassVar[str]
    replicating_backends: ClassVar[tuple[str, ...]]
    """The backends with which the query projection can be replicated."""
    replicates_for_sparse: ClassVar[bool]
    """Whether sparse latent attention has it replicated unless told otherwise."""
    dcp_rule: ClassVar[str]
    """Why K/V attention allows only some dcp sizes, in a few words."""
    reduces_whole_kv_output: ClassVar[bool]
    """Whether ag_rs on K/V attention is an all-reduce of the whole output, sliced after."""
    refused_latent_formats: ClassVar[tuple[str, ...]] = ()
    """KV formats that the engine has for K/V attention only."""
    stripes_indexer: ClassVar[bool]
    """Whether dcp stripes the indexer keys of sparse attention."""
    stripes_drafts: ClassVar[bool]
    """Whether dcp stripes the cache of drafting (MTP) layers; else each rank keeps all of it."""

    moe_backends: ClassVar[tuple[str, ...]]
    """How tokens can get to their experts; the first is the default."""
    rank_order: ClassVar[tuple[str, ...]]
    """The groups outside tp, innermost first, in the order in which ranks are numbered."""
    pcp_kinds: ClassVar[tuple[str, ...]] = ("mla", "indexer")
    """The layer kinds that prefill context parallelism is for."""
    pcp_dcp_rule: ClassVar[str]
    """How the engine combines pcp and dcp, in a few words."""
    gathers_over_all: ClassVar[bool]
    """Whether attention-dp gathers every replica's tokens over tp x dp around the experts."""
    dispatches_without_dp: ClassVar[bool]
    """Whether DeepEP is used inside one tp group too."""
    deepep_pads: ClassVar[bool]
    """Whether a width that the low-latency kernels lack is padded to the next they have."""
    can_split_sequence: ClassVar[bool]
    """Whether each all-reduce can be a reduce-scatter and an all-gather (sequence parallelism)."""

    @abstractmethod
    def kv_heads_per_rank(self, kv_heads: int, tp: int, dcp: int) -> Item:
        """KV heads whose rows one rank holds."""

    @abstractmethod
    def dcp_values(self, attention: Attention, tp: int) -> list[int]:
        """The dcp sizes above 1 that this engine allows for K/V attention."""

    def corrupts(self, attention: Attention, tp: int, dcp: int) -> bool:
        """Whether the engine starts with this dcp and then spoils the cache of such layers."""
        return False

    @abstractmethod
    def default_state_dtype(self, mixer: StateMixer, conv_dtype: str) -> str:
        """Recurrent dtype when neither the model nor the user names one."""

    @abstractmethod
    def allowed_state_dtypes(self, mixer: StateMixer) -> tuple[str, ...]:
        """Dtypes in which this engine can keep a layer's recurrent state."""

    def state_dtypes(self, mixer: StateMixer, conv: str, state: str) -> tuple[str, str]:
        """(convolution, recurrent) dtypes: the user's, else the model's, else the engine's."""
        conv_dtype = "bf16" if conv == "auto" else conv
        if state != "auto":
            return conv_dtype, state
        return conv_dtype, mixer.state_dtype or self.default_state_dtype(mixer, conv_dtype)

    @abstractmethod
    def splits_before_experts(self, model: ModelSpec, pp: int) -> bool:
        """Whether o_proj ends in a reduce-scatter where the experts take rows divided over tp."""

    def default_block(self, model: ModelSpec, place: Sharding) -> int:
        """Tokens of a block or page where nobody names one; 0: the engine's usual one."""
        return max((mixer.least_block(place) for mixer in model.mixers), default=0)

    def resolve_backend(self, model: ModelSpec, wanted: str) -> str:
        """The DCP backend in use: the user's, else the model's default here, else the engine's."""
        if wanted != "auto":
            return wanted
        return model.defaults_in(self.id).dcp_backend or self.default_backend

    def resolve_query_replication(self, model: ModelSpec, backend: str, wanted: str) -> bool:
        """Whether each rank computes the queries of its whole DCP group."""
        if wanted != "auto":
            return wanted == "on"
        if backend not in self.replicating_backends:
            return False
        default = model.defaults_in(self.id).query_replication
        if default is not None:
            return default
        return self.replicates_for_sparse and any(mixer.sparse for mixer in model.latent_mixers)

    def can_replicate_query(self, model: ModelSpec, backend: str) -> bool:
        """Whether this engine has query replication for every latent layer of the model."""
        latent = model.latent_mixers
        able = bool(latent) and all(self.id in mixer.query_replication for mixer in latent)
        return able and backend in self.replicating_backends
