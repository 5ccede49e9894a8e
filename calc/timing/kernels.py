"""The time of one decode kernel: bytes and arithmetic against the GPU's rates.

max(bytes / rate, FLOP / rate) + a launch, with heads padded to the tile the
kernel computes in. One request alone (one KV head of it) cannot draw the whole
memory rate; thread blocks beyond one a processor start later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.formats import DTYPE_BYTES
from calc.hardware import Hardware
from calc.items import Item, Status, formula
from calc.layers import (
    Attention,
    CompressedLatentAttention,
    Growth,
    Indexer,
    LatentAttention,
    Sharding,
    StateMixer,
)
from calc.timing.data import Borrowed, Kernel, KernelKind, kernel_for
from calc.units import Number, ceil_div, exact_div, greater, lesser

FITTED = "fitted to decode kernels on H200 and B200: presets/timing"
PROCESSORS = 132
WINDOW_TILE = 128
"""Tokens that a kernel reads at a time: a window that starts inside one reads it whole."""


@formula(unit="µs", source=FITTED, status=Status.ESTIMATE)
def attention_us(
    launch_us: float,
    read_bytes: Number,
    read_rate: float,
    flop: Number,
    flop_rate: float,
    io_bytes: Number,
    memory_rate: float,
    wave_us: float,
    waves: Number,
    split_us: float,
    split_share: Number,
) -> Number:
    """Rows read or arithmetic, whichever takes longer; queries in, outputs out; a launch."""
    return (
        launch_us
        + split_us * split_share
        + greater(read_bytes / read_rate, flop / flop_rate)
        + io_bytes / memory_rate
        + wave_us * waves
    )


@formula(unit="µs", source=FITTED, status=Status.ESTIMATE)
def moving_us(launch_us: float, moved_bytes: Number, memory_rate: float) -> Number:
    """A kernel that reads and writes a state and does little else."""
    return launch_us + moved_bytes / memory_rate


@formula(unit="FLOP", source="scores and outputs: two operations for a row element and head")
def attention_flop(
    requests: Number, padded_rows: int, read_tokens: Number, score_width: int, output_width: int
) -> Number:
    """Arithmetic of attention over cached rows, padded query rows included."""
    return 2 * requests * padded_rows * read_tokens * (score_width + output_width)


@formula(unit="B", source="every cached row of a request is read once a step")
def rows_read(requests: Number, read_tokens: Number, row_bytes: Number) -> Number:
    """Cache read by one layer on one rank."""
    return requests * read_tokens * row_bytes


@formula(unit="B", source="a state is read and written once a step")
def state_moved(requests: Number, elements: int, element_bytes: int) -> Number:
    """Traffic of one layer's states on one rank."""
    return 2 * requests * elements * element_bytes


