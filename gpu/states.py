"""The recurrent-state update of one layer: tensors, the fp32 answer, and its time."""

from __future__ import annotations

from typing import Any

import torch

from gpu.own import update_state
from gpu.problem import relative
from gpu.shapes import StateShape


def state_tensors(shape: StateShape, device: Any, seed: int = 0) -> dict[str, Any]:
    """Random inputs; keys and queries of unit length, decays below one, as in the models."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int) -> Any:
        return torch.randn(*size, device=device, generator=generator)

    batch, heads = shape.batch, shape.heads
    kept = torch.float32 if shape.element_bytes == 4 else torch.bfloat16
    vectors = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
    decay_size = (batch, heads, shape.key_dim) if shape.channel_decay else (batch, heads)
    keys = normal(2, batch, shape.key_heads, shape.key_dim)
    keys = torch.nn.functional.normalize(keys, dim=-1).to(vectors)
    return {
        "state": normal(batch, heads, shape.key_dim, shape.value_dim).to(kept),
        "q": keys[0].contiguous(),
        "k": keys[1].contiguous(),
        "v": normal(batch, heads, shape.value_dim).to(vectors),
        "decay": torch.sigmoid(normal(*decay_size) + 2.0),
        "beta": torch.sigmoid(normal(batch, heads)),
        "out": torch.full((batch, heads, shape.value_dim), float("nan"), device=device).to(vectors),
    }


def state_reference(shape: StateShape, tensors: dict[str, Any]) -> tuple[Any, Any]:
    """(new state, out) of the first request in fp32, from the formulas."""
    first = {name: tensor[0].float() for name, tensor in tensors.items()}
    share = shape.heads // shape.key_heads
    key, query = (first[name].repeat_interleave(share, 0) for name in "kq")
    decay = first["decay"][..., None] if shape.channel_decay else first["decay"][:, None, None]
    state = first["state"] * decay
    value = first["v"]
    if shape.delta:
        value = value - torch.einsum("hkv,hk->hv", state, key)
    state = state + torch.einsum("hk,hv->hkv", key, value * first["beta"][:, None])
    return state, torch.einsum("hkv,hk->hv", state, query)


def check_state(shape: StateShape, tensors: dict[str, Any]) -> float:
    """Run one update and compare state and output with fp32; the larger relative error."""
    state, out = state_reference(shape, tensors)
    update_state(shape, tensors)
    return max(relative(tensors["state"][0], state), relative(tensors["out"][0], out))
