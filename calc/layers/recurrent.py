"""Layers whose memory is a fixed-size state per request.

State shapes per rank are those of vLLM 0.33 ``layers/mamba/mamba_utils.py``
(``MambaStateShapeCalculator``). A state is split by heads over tp and never
divided by dcp: the ranks of a DCP group are TP ranks.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from calc.formats import DTYPE_BYTES
from calc.items import Item, formula
from calc.layers.base import (
    AMPERE,
    BLACKWELL,
    BLACKWELL_PRO,
    HOPPER,
    Growth,
    Heads,
    Mixer,
    Sharding,
    Store,
    Width,
)
from calc.layers.tensors import Split, Tensor, vector
from calc.units import exact_div

SHAPES = "vLLM 0.33 layers/mamba/mamba_utils.py MambaStateShapeCalculator"


FLASHINFER_KEY = 128
"""The key width that FlashInfer's delta rule has on Blackwell."""


@formula(unit="B", source=SHAPES)
def state_layer_bytes(
    conv_elements: int, conv_bytes: int, recurrent_elements: int, state_bytes: int
) -> int:
    """One request's convolution window and recurrent state in one layer on one rank."""
    return conv_elements * conv_bytes + recurrent_elements * state_bytes


@formula(unit="elements", source=SHAPES)
def conv_window(conv_channels: int, tp: int, conv_kernel: int) -> int:
    """The last K - 1 inputs of a causal convolution over channels split by tp."""
    return exact_div(conv_channels, tp) * (conv_kernel - 1)


@formula(unit="elements", source=f"{SHAPES} (num_spec)")
def conv_window_with_drafts(conv_elements: int, conv_kernel: int, draft_tokens: int) -> int:
    """The window of K - 1 inputs is widened by one for each draft token."""
    return exact_div(conv_elements, conv_kernel - 1) * (conv_kernel - 1 + draft_tokens)


@formula(unit="elements", source="layers without a convolution or without a recurrence")
def nothing_kept() -> int:
    """No elements."""
    return 0


@formula(unit="channels", source=SHAPES)
def mamba2_conv_channels(inner_size: int, groups_held: int, state_size: int) -> int:
    """x, and B and C of every group (extended to tp groups where tp does not divide them)."""
    return inner_size + 2 * groups_held * state_size


@formula(unit="groups", source=SHAPES + " extra_groups_for_head_shards")
def mamba2_groups_held(groups: int, tp: int) -> int:
    """Groups after replication: each rank needs a whole one."""
    return groups if groups % tp == 0 else tp


@formula(unit="elements", source=SHAPES)
def mamba1_state(inner_size: int, tp: int, state_size: int) -> int:
    """One state vector for each inner channel."""
    return exact_div(inner_size, tp) * state_size


@formula(unit="elements", source=SHAPES)
def head_states(heads: int, tp: int, key_dim: int, value_dim: int) -> int:
    """One key x value matrix for each head."""
    return exact_div(heads, tp) * key_dim * value_dim


class StateMixer(Mixer):
    """A layer with a state: subclasses give its elements on one rank.

    ``default_state_dtype`` is what an engine takes for the recurrent part when
    neither the model nor the user says anything (None: that of the convolution).
    """

    default_state_dtype: ClassVar[str | None] = None
    vllm_state_dtypes: ClassVar[tuple[str, ...]] = ("bf16", "float32")

    state_dtype: Literal["bf16", "float32"] | None = None
    """The dtype that the model's config or class asks for the recurrent part."""

    def kernel_to_widen(self) -> int:
        """Width of a convolution whose window drafting widens; 0: it does not."""
        return 0

    def checkpoint_grid(self, place: Sharding) -> int:
        """Tokens at whose multiples vLLM's kernel can save a state in the middle of a prefill, into
        a slot of its own (num_prefill_checkpoint_blocks); 0: it cannot."""
        return 0

    @abstractmethod
    def conv_elements(self, tp: int) -> Item:
        """Elements of the convolution window of one layer on one rank."""

    @abstractmethod
    def recurrent_elements(self, tp: int) -> Item:
        """Elements of the recurrent state of one layer on one rank."""

    def stores(self, place: Sharding) -> tuple[Store, ...]:
        conv_dtype, state_dtype = place.engine.state_dtypes(
            self, place.conv_dtype, place.state_dtype
        )
        conv = self.conv_elements(place.tp)
        kernel = self.kernel_to_widen()
        if place.conv_drafts and kernel > 1:
            conv = conv_window_with_drafts.item(
                f"{self.kind}.conv_with_drafts",
                conv_elements=conv,
                conv_kernel=kernel,
                draft_tokens=place.conv_drafts,
            )
        held = state_layer_bytes.item(
            f"{self.kind}.state",
            conv_elements=conv,
            conv_bytes=DTYPE_BYTES[conv_dtype],
            recurrent_elements=self.recurrent_elements(place.tp),
            state_bytes=DTYPE_BYTES[state_dtype],
        )
        return (Store("state", self.kind, Growth.STATE, held),)


