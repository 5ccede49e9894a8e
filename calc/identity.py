"""What must agree before a cached block may stand for a computed one, as a key with a digest.

Three kinds of fields. *Content*: with other values the same tokens have other K, V or states.
*Format*: the same values, written in other bytes. *Place*: which part of the values a block
holds. A block's own key adds the tokens: the digest below, the key of the block before it, and
the tokens of the block, hashed together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from calc.capacity import Component
from calc.engine_cache import place_of, vllm_plan
from calc.engines.settings import engine_id
from calc.errors import CalcError, shown
from calc.formats import KV_FORMATS
from calc.layers import Growth, StateMixer
from calc.report import evaluate
from calc.reuse import Rule
from calc.reuse_groups import reuse_groups
from calc.scenario import Scenario

Kind = Literal["content", "format", "place"]
Covered = Literal["yes", "partly", "handshake", "no", "unread"]
LONGEST = 120
SCHEMA = "kv-identity/2"


@dataclass(frozen=True, slots=True)
class Serving:
    """What a deployment adds to a scenario; empty where it has none.

    ``layout``: the order of a block's axes in memory (NHD, HND), which the attention backend
    decides. ``interleave``: consecutive tokens on one rank of a DCP group. ``part``: which of the
    distinct parts of a TP group a block is from, ``stage`` which pipeline stage.
    """

    rope: str = ""
    lora: str = ""
    lora_version: str = ""
    media: str = ""
    draft: str = ""
    salt: str = ""
    layout: str = ""
    interleave: int = 1
    part: int = 0
    stage: int = 0


@dataclass(frozen=True, slots=True)
class IdentityField:
    """A field, what it decides, and which of three existing keys contain it."""

    id: str
    kind: Kind
    vllm: Covered
    nixl: Covered
    lmcache: Covered


# vLLM 0.33 v1/core/kv_cache_utils.py generate_block_hash_extra_keys; nixl/metadata.py
# compute_nixl_compatibility_hash; LMCache 0.5.6 utils.py CacheEngineKey, v1/distributed/api.py
FIELDS: tuple[IdentityField, ...] = (
    IdentityField("model", "content", "no", "yes", "yes"),
    IdentityField("revision", "content", "no", "no", "no"),
    IdentityField("weights", "content", "no", "partly", "no"),
    IdentityField("rope", "content", "no", "no", "no"),
    IdentityField("lora", "content", "yes", "no", "partly"),
    IdentityField("lora_version", "content", "partly", "no", "partly"),
    IdentityField("media", "content", "yes", "no", "unread"),
    IdentityField("draft", "content", "partly", "yes", "no"),
    IdentityField("salt", "content", "yes", "no", "yes"),
    IdentityField("kv_dtype", "format", "no", "yes", "partly"),
    IdentityField("scales", "format", "no", "partly", "partly"),
    IdentityField("states", "format", "no", "no", "partly"),
    IdentityField("rows", "format", "no", "yes", "partly"),
    IdentityField("layout", "format", "no", "handshake", "unread"),
    IdentityField("padding", "format", "no", "handshake", "partly"),
    IdentityField("block_size", "format", "yes", "handshake", "yes"),
    IdentityField("engine", "format", "no", "yes", "no"),
    IdentityField("tp_parts", "place", "no", "handshake", "yes"),
    IdentityField("part", "place", "no", "handshake", "yes"),
    IdentityField("dcp", "place", "no", "handshake", "partly"),
    IdentityField("interleave", "place", "no", "partly", "partly"),
    IdentityField("pp", "place", "no", "partly", "yes"),
    IdentityField("stage", "place", "no", "partly", "yes"),
)
"""In the order in which a difference is reported."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Field values, the canonical text made of them, and its SHA-256."""

    values: dict[str, str]
    text: str = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        ordered = [[one.id, self.values[one.id]] for one in FIELDS]
        text = json.dumps([SCHEMA, *ordered], ensure_ascii=True, separators=(",", ":"))
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())


