"""Calls of our own kernels: choosing tiles, splits and descriptors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gpu.kernels.merge import merge_partials
from gpu.kernels.read import read_sum
from gpu.kernels.split_decode import split_decode
from gpu.kernels.state_update import state_update
from gpu.shapes import AttentionShape, StateShape

READ_BLOCK = 8192
MERGE_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Tiles:
    """How one program of the split kernel works."""

    heads: int
    block: int
    warps: int
    stages: int


def pieces(width: int) -> tuple[int, int] | None:
    """A width as two powers of two (the second may be 0), or None.

    >>> pieces(576), pieces(192), pieces(128), pieces(112)
    ((512, 64), (128, 64), (128, 0), None)
    """
    main = 1 << (width.bit_length() - 1)
    rest = width - main
    fits = main >= 16 and (rest == 0 or (rest >= 16 and rest & (rest - 1) == 0))
    return (main, rest) if fits else None


def why_not(shape: AttentionShape) -> str | None:
    """Why the split kernel cannot serve a shape, or None."""
    if pieces(shape.k_dim) is None:
        return f"no tiling for keys of width {shape.k_dim}"
    if shape.latent and pieces(shape.k_dim) != (shape.v_dim, shape.k_dim - shape.v_dim):
        return f"no tiling for a latent of {shape.v_dim} in rows of {shape.k_dim}"
    if pieces(shape.v_dim) != (shape.v_dim, 0):
        return f"no tiling for values of width {shape.v_dim}"
    return None


def default_tiles(shape: AttentionShape) -> Tiles:
    """Tiles that did best on an H200; blocks of 128 tokens where they fit three times."""
    row = 2 * (shape.k_dim if shape.latent else shape.k_dim + shape.v_dim)
    if shape.group > 16:
        return Tiles(64, 64, 8, 2) if shape.v_dim >= 512 else Tiles(64, 64, 4, 3)
    if row <= 512:
        return Tiles(16, 128, 4, 3)
    return Tiles(16, 64, 4, 3 if row <= 1280 else 2)


def split_candidates(shape: AttentionShape, tiles: Tiles, processors: int) -> list[int]:
    """Split counts worth trying: programs for about 1 to 16 rounds over the processors.

    >>> shape = AttentionShape("mla", 1, 64, 131072, 12, 1, 576, 512, True, 0.07, 131072)
    >>> split_candidates(shape, Tiles(16, 64, 4, 3), 132)
    [2, 4, 6, 8, 16, 33]
    >>> split_candidates(shape.with_tokens(64), Tiles(16, 64, 4, 3), 132)
    [1]
    """
    work = shape.batch * shape.kv_heads * math.ceil(shape.group / tiles.heads)
    most = max(1, min(128, shape.tokens // (2 * tiles.block)))
    wanted = (max(1, processors * rounds // work) for rounds in (1, 2, 3, 4, 8, 16))
    alone = {1} if 2 * work >= processors else set()
    return sorted(alone | {min(splits, most) for splits in wanted})


class SplitDecode:
    """The split kernel and the merge on fixed tensors; call it to run both."""

    def __init__(
        self,
        shape: AttentionShape,
        q: Any,
        k: Any,
        v: Any,
        tma: bool,
        splits: int,
        tiles: Tiles | None = None,
    ) -> None:
        self.shape = shape
        self.tiles = tiles or default_tiles(shape)
        self.tma = tma
        self.q, self.k, self.v = q, k, v
        self.d_main, self.d_rest = pieces(shape.k_dim) or (0, 0)
        self.sources = self._sources()
        rows = shape.batch, shape.heads
        self.out = torch.empty(*rows, shape.v_dim, device=q.device, dtype=q.dtype)
        self.lse = torch.empty(*rows, device=q.device, dtype=torch.float32)
        self.set_splits(splits)

    def set_splits(self, splits: int) -> None:
        """Change the number of splits; a single one writes the answer and needs no merge."""
        self.splits = splits
        if splits == 1:
            self.part_out, self.part_lse = self.out, self.lse
            return
        rows = self.shape.batch, self.shape.heads, splits
        options = {"device": self.q.device, "dtype": torch.float32}
        self.part_out = torch.empty(*rows, self.shape.v_dim, **options)
        self.part_lse = torch.empty(*rows, **options)

    def _sources(self) -> tuple[Any, Any, Any]:
        if not self.tma:
            return self.k, self.k, self.v
        from triton.tools.tensor_descriptor import TensorDescriptor

        def pieces_of(tensor: Any, width: int) -> Any:
            flat = tensor.view(self.shape.batch * self.shape.tokens, -1)
            return TensorDescriptor.from_tensor(flat, [self.tiles.block, width])

        main = pieces_of(self.k, self.d_main)
        rest = pieces_of(self.k, self.d_rest) if self.d_rest else main
        return main, rest, main if self.shape.latent else pieces_of(self.v, self.shape.v_dim)

    def __call__(self) -> tuple[Any, Any]:
        self.first()
        if self.splits == 1:
            return self.out, self.lse
        return merge(self.part_out, self.part_lse, self.out, self.lse, part_axis=2)

    def first(self) -> None:
        """The first stage alone: partial outputs of each split."""
        shape, tiles = self.shape, self.tiles
        grid = (
            math.ceil(shape.group / tiles.heads),
            self.splits,
            shape.batch * shape.kv_heads,
        )
        split_decode[grid](
            self.q,
            *self.sources,
            self.part_out,
            self.part_lse,
            shape.scale * math.log2(math.e),
            shape.tokens,
            self.splits,
            shape.kv_heads,
            shape.group,
            d_main=self.d_main,
            d_rest=self.d_rest,
            d_v=shape.v_dim,
            latent=shape.latent,
            heads_tile=tiles.heads,
            block=tiles.block,
            tma=self.tma,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )


def merge(part_out: Any, part_lse: Any, out: Any, lse: Any, part_axis: int) -> tuple[Any, Any]:
    """Merge partials along an axis: 0 for [parts, B, H, d], 2 for [B, H, parts, d]."""
    width = part_out.shape[-1]
    parts = part_out.shape[part_axis]
    rows = out.numel() // width
    last = 1 if part_axis == 0 else parts
    columns = min(128, width)
    merge_partials[(rows, width // columns)](
        part_out,
        part_lse,
        out,
        lse,
        parts,
        part_out.stride(part_axis),
        last * width,
        part_lse.stride(part_axis),
        last,
        width=width,
        columns=columns,
        chunk=min(MERGE_CHUNK, triton.next_power_of_2(parts)),
        num_warps=1,
    )
    return out, lse


def update_state(shape: StateShape, tensors: dict[str, Any], columns: int = 32) -> Any:
    """One token's update in place; the tensors are those of ``gpu.states``."""
    columns = min(columns, shape.value_dim)
    grid = (shape.batch * shape.heads, shape.value_dim // columns)
    names = ("state", "q", "k", "v", "decay", "beta", "out")
    state_update[grid](
        *(tensors[name] for name in names),
        shape.heads,
        shape.heads // shape.key_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        columns=columns,
        delta=shape.delta,
        channel_decay=shape.channel_decay,
        num_warps=4,
    )
    return tensors["out"]


def read_all(words: Any, sums: Any) -> None:
    """Read an int32 tensor once."""
    size = words.numel()
    read_sum[(math.ceil(size / READ_BLOCK),)](words, sums, size, block=READ_BLOCK, num_warps=8)


def sums_for(words: Any) -> Any:
    """What ``read_all`` writes into."""
    count = math.ceil(words.numel() / READ_BLOCK)
    return torch.empty(count, device=words.device, dtype=torch.int32)
