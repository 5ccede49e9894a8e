"""The engine's own account of the cache, as the JSON of the command line."""

from __future__ import annotations

from typing import Any

from calc.answers import Mix, SharedPrefix
from calc.budget import Budget
from calc.engines.base import Engine
from calc.engines.sglang_pool import PoolView
from calc.engines.vllm_blocks import BlockView
from calc.items import Item


def engine_json(engine: Engine, view: BlockView | PoolView | None) -> dict[str, Any] | None:
    """Blocks (vLLM) or pools (SGLang); None for a model without cache."""
    if view is None:
        return None
    common = {
        "engine": engine.name,
        "version": engine.version,
        "max_requests": plain(view.max_requests),
        "max_context": view.max_context,
        "fits": view.fits,
        "short_bytes_per_rank": view.short_bytes,
        "formula_bytes_per_request_per_rank": plain(view.formula),
        "allocated_bytes_per_request_per_rank": plain(view.allocated),
        "waste": {item.key.removeprefix("waste."): plain(item) for item in view.wastes},
    }
    return common | (_blocks(view) if isinstance(view, BlockView) else _pools(view))


def _blocks(view: BlockView) -> dict[str, Any]:
    stage = view.stage
    aligned = view.alignment
    return {
        "pipeline_stage": stage.stage,
        "grouping": view.path,
        "padding_layers": view.padding_layers,
        "block_bytes": plain(stage.block_bytes),
        "num_blocks": plain(view.pool_blocks),
        "blocks_per_request": plain(view.request_blocks),
        "max_concurrency": round(float(view.concurrency.value), 2),
        "kv_cache_size_tokens": plain(view.tokens),
        "kv_cache_size_tokens_by_group": plain(view.tokens_by_group),
        "needed_bytes_per_rank": plain(view.needed),
        "null_block_bytes": plain(view.null_block),
        "unused_bytes_per_rank": plain(view.unused),
        "attention_block_tokens": plain(aligned.block) if aligned else None,
        "state_padding_percent": round(float(aligned.padding.value), 2) if aligned else None,
        "groups": [
            {
                "kind": group.kind,
                "growth": group.growth,
                "layers": group.layers,
                "block_tokens": group.block or None,
                "virtual_block_tokens": group.virtual_block or None,
                "page_bytes": group.page_bytes,
                "blocks_per_request": plain(group.blocks),
            }
            for group in view.groups
        ],
        "stages": [
            {
                "stage": pool.stage,
                "block_bytes": plain(pool.block_bytes),
                "blocks_alone": plain(pool.asked),
            }
            for pool in view.stages
        ],
    }


def _pools(view: PoolView) -> dict[str, Any]:
    return {
        "pipeline_stage": view.stage,
        "page_tokens": view.page,
        "limiting_pool": view.limiting,
        "pools": [
            {
                "kind": pool.kind,
                "budget_bytes": plain(pool.budget),
                "size": plain(pool.size),
                "per_request": plain(pool.request),
                "max_requests": plain(pool.requests),
            }
            for pool in view.pools
        ],
    }


def budget_json(budget: Budget, binding: int) -> dict[str, Any]:
    """Where the memory of a rank goes, on the stage that binds."""
    stage = budget.stages[binding]
    parts = {
        name: plain(part) if isinstance(part, Item) else part
        for name, part in stage.arguments.items()
    }
    return {
        "typed": budget.typed,
        "basis": stage.status.value,
        "bytes_by_stage": list(budget.bytes),
        "short_bytes_per_rank": budget.short_bytes,
        "parts": {} if budget.typed else parts,
    }


def prefix_json(shared: SharedPrefix | None) -> dict[str, Any] | None:
    """The batch whose requests share a prefix."""
    if shared is None:
        return None
    return {
        "prefix_tokens": shared.prefix,
        "distinct_tokens": plain(shared.tokens),
        "prefix_bytes_per_rank": plain(shared.prefix_bytes),
        "own_bytes_per_request_per_rank": plain(shared.own),
        "batch_bytes_per_rank": plain(shared.batch),
        "max_requests": plain(shared.max_requests),
        "shared_blocks": plain(shared.shared_blocks),
        "max_requests_engine": plain(shared.max_requests_engine),
        "fits": shared.fits,
    }


def mix_json(mix: Mix | None) -> dict[str, Any] | None:
    """Requests of several lengths."""
    if mix is None:
        return None
    return {
        "requests": mix.requests,
        "tokens": mix.tokens,
        "bytes_per_rank": plain(mix.bytes),
        "blocks": plain(mix.blocks),
        "max_requests_in_this_mix": plain(mix.max_requests),
        "fits": mix.fits,
        "short_bytes_per_rank": mix.short_bytes,
        "fits_engine": mix.fits_engine,
    }


def plain(item: Item | None) -> Any:
    """The value for JSON: an int where it is whole."""
    if item is None:
        return None
    value = item.value
    if isinstance(value, int):
        return value
    return int(value) if value == int(value) else float(value)