def identity(scenario: Scenario, serving: Serving | None = None, interval: int = 0) -> Identity:
    """The identity of the blocks that a scenario writes; ``interval`` is that of its states."""
    said = serving or Serving()
    _check(scenario, said)
    spec = scenario.model_spec
    held = evaluate(scenario).cache.stages[said.stage].components
    most = max((scenario.tp // part.store.copies for part in held), default=1) - 1
    if not 0 <= said.part <= most:
        raise CalcError("identity_part", given=said.part, maximum=most)
    parts = sorted(held, key=lambda part: (part.store.kind, part.store.name))
    groups = reuse_groups(scenario, _rule(scenario), interval=interval)
    whole = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16]
    return Identity(
        {
            "model": f"{spec.id} {whole}" if scenario.spec is not None else spec.id,
            "revision": str(spec.revision),
            "weights": scenario.weight_format,
            "rope": said.rope,
            "lora": said.lora,
            "lora_version": said.lora_version,
            "media": said.media,
            "draft": said.draft,
            "salt": said.salt,
            "kv_dtype": _kv_dtype(scenario, parts),
            "scales": KV_FORMATS[_kv_dtype(scenario, parts)].scales if _rows(parts) else "",
            "states": _states(scenario),
            "rows": ", ".join(
                f"{p.store.kind} {p.store.name} {p.store.bytes.value} B" for p in parts
            ),
            "layout": said.layout,
            "padding": _padding(scenario),
            "block_size": ", ".join(f"{group.kind} {group.chunk}" for group in groups),
            "engine": engine_id(scenario.engine_rules),
            "tp_parts": ", ".join(
                f"{p.store.kind} {scenario.tp // p.store.copies // p.store.dcp}" for p in parts
            ),
            "part": str(said.part),
            "dcp": ", ".join(f"{p.store.kind} {p.store.dcp}" for p in parts),
            "interleave": str(said.interleave) if scenario.dcp > 1 else "",
            "pp": f"{scenario.pp} ({scenario.pp_layers})" if scenario.pp > 1 else "1",
            "stage": str(said.stage),
        }
    )


def _rule(scenario: Scenario) -> Rule:
    return Rule.VLLM if scenario.engine == "vllm" else Rule.SGLANG


def _rows(parts: Sequence[Component]) -> bool:
    return any(part.growth is not Growth.STATE for part in parts)


def _kv_dtype(scenario: Scenario, parts: Sequence[Component]) -> str:
    """The format as stored: sparse latent attention means another one by fp8."""
    made_by = {part.store.bytes.formula.name for part in parts}
    packed = scenario.kv_dtype == "fp8" and "latent_row_bytes_fp8_ds" in made_by
    return "fp8_ds_mla" if packed else scenario.kv_dtype


def _states(scenario: Scenario) -> str:
    engine = scenario.engine_rules
    found = {
        mixer.kind
        + " "
        + "+".join(engine.state_dtypes(mixer, scenario.conv_dtype, scenario.state_dtype))
        for mixer in scenario.model_spec.mixers
        if isinstance(mixer, StateMixer)
    }
    return ", ".join(sorted(found))


def _padding(scenario: Scenario) -> str:
    """Bytes of a page of each group beyond what it holds; SGLang's rows have no pages to pad."""
    if scenario.engine != "vllm":
        return ""
    groups = vllm_plan(scenario, place_of(scenario)).grouping.groups
    found = dict.fromkeys(
        f"{g.lead.store.kind} {g.lead.page_bytes - g.lead.held_bytes} B"
        for g in groups
        if g.lead.page_bytes > g.lead.held_bytes
    )
    return ", ".join(found)


def _check(scenario: Scenario, said: Serving) -> None:
    for name in ("rope", "lora", "lora_version", "media", "draft", "salt", "layout"):
        text: str = getattr(said, name)
        if len(text) > LONGEST or not text.isprintable():
            raise CalcError("identity_text", name, given=shown(text), maximum=LONGEST)
    if said.lora_version and not said.lora:
        raise CalcError("identity_lora")
    bounds = {"interleave": (1, 2**20), "stage": (0, scenario.pp - 1)}
    for name, (least, most) in bounds.items():
        value: int = getattr(said, name)
        if not least <= value <= most:
            raise CalcError("out_of_range", name, given=value, minimum=least, maximum=most)
    if scenario.dcp > 1 and scenario.engine == "vllm":
        growing = [g for g in reuse_groups(scenario, Rule.VLLM) if g.growth is Growth.GROWING]
        block = growing[0].chunk // scenario.dcp if growing else said.interleave
        if block % said.interleave:
            raise CalcError("identity_interleave", given=said.interleave, block=block)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of two identities."""

    field: IdentityField
    first: str
    second: str

    @property
    def same(self) -> bool:
        return self.first == self.second


@dataclass(frozen=True, slots=True)
class Compared:
    """Two identities side by side; ``first`` is the first field that differs, or None."""

    rows: tuple[Difference, ...]
    first: Difference | None

    @property
    def compatible(self) -> bool:
        return self.first is None


def compared(one: Identity, other: Identity) -> Compared:
    """Whether blocks of one may serve the other."""
    rows = tuple(Difference(each, one.values[each.id], other.values[each.id]) for each in FIELDS)
    return Compared(rows, next((row for row in rows if not row.same), None))


def block_key(identity_digest: str, parent: str, tokens: Sequence[int]) -> str:
    """The key of one block: what it is, all that stands before it, and its tokens."""
    text = json.dumps([identity_digest, parent, list(tokens)], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
