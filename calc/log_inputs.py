"""A log's inputs as fields of a Scenario, and the model that its name stands for."""

from __future__ import annotations

import re
from typing import Any

from calc.errors import CalcError
from calc.presets import preset_ids
from calc.reconcile import ALTERNATIVES, Reconciliation
from calc.scenario import FIELDS

SWITCHES = {
    "prefix_caching": "prefix_caching",
    "async_scheduling": "async_scheduling",
    "hybrid_manager": "hybrid_kv_manager",
}
"""Cache settings that are on or off, and their fields."""


def inputs_of(found: Reconciliation) -> dict[str, Any]:
    """What a log states, and what explains it, by field; values out of bounds are left out.

    The cache memory is taken as the log says it was left, so it counts as typed.
    """
    made = dict(found.inputs)
    for code, changes in ALTERNATIVES:
        if code in found.reasons:
            made |= changes
    log = found.log
    for name, fact in (
        ("gpu_memory_utilization", "utilization"),
        ("mem_fraction_static", "static_fraction"),
        ("kv_cache_memory_gib", "available_gib"),
    ):
        value = log.number(fact)
        if value is not None:
            made[name] = value
    if "kv_cache_memory_gib" in made:
        made["cache_memory"] = "typed"
    settled = {SWITCHES.get(name, name): _word(value) for name, value in made.items()}
    return {name: value for name, value in settled.items() if _allowed(name, value)}


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


def _allowed(name: str, value: Any) -> bool:
    """Whether a field of this name takes the value (some reasons are no inputs)."""
    if name not in FIELDS:
        return False
    try:
        FIELDS[name].check(value)
    except CalcError:
        return False
    return True


def preset_of(name: str) -> str | None:
    """The preset that a log's model name begins with, or None.

    >>> preset_of("moonshotai/Kimi-Linear-48B-A3B-Instruct"), preset_of("/data/my-model")
    ('kimi-linear-48b', None)
    """
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower().replace("_", "-")
    last = last.removeprefix("meta-")
    fitting = [one for one in preset_ids() if last == one or last.startswith(f"{one}-")]
    return max(fitting, key=len, default=None)
