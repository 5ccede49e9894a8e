"""What one rank's kernels work on in a scenario, one layer each. Needs no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from calc.capacity import mixer_counts
from calc.formats import DTYPE_BYTES, KV_FORMATS
from calc.layers import (
    Attention,
    GatedDeltaNet,
    Growth,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba2,
    Mixer,
    Sharding,
    StateMixer,
)
from calc.report import evaluate
from calc.scenario import Scenario

BF16 = 2
FLOAT32 = 4
PAGE = 64
"""Tokens a cache page holds in the libraries measured; the tokens used are a multiple of it."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Decode attention of one layer on one rank: one new token for each of ``batch`` requests.

    ``tokens`` are the cached ones of a request on this rank, ``wanted_tokens``
    those of the scenario before anything was cut to fit. ``latent``: K is one
    row for all heads and V its first ``v_dim`` columns (absorbed MLA).
    """

    kind: str
    layers: int
    batch: int
    tokens: int
    heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    latent: bool
    scale: float
    wanted_tokens: int

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def kv_bytes(self) -> int:
        """The cache that has to be read once."""
        width = self.k_dim if self.latent else self.k_dim + self.v_dim
        return self.batch * self.tokens * self.kv_heads * width * BF16

    @property
    def other_bytes(self) -> int:
        """Queries read, outputs and their log-sum-exp written."""
        row = (self.k_dim + self.v_dim) * BF16 + FLOAT32
        return self.batch * self.heads * row

    @property
    def flops(self) -> int:
        """Multiplications and additions of the scores and of the weighted sum."""
        return self._flops(self.heads)

    @property
    def tile_flops(self) -> int:
        """The same with the heads of a group filled up to whole matrix-unit tiles."""
        return self._flops(self.kv_heads * tile_rows(self.group))

    def _flops(self, heads: int) -> int:
        return self.batch * heads * self.tokens * 2 * (self.k_dim + self.v_dim)

    def with_tokens(self, tokens: int) -> AttentionShape:
        """The same with fewer tokens, in whole pages where there is at least one."""
        return replace(self, tokens=max(1, tokens // PAGE * PAGE if tokens >= PAGE else tokens))

    def to_json(self) -> dict[str, Any]:
        """The fields of ``calc.measured.AttentionFacts``."""
        return {
            "kind": self.kind,
            "layers": self.layers,
            "batch": self.batch,
            "tokens": self.tokens,
            "wanted_tokens": self.wanted_tokens,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "k_dim": self.k_dim,
            "v_dim": self.v_dim,
            "latent": self.latent,
        }


@dataclass(frozen=True, slots=True)
class StateShape:
    """The update of a recurrent state by one token, one layer on one rank.

    Each head keeps a ``key_dim`` x ``value_dim`` matrix. ``delta``: the value
    written is the error against what the state already says for the key (KDA,
    GDN). ``channel_decay``: one decay for each key channel, else one for a head.
    """

    kind: str
    layers: int
    batch: int
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    delta: bool
    channel_decay: bool
    element_bytes: int

    @property
    def state_bytes(self) -> int:
        return self.batch * self.heads * self.key_dim * self.value_dim * self.element_bytes

    @property
    def moved_bytes(self) -> int:
        """The state is read and written back; the vectors beside it are small."""
        decay = self.heads * (self.key_dim if self.channel_decay else 1) * FLOAT32
        vectors = (2 * self.key_heads * self.key_dim + 2 * self.heads * self.value_dim) * BF16
        return 2 * self.state_bytes + self.batch * (vectors + decay + self.heads * FLOAT32)

    def to_json(self) -> dict[str, Any]:
        """The fields of ``calc.measured.StateFacts``."""
        return {
            "kind": self.kind,
            "layers": self.layers,
            "batch": self.batch,
            "heads": self.heads,
            "key_heads": self.key_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "delta": self.delta,
            "channel_decay": self.channel_decay,
            "element_bytes": self.element_bytes,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something of the scenario that is not measured as it is, and why; ``code`` for the page."""

    what: str
    reason: str
    code: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All kernels of a scenario, largest cache first."""

    attention: tuple[AttentionShape, ...]
    states: tuple[StateShape, ...]
    skipped: tuple[Skipped, ...]


def tile_rows(rows: int) -> int:
    """Rows the matrix units work on: 16 for up to 16, else whole blocks of 64.

    >>> tile_rows(12), tile_rows(96), tile_rows(128)
    (16, 128, 128)
    """
    return 16 if rows <= 16 else -(-rows // 64) * 64


def plan(scenario: Scenario) -> Plan:
    """The kernels of the pipeline stage that holds most; raises CalcError as ``evaluate`` does."""
    report = evaluate(scenario)
    layers = scenario.model_spec.stages(scenario.layout.pp)[report.cache.binding]
    place = _place(scenario)
    attention: Counter[AttentionShape] = Counter()
    states: Counter[StateShape] = Counter()
    skipped: dict[str, Skipped] = {}
    counts = mixer_counts(layers)
    chosen = next((mixer.top_k for mixer in counts if isinstance(mixer, Indexer)), 0)
    for mixer, count in counts.items():
        shape = _shape(mixer, scenario, place, chosen)
        if isinstance(shape, AttentionShape):
            attention[shape] += count
        elif isinstance(shape, StateShape):
            states[shape] += count
        else:
            skipped[mixer.kind] = shape
        if isinstance(mixer, LatentAttention) and mixer.sparse and 0 < chosen < scenario.context:
            skipped[mixer.kind] = _sparse_note(mixer, chosen)
        if (
            isinstance(mixer, StateMixer)
            and isinstance(shape, StateShape)
            and mixer.conv_elements(place.tp).value
        ):
            skipped[f"{mixer.kind} convolution"] = _convolution_note(mixer)
    ordered = sorted(attention.items(), key=lambda entry: -entry[0].kv_bytes)
    return Plan(
        tuple(replace(shape, layers=count) for shape, count in ordered),
        tuple(replace(shape, layers=count) for shape, count in states.items()),
        (*_notes(scenario), *skipped.values()),
    )


def _place(scenario: Scenario) -> Sharding:
    """The rank's place with a bf16 cache, which is what every backend here reads."""
    return Sharding(
        scenario.layout.tp,
        scenario.layout.dcp,
        scenario.engine_rules,
        KV_FORMATS["bf16"],
        scenario.conv_dtype,
        scenario.state_dtype,
    )


