"""What the Reuse view and ``python -m calc reuse`` ask beside a scenario, with its bounds."""

from __future__ import annotations

from calc.chunks import SIGNS
from calc.engines import ENGINES
from calc.fields import (
    ChoiceField,
    InputField,
    ListField,
    NumberField,
    OptionalWhole,
    TextField,
    WholeField,
)
from calc.formats import KV_FORMATS

MOST_TOKENS = 2**24
MANY = 10**6
LACKS = f"[a-z]+[0-9]*={SIGNS}+"
"""The chunks that a group lacks."""
SAME = "same"
"""As the scenario has it."""
SERVING = ("rope", "lora", "lora_version", "media", "draft", "salt", "layout")
"""What a deployment adds to a block's identity, as free text."""

HIT: tuple[InputField, ...] = (
    ChoiceField("reuse_rule", "engine", ("engine", "ideal", "vllm", "sglang", "lmcache")),
    OptionalWhole("reuse_prefix", 1, MOST_TOKENS),
    WholeField("reuse_new_tokens", 1, 0, MOST_TOKENS),
    OptionalWhole("reuse_chunk", 1, MOST_TOKENS),
    OptionalWhole("reuse_interval", 1, MOST_TOKENS),
    ChoiceField("reuse_lookahead", "on", ("on", "off")),
    TextField("reuse_missing", most=400, pattern=f"({LACKS}(;{LACKS})*)?"),
)
"""``reuse_missing``: chunks that are not there, by group: window=0-3,7;state=2."""

STORAGE: tuple[InputField, ...] = (
    NumberField("reuse_host_gib", 128.0, 0.001, 1e6),
    NumberField("reuse_host_rate", 55.0, 0.001, 1e5),
    NumberField("reuse_nvme_gb", 1920.0, 0.001, 1e6),
    NumberField("reuse_nvme_rate", 7.0, 0.001, 1e5),
    NumberField("reuse_network_gb", 100_000.0, 0.001, 1e9),
    NumberField("reuse_network_rate", 0.0, 0.0, 1e5),
    OptionalWhole("reuse_snapshot_interval", 1, MOST_TOKENS),
    WholeField("reuse_hits", 4, 1, MOST_TOKENS),
    WholeField("reuse_prefill_rate", 20_000, 1, MOST_TOKENS),
    ListField("reuse_hit_lengths", "any", ("any",), counted=True),
    WholeField("reuse_requests", 1, 1, MANY),
    WholeField("reuse_written_tokens", 4096, 1, MOST_TOKENS),
    WholeField("reuse_kept_snapshots", 1, 0, MANY),
    WholeField("reuse_uses", 10, 1, MANY),
    OptionalWhole("reuse_decode_tp", 1, 1024),
    OptionalWhole("reuse_decode_dcp", 1, 1024),
    OptionalWhole("reuse_decode_pp", 1, 256),
    ChoiceField("reuse_decode_kv_dtype", SAME, (SAME, *KV_FORMATS)),
)
"""Sizes of tiers are a rank's part, rates GB/s of a rank; network rate 0: by the data sheet."""

PLACES = (("interleave", 1, 1, 2**20), ("part", 0, 0, 1023), ("stage", 0, 0, 255))
"""Numbers of it: the name, the default, the bounds."""
TEXTS = tuple(TextField(f"reuse_{side}_{name}") for side in ("here", "there") for name in SERVING)
IDENTITY: tuple[InputField, ...] = (
    ChoiceField("reuse_other_kv_dtype", SAME, (SAME, *KV_FORMATS)),
    ChoiceField("reuse_other_engine", SAME, (SAME, *ENGINES)),
    OptionalWhole("reuse_other_tp", 1, 1024),
    OptionalWhole("reuse_other_dcp", 1, 1024),
    *TEXTS,
    *(
        WholeField(f"reuse_{side}_{name}", *bounds)
        for side in ("here", "there")
        for name, *bounds in PLACES
    ),
)

REUSE_INPUTS: tuple[InputField, ...] = (*HIT, *STORAGE, *IDENTITY)