@dataclass(frozen=True, slots=True)
class Kernels:
    """Decode kernels of one GPU."""

    gpu: Hardware

    def latent(
        self,
        requests: Number,
        heads: int,
        tokens: Number,
        row_bytes: float = 1152,
        query_tokens: int = 1,
        widths: tuple[int, int] = (576, 512),
        key: str = "mla.attention.us",
    ) -> Item:
        """Absorbed latent attention of ``heads`` query heads over ``tokens`` rows of one rank."""
        rows = heads * query_tokens
        return self._attention("latent", key, requests, 1, rows, tokens, row_bytes, widths)

    def heads(
        self,
        requests: Number,
        heads: int,
        kv_heads: int,
        tokens: Number,
        row_bytes: float,
        query_tokens: int = 1,
        widths: tuple[int, int] = (128, 128),
        window: int = 0,
        key: str = "attention.attention.us",
    ) -> Item:
        """K/V attention; ``row_bytes`` of all KV heads of the rank, ``window`` 0 for none."""
        if window:
            tokens = lesser(tokens, (ceil_div(window, WINDOW_TILE) + 1) * WINDOW_TILE)
        rows = max(1, heads // kv_heads) * query_tokens
        return self._attention("heads", key, requests, kv_heads, rows, tokens, row_bytes, widths)

    def _attention(
        self,
        kind: KernelKind,
        key: str,
        requests: Number,
        streams: int,
        rows: int,
        tokens: Number,
        row_bytes: float,
        widths: tuple[int, int],
    ) -> Item:
        kernel, borrowed = kernel_for(self.gpu, kind)
        tile, rate = _tile(kernel, rows)
        tiles = ceil_div(rows, tile)
        memory_rate, flop_rate = self._rates(kernel.rate_tb_s, rate, borrowed)
        each = (kernel.stream_tb_s or kernel.rate_tb_s) * borrowed.scale * 1e6
        processors = borrowed.measurements.processors or PROCESSORS
        return attention_us.item(
            key,
            launch_us=kernel.launch_us,
            read_bytes=rows_read.item(
                f"{key}.read", requests=requests, read_tokens=tokens, row_bytes=row_bytes
            ),
            read_rate=lesser(memory_rate, each * requests * streams),
            flop=attention_flop.item(
                f"{key}.flop",
                requests=requests,
                padded_rows=streams * tiles * tile,
                read_tokens=tokens,
                score_width=widths[0],
                output_width=widths[1],
            ),
            flop_rate=flop_rate,
            io_bytes=requests * streams * rows * sum(widths) * 2,
            memory_rate=memory_rate,
            wave_us=kernel.wave_us,
            waves=requests * streams * tiles / processors,
            split_us=kernel.split_us,
            split_share=tokens / (tokens + kernel.split_tokens),
        )

    def _rates(self, rate_tb_s: float, tflops: float, borrowed: Borrowed) -> tuple[float, float]:
        """Bytes and operations a µs: as this GPU was measured to reach, else as fitted."""
        gpu, reached = self.gpu, self.gpu.reached
        memory, arithmetic = rate_tb_s * borrowed.scale * 1e6, tflops * borrowed.compute * 1e6
        if reached.hbm:
            memory = gpu.memory_rate.value * reached.hbm / 1e6
        if reached.attention:
            arithmetic = gpu.flops["bf16"].value * reached.attention / 1e6
        return memory, arithmetic

    def convolution(self, requests: Number, channels: int, columns: int, key: str) -> Item:
        """A causal convolution's window in bf16, and one column in and out."""
        elements = channels * columns + channels
        return self._moving("convolution", key, requests, elements, 2)

    def recurrence(self, requests: Number, elements: int, element_bytes: int, key: str) -> Item:
        """A recurrent state read, updated and written."""
        return self._moving("recurrence", key, requests, elements, element_bytes)

    def _moving(
        self, kind: KernelKind, key: str, requests: Number, elements: int, element_bytes: int
    ) -> Item:
        kernel, borrowed = kernel_for(self.gpu, kind)
        return moving_us.item(
            key,
            launch_us=kernel.launch_us,
            moved_bytes=state_moved.item(
                f"{key}.moved", requests=requests, elements=elements, element_bytes=element_bytes
            ),
            memory_rate=kernel.rate_tb_s * borrowed.scale * 1e6,
        )

    def mixer(
        self,
        mixer: Any,
        place: Sharding,
        requests: Number,
        context: Number,
        query_tokens: int = 1,
        chosen: int = 0,
    ) -> tuple[Item, ...]:
        """The kernels of one layer's mixer on one rank, for ``requests`` of equal context.

        ``chosen`` are the tokens that sparse attention reads for each query token.
        """
        if isinstance(mixer, LatentAttention):
            if mixer.sparse and chosen:
                # each query token reads its own choice, spread over the stripes
                requests, query_tokens = requests * query_tokens, 1
                context = lesser(context, chosen)
            return (self._latent_mixer(mixer, place, requests, context, query_tokens),)
        if isinstance(mixer, CompressedLatentAttention):
            return (self._compressed_mixer(mixer, place, requests, context, query_tokens),)
        if isinstance(mixer, Indexer):
            return (self._indexer(mixer, place, requests, context, query_tokens),)
        if isinstance(mixer, Attention):
            return (self._heads_mixer(mixer, place, requests, context, query_tokens),)
        if isinstance(mixer, StateMixer):
            return self._state_mixer(mixer, place, requests)
        return ()

    def _latent_mixer(
        self,
        mixer: LatentAttention,
        place: Sharding,
        requests: Number,
        context: Number,
        query_tokens: int,
    ) -> Item:
        tokens = ceil_div(context, place.dcp)
        heads = exact_div(mixer.heads, place.tp) * place.dcp
        return self.latent(
            requests,
            heads,
            tokens,
            mixer.row(place).value,
            query_tokens,
            (mixer.row_elements, mixer.kv_lora_rank),
        )

    def _compressed_mixer(
        self,
        mixer: CompressedLatentAttention,
        place: Sharding,
        requests: Number,
        context: Number,
        query_tokens: int,
    ) -> Item:
        """The window's rows, and of the compressed ones those chosen (or all)."""
        tokens = lesser(context, mixer.window)
        if mixer.compress_ratio:
            compressed = context // mixer.compress_ratio
            if mixer.index_top_k:
                compressed = lesser(compressed, mixer.index_top_k)
            tokens = tokens + compressed
        return self.latent(
            requests,
            exact_div(mixer.heads, place.tp),
            tokens,
            mixer.stores(place)[0].bytes.value,
            query_tokens,
            (mixer.head_dim, mixer.head_dim),
            f"{mixer.kind}.attention.us",
        )

    def _indexer(
        self,
        mixer: Indexer,
        place: Sharding,
        requests: Number,
        context: Number,
        query_tokens: int,
    ) -> Item:
        """Scores of every cached key against all index heads, read like K/V of one head."""
        store = mixer.stores(place)[0]
        return self._attention(
            "heads",
            f"{mixer.kind}.scores.us",
            requests,
            1,
            mixer.heads * query_tokens,
            ceil_div(context, store.dcp),
            store.bytes.value,
            (mixer.index_dim, 0),
        )

    def _heads_mixer(
        self,
        mixer: Attention,
        place: Sharding,
        requests: Number,
        context: Number,
        query_tokens: int,
    ) -> Item:
        growing = mixer.growth is Growth.GROWING
        dcp = place.dcp if growing else 1
        held = place.engine.kv_heads_per_rank(mixer.kv_heads, place.tp, dcp)
        row = place.kv_format.dense_row(mixer.kind, held, mixer.k_dim, mixer.v_dim)
        return self.heads(
            requests,
            exact_div(mixer.heads, place.tp) * dcp,
            held.value,
            ceil_div(context, dcp),
            row.value,
            query_tokens,
            (mixer.k_dim, mixer.v_dim),
            0 if growing else mixer.limit,
            f"{mixer.kind}.attention.us",
        )

    def _state_mixer(
        self, mixer: StateMixer, place: Sharding, requests: Number
    ) -> tuple[Item, ...]:
        _, state = place.engine.state_dtypes(mixer, place.conv_dtype, place.state_dtype)
        window = mixer.conv_elements(place.tp).value
        recurrent = mixer.recurrent_elements(place.tp).value
        kernels = []
        if window:
            columns = getattr(mixer, "conv_kernel", 4) - 1
            kernels.append(
                self.convolution(
                    requests, window // max(1, columns), columns, f"{mixer.kind}.convolution.us"
                )
            )
        if recurrent:
            kernels.append(
                self.recurrence(
                    requests, recurrent, DTYPE_BYTES[state], f"{mixer.kind}.recurrence.us"
                )
            )
        return tuple(kernels)


def _tile(kernel: Kernel, rows: int) -> tuple[int, float]:
    """(rows of a tile, TFLOP/s) of the kernel used for so many query rows."""
    for tile, most, rate in kernel.tiles:
        if rows <= most:
            return tile, rate
    tile, _, rate = kernel.tiles[-1]
    return tile, rate