def _rows(name: str, rows: int, columns: int, shares: int = 2**20) -> Tensor:
    """A projection whose output is split over tp (vectors and convolutions too)."""
    return Tensor(name, "state", rows, columns, Split.ROWS, most_shares=shares)


def _output(hidden_size: int, inner: int) -> Tensor:
    return Tensor("out_proj", "state", hidden_size, inner, Split.COLUMNS)


class Mamba1(StateMixer):
    """Keeps a short input window and one state vector per inner channel.

    ``inner_norms``: dt, B and C are normalised (Jamba); a weight, no cache.
    """

    kind: Literal["mamba1"] = "mamba1"
    inner_size: Width
    state_size: Width
    conv_kernel: Width
    dt_rank: Width
    conv_bias: bool = True
    inner_norms: bool = False

    def conv_elements(self, tp: int) -> Item:
        return conv_window.item(
            f"{self.kind}.conv",
            conv_channels=self.inner_size,
            tp=tp,
            conv_kernel=self.conv_kernel,
        )

    def recurrent_elements(self, tp: int) -> Item:
        return mamba1_state.item(
            f"{self.kind}.recurrent",
            inner_size=self.inner_size,
            tp=tp,
            state_size=self.state_size,
        )

    def split_counts(self) -> dict[str, int]:
        return {"inner channels": self.inner_size}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner = self.inner_size
        made = [
            _rows("in_proj", 2 * inner, hidden_size),
            _rows("conv", inner, self.conv_kernel),
            Tensor("x_proj", "state", self.dt_rank + 2 * self.state_size, inner, Split.COLUMNS),
            _rows("dt_proj", inner, self.dt_rank),
            _rows("dt_bias", inner, 1),
            _rows("a_log", inner, self.state_size),
            _rows("d", inner, 1),
            _output(hidden_size, inner),
        ]
        if self.conv_bias:
            made.append(_rows("conv_bias", inner, 1))
        if self.inner_norms:
            made.append(vector("inner_norms", "norm", self.dt_rank + 2 * self.state_size))
        return tuple(made)


class Mamba2(StateMixer):
    """Keeps a short window of x, B and C, and one head_dim x state_size matrix per head.

    ``conv_bias`` and ``gated_norm`` (a norm over the inner width) change weights only.
    """

    kind: Literal["mamba2"] = "mamba2"
    heads: Heads
    head_dim: Width
    state_size: Width
    groups: Heads
    conv_kernel: Width
    conv_bias: bool = True
    gated_norm: bool = True

    def checkpoint_grid(self, place: Sharding) -> int:
        """vLLM 0.33 layers/mamba/mamba_mixer2.py get_kv_cache_spec: anywhere."""
        return 1

    def kernel_to_widen(self) -> int:
        return self.conv_kernel

    def conv_elements(self, tp: int) -> Item:
        groups_held = mamba2_groups_held.item(f"{self.kind}.groups", groups=self.groups, tp=tp)
        channels = mamba2_conv_channels.item(
            f"{self.kind}.channels",
            inner_size=self.heads * self.head_dim,
            groups_held=groups_held,
            state_size=self.state_size,
        )
        return conv_window.item(
            f"{self.kind}.conv", conv_channels=channels, tp=tp, conv_kernel=self.conv_kernel
        )

    def recurrent_elements(self, tp: int) -> Item:
        return head_states.item(
            f"{self.kind}.recurrent",
            heads=self.heads,
            tp=tp,
            key_dim=self.state_size,
            value_dim=self.head_dim,
        )

    def split_counts(self) -> dict[str, int]:
        return {"heads": self.heads}

    def replicable_counts(self) -> dict[str, int]:
        return {"groups": self.groups}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner = self.heads * self.head_dim
        shared = 2 * self.groups * self.state_size  # B and C of each group
        made = [
            _rows("in_proj", 2 * inner + self.heads, hidden_size),  # z, x and dt
            _rows("in_proj_bc", shared, hidden_size, self.groups),
            _rows("conv", inner, self.conv_kernel),
            _rows("conv_bc", shared, self.conv_kernel, self.groups),
            _rows("dt_bias", self.heads, 1),
            _rows("a_log", self.heads, 1),
            _rows("d", self.heads, 1),
            _output(hidden_size, inner),
        ]
        if self.conv_bias:
            made.append(_rows("conv_bias", inner, 1))
            made.append(_rows("conv_bc_bias", shared, 1, self.groups))
        if self.gated_norm:
            made.append(vector("gated_norm", "norm", inner, Split.ROWS))
        return tuple(made)