def _notes(scenario: Scenario) -> tuple[Skipped, ...]:
    if scenario.kv_dtype == "bf16":
        return ()
    reason = f"the kernels here read bf16; the scenario keeps {scenario.kv_dtype}"
    return (Skipped("kv_dtype", reason, "kv_dtype"),)


def _sparse_note(mixer: Mixer, chosen: int) -> Skipped:
    reason = (
        f"a sparse layer reads the {chosen} latents that its indexer chose (an equal part of them "
        "on each stripe); timed as so many rows side by side, not scattered over the cache"
    )
    return Skipped(mixer.kind, reason, "sparse_rows")


def _convolution_note(mixer: Mixer) -> Skipped:
    reason = "the state's update is timed without the short convolution before it"
    return Skipped(mixer.kind, reason, "convolution")


def _shape(
    mixer: Mixer, scenario: Scenario, place: Sharding, chosen: int
) -> AttentionShape | StateShape | Skipped:
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, scenario, place, chosen if mixer.sparse else 0)
    if isinstance(mixer, Attention):
        return _grouped(mixer, scenario, place)
    if isinstance(mixer, StateMixer):
        return _state(mixer, scenario, place)
    return Skipped(mixer.kind, "there is no kernel for this kind here", "no_kernel")


def _latent(
    mixer: LatentAttention, scenario: Scenario, place: Sharding, chosen: int
) -> AttentionShape:
    """``chosen``: the tokens that a sparse layer reads, 0 for all."""
    read = min(scenario.context, chosen) if chosen else scenario.context
    tokens = -(-read // place.dcp)
    shape = AttentionShape(
        mixer.kind,
        1,
        scenario.batch,
        tokens,
        mixer.heads // place.tp * place.dcp,
        1,
        mixer.row_elements,
        mixer.kv_lora_rank,
        True,
        (mixer.nope_dim + mixer.rope_dim) ** -0.5,
        tokens,
    )
    return shape.with_tokens(tokens)


def _grouped(mixer: Attention, scenario: Scenario, place: Sharding) -> AttentionShape | Skipped:
    stores = mixer.stores(place)
    if not stores:
        return Skipped(mixer.kind, "it reads another layer's cache, measured there", "shared_cache")
    store = stores[0]
    tokens = -(-scenario.context // store.dcp)
    if store.growth in (Growth.WINDOW, Growth.CHUNK):
        tokens = min(tokens, store.limit)
    shape = AttentionShape(
        mixer.kind,
        1,
        scenario.batch,
        tokens,
        mixer.heads // place.tp * store.dcp,
        max(1, mixer.kv_heads // place.tp),
        mixer.k_dim,
        mixer.v_dim,
        False,
        mixer.k_dim**-0.5,
        tokens,
    )
    return shape.with_tokens(tokens)


def _state(mixer: StateMixer, scenario: Scenario, place: Sharding) -> StateShape | Skipped:
    tp = place.tp
    _, dtype = place.engine.state_dtypes(mixer, place.conv_dtype, place.state_dtype)
    size = DTYPE_BYTES[dtype]
    batch = scenario.batch
    match mixer:
        case KimiDeltaAttention():
            heads, dim = mixer.heads // tp, mixer.head_dim
            return StateShape(mixer.kind, 1, batch, heads, heads, dim, dim, True, True, size)
        case GatedDeltaNet():
            heads, keys = mixer.value_heads // tp, mixer.key_heads // tp
            dims = mixer.key_dim, mixer.value_dim
            return StateShape(mixer.kind, 1, batch, heads, keys, *dims, True, False, size)
        case Mamba2():
            heads, groups = mixer.heads // tp, max(1, mixer.groups // tp)
            dims = mixer.state_size, mixer.head_dim
            return StateShape(mixer.kind, 1, batch, heads, groups, *dims, False, False, size)
        case LightningAttention():
            heads, dim = mixer.heads // tp, mixer.head_dim
            return StateShape(mixer.kind, 1, batch, heads, heads, dim, dim, False, False, size)
    return Skipped(mixer.kind, "there is no kernel for this kind of state here", "no_kernel")
