"""How the checkpoint stores its weights: never a statement about the KV cache."""

from __future__ import annotations

from typing import Any

from calc.hf_config.fields import Fields
from calc.layers.tensors import Role
from calc.weight_formats import StoredFormat

MODULES: dict[Role, tuple[str, ...]] = {
    "attention": ("self_attn",),
    "state": ("self_attn", "mixer"),
    "dense": ("mlp", "_proj"),
    "shared": ("shared_experts", "shared_expert"),
    "experts": ("mlp.experts",),
}
"""How the modules of a role are called at the end of an entry that leaves them alone."""


def checkpoint(
    fields: Fields, roles: set[Role], layers: int
) -> tuple[dict[Role, StoredFormat], str | None]:
    """The stored format of each role there is, and the name of a method not understood."""
    section = fields.section("quantization_config")
    if section is None:
        return {}, None
    method = section.text("quant_method")
    stored = _stored(section, method)
    if stored is None:
        return {}, method or "?"
    kept = _kept_modules(section, layers)
    quantised: set[Role] = {"experts"} if method == "mxfp4" else set(MODULES)
    made: dict[Role, StoredFormat] = {
        role: stored
        for role, names in MODULES.items()
        if role in quantised & roles and not any(module.endswith(names) for module in kept)
    }
    if fields.find("expert_dtype")[1] == "fp4" and "experts" in roles:
        made["experts"] = "mxfp4"
    return made, None


def _stored(section: Fields, method: str | None) -> StoredFormat | None:
    if method == "mxfp4":
        return "mxfp4"
    if method == "fp8":
        return "fp8" if section.sequence("weight_block_size") == [128, 128] else None
    return _grouped(section.find("config_groups")[1])


def _grouped(groups: Any) -> StoredFormat | None:
    """Formats of compressed-tensors and ModelOpt: bits, type and group size of the weights."""
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return None
    known: dict[tuple[Any, Any, Any], StoredFormat] = {
        ("float", 4, 32): "mxfp4",
        ("float", 4, 16): "nvfp4",
        ("int", 4, 128): "int4",
        ("int", 4, 32): "int4_g32",
    }
    shape = (weights.get("type"), weights.get("num_bits"), weights.get("group_size"))
    return next((made for key, made in known.items() if key == shape), None)


def _kept_modules(section: Fields, layers: int) -> set[str]:
    """The modules that stay unquantised in all layers, without wildcards and prefixes."""
    entries = section.sequence("ignore", "modules_to_not_convert", "ignored_layers") or []
    general: set[str] = set()
    by_layer: dict[str, set[str]] = {}
    for entry in entries:
        parts = _plain(entry).split(".") if isinstance(entry, str) else []
        numbers = [part for part in parts if part.isdigit()]
        module = ".".join(part for part in parts if part and not part.isdigit())
        if numbers:
            by_layer.setdefault(module, set()).add(numbers[0])
        else:
            general.add(module)
    return general | {name for name, found in by_layer.items() if len(found) >= layers}


def _plain(entry: str) -> str:
    """An entry without the signs of wildcards and regular expressions."""
    return entry.removeprefix("re:").replace("\\", "").replace("*", "").strip(".")