@formula(unit="channels", source=SHAPES)
def delta_conv_channels(key_heads: int, key_dim: int, value_heads: int, value_dim: int) -> int:
    """q and k of the key heads and v of the value heads pass through the convolution."""
    return 2 * key_heads * key_dim + value_heads * value_dim


def _delta_window(
    kind: str, keys: tuple[int, int], values: tuple[int, int], conv_kernel: int, tp: int
) -> Item:
    """The convolution window over q, k and v; ``keys`` and ``values`` are (heads, width)."""
    channels = delta_conv_channels.item(
        f"{kind}.channels",
        key_heads=keys[0],
        key_dim=keys[1],
        value_heads=values[0],
        value_dim=values[1],
    )
    return conv_window.item(f"{kind}.conv", conv_channels=channels, tp=tp, conv_kernel=conv_kernel)


def _square_states(kind: str, heads: int, head_dim: int, tp: int) -> Item:
    """One head_dim x head_dim matrix for each head on a rank."""
    return head_states.item(
        f"{kind}.recurrent", heads=heads, tp=tp, key_dim=head_dim, value_dim=head_dim
    )


class GatedDeltaNet(StateMixer):
    """Keeps a short window of q, k and v, and one key x value matrix per value head."""

    kind: Literal["gdn"] = "gdn"
    key_heads: Heads
    key_dim: Width
    value_heads: Heads
    value_dim: Width
    conv_kernel: Width

    def checkpoint_grid(self, place: Sharding) -> int:
        """vLLM 0.33 gdn/qwen_gdn_linear_attn.py: 64 with FlashInfer's kernel, which Hopper has, and
        with keys of 128 and CUDA 13 (what its wheel is built for) Blackwell."""
        blackwell = place.cuda in (BLACKWELL, BLACKWELL_PRO) and self.key_dim == FLASHINFER_KEY
        return 64 if blackwell or place.cuda == HOPPER else 0

    def kernel_to_widen(self) -> int:
        return self.conv_kernel

    def conv_elements(self, tp: int) -> Item:
        keys, values = (self.key_heads, self.key_dim), (self.value_heads, self.value_dim)
        return _delta_window(self.kind, keys, values, self.conv_kernel, tp)

    def recurrent_elements(self, tp: int) -> Item:
        return head_states.item(
            f"{self.kind}.recurrent",
            heads=self.value_heads,
            tp=tp,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
        )

    def split_counts(self) -> dict[str, int]:
        return {"key heads": self.key_heads, "value heads": self.value_heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        return (
            _rows("in_proj_qkvz", 2 * keys + 2 * values, hidden_size),
            _rows("in_proj_ba", 2 * self.value_heads, hidden_size),
            _rows("conv", 2 * keys + values, self.conv_kernel),
            _rows("dt_bias", self.value_heads, 1),
            _rows("a_log", self.value_heads, 1),
            vector("out_norm", "norm", self.value_dim),
            _output(hidden_size, values),
        )


class KimiDeltaAttention(StateMixer):
    """Keeps a short window of q, k and v, and one head_dim x head_dim matrix per head (KDA).

    The decay gate is low-rank (``head_dim``); the output gate too, unless
    ``full_rank_gate``. ``exports_checkpoint``: vLLM runs the model with a kernel that
    can save a state in the middle of a prefill.
    """

    default_state_dtype: ClassVar[str | None] = "float32"

    kind: Literal["kda"] = "kda"
    heads: Heads
    head_dim: Width
    conv_kernel: Width
    full_rank_gate: bool = False
    exports_checkpoint: bool = False

    def checkpoint_grid(self, place: Sharding) -> int:
        """vLLM 0.33 models/kimi_k3/nvidia/kda.py: FlashKDA, from Hopper on, asks nothing of blocks;
        amd/kda.py: the fused kernel too."""
        return int(self.exports_checkpoint and place.cuda != AMPERE)

    def kernel_to_widen(self) -> int:
        return self.conv_kernel

    def conv_elements(self, tp: int) -> Item:
        heads = (self.heads, self.head_dim)
        return _delta_window(self.kind, heads, heads, self.conv_kernel, tp)

    def recurrent_elements(self, tp: int) -> Item:
        return _square_states(self.kind, self.heads, self.head_dim, tp)

    def split_counts(self) -> dict[str, int]:
        return {"heads": self.heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner = self.heads * self.head_dim
        gate: tuple[Tensor, ...]
        if self.full_rank_gate:
            gate = (_rows("g_proj", inner, hidden_size),)
        else:
            gate = (
                Tensor("g_a_proj", "state", self.head_dim, hidden_size),
                _rows("g_b_proj", inner, self.head_dim),
            )
        return (
            *(_rows(f"{name}_proj", inner, hidden_size) for name in "qkv"),
            _rows("conv", 3 * inner, self.conv_kernel),
            Tensor("f_a_proj", "state", self.head_dim, hidden_size),
            _rows("f_b_proj", inner, self.head_dim),
            *gate,
            _rows("b_proj", self.heads, hidden_size),
            _rows("dt_bias", inner, 1),
            _rows("a_log", self.heads, 1),
            vector("out_norm", "norm", self.head_dim),
            _output(hidden_size, inner),
        )


class LightningAttention(StateMixer):
    """Keeps one head_dim x head_dim matrix per head; there is no convolution.

    An output gate and a norm over all heads are part of its weights.
    """

    # vLLM 0.33 raises "not yet supported" for a float32 state of this kind
    vllm_state_dtypes: ClassVar[tuple[str, ...]] = ("bf16",)

    kind: Literal["lightning"] = "lightning"
    heads: Heads
    head_dim: Width

    def conv_elements(self, tp: int) -> Item:
        return nothing_kept.item(f"{self.kind}.conv")

    def recurrent_elements(self, tp: int) -> Item:
        return _square_states(self.kind, self.heads, self.head_dim, tp)

    def split_counts(self) -> dict[str, int]:
        return {"heads": self.heads}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner = self.heads * self.head_dim
        return (
            _rows("qkv_proj", 3 * inner, hidden_size),
            _rows("output_gate", inner, hidden_size),
            vector("out_norm", "norm", inner, Split.ROWS),
            _output(hidden_size, inner),
        )


class ShortConvolution(StateMixer):
    """Keeps the last K - 1 inputs of a causal convolution and nothing else (LFM2)."""

    kind: Literal["short_conv"] = "short_conv"
    channels: Width
    conv_kernel: Width

    def kernel_to_widen(self) -> int:
        return self.conv_kernel

    def conv_elements(self, tp: int) -> Item:
        return conv_window.item(
            f"{self.kind}.conv", conv_channels=self.channels, tp=tp, conv_kernel=self.conv_kernel
        )

    def recurrent_elements(self, tp: int) -> Item:
        return nothing_kept.item(f"{self.kind}.recurrent")

    def split_counts(self) -> dict[str, int]:
        return {"channels": self.channels}

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        return (
            _rows("in_proj", 3 * self.channels, hidden_size),
            _rows("conv", self.channels, self.conv_kernel),
            _output(hidden_size, self.channels),
        )
