"""What the Plan view and the commands ``plan`` and ``sweep`` ask beside a scenario."""

from __future__ import annotations

from typing import Literal, get_args

from calc.fields import (
    ChoiceField,
    InputField,
    ListField,
    NumberField,
    OptionalWhole,
    TextField,
    WholeField,
)
from calc.scenario import FIELDS

THIS, ALL = "this", "all"
Objective = Literal["concurrency", "context", "traffic", "step", "user_rate", "gpu_rate", "gpus"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
SWEEP_OUTPUTS = (
    "request_bytes",
    "batch_bytes",
    "max_requests",
    "short_bytes",
    "max_context",
    "growing_bytes",
    "weight_bytes",
    "budget_bytes",
    "sent_bytes",
    "step_us",
    "user_rate",
    "gpu_rate",
    "snapshot_bytes",
    "recomputed_tokens",
)

LAYOUTS: tuple[InputField, ...] = (
    WholeField("plan_gpus", 8, 1, 4096),
    ChoiceField("plan_objective", "concurrency", OBJECTIVES),
    OptionalWhole("plan_concurrency", 1, 2**30),
    ChoiceField("plan_engines", THIS, (THIS, ALL)),
    ChoiceField("plan_backends", THIS, (THIS, ALL)),
    ChoiceField("plan_kv_dtypes", THIS, (THIS, ALL)),
    ChoiceField("plan_replications", THIS, (THIS, ALL)),
    NumberField("plan_max_step_ms", 0.0, 0.0, 1e6),
    NumberField("plan_max_sent_mb", 0.0, 0.0, 1e9),
    WholeField("plan_top", 20, 1, 500),
)
"""``this``: as the scenario has it; a limit of 0 is none."""

WIDTHS = {
    name: WholeField(name, 0, least, 2**20)
    for name, least in (("kv_lora_rank", 1), ("rope_dim", 0), ("kv_heads", 1), ("window", 1))
}
"""Widths of the model that can be swept beside the Scenario's fields."""
STATE_INTERVAL = WholeField("state_interval", 0, 1, 2**24)
"""Tokens between two stored states, for the outputs that depend on it."""
OTHERS = WIDTHS | {STATE_INTERVAL.name: STATE_INTERVAL}
SWEPT = (*(name for name, rule in FIELDS.items() if not isinstance(rule, ListField)), *OTHERS)
NONE = "none"

SWEEPS: tuple[InputField, ...] = (
    ChoiceField("plan_output", "request_bytes", SWEEP_OUTPUTS),
    ChoiceField("plan_input", "context", SWEPT),
    TextField("plan_values", "1024:1048576:x2", most=200),
    ChoiceField("plan_input2", NONE, (NONE, *SWEPT)),
    TextField("plan_values2", "1,2,4,8", most=200),
)
"""Values as ``calc.sweep.read_axis`` reads them behind the sign."""

COMPARED: tuple[InputField, ...] = (
    ChoiceField("plan_shown", "all", ("all", "fitting", "front")),
    TextField("plan_pins", most=12_000, pattern="[A-Za-z0-9_-]*"),
)
"""Up to four scenarios as ``calc.pins`` packs them."""
