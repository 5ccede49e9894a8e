"""The share link: every field of a Scenario, readable, versioned, read strictly.

``encode`` always writes all fields, so that a link never depends on a default.
``decode`` reports every key that is wrong, by name, and corrects nothing. A
key that an older link lacks takes the default of ``calc.scenario.FIELDS``,
which is frozen.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from calc.errors import CalcError, shown
from calc.fields import WholeField
from calc.model import ModelSpec, read_model_json
from calc.presets import CUSTOM
from calc.scenario import FIELDS, Scenario
from calc.version import FORMULAS
from calc.view_inputs import EVERY, PAGE, asked_keys

VERSION = "1"
MAX_LENGTH = 16_384
"""Characters of keys and values that are read; a custom model of many runs takes 2,000, and up to
four scenarios may be pinned beside it."""
MAX_SPEC_BYTES = 64 * 1024
"""A custom model's description, inflated."""

EMPTY: Mapping[str, Any] = MappingProxyType({})

REVISION = WholeField("r", 1, 1, 10**6)
"""The model's revision as the sender had it."""
FORMULAS_THEN = WholeField("f", 1, 1, 10**6)
"""The formulas' revision as the sender had it (``calc.version``)."""


class LinkError(ValueError):
    """A link that cannot be opened as it is; ``problems`` names every wrong key."""

    def __init__(self, problems: Iterable[CalcError]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Opened:
    """What a link says: the scenario, and the revisions of model and formulas it was made with.

    ``seen`` are headline numbers as its sender saw them (``encode``), so
    that a later correction of a preset or a formula can be announced;
    ``asked`` the inputs of views that are not at their defaults.
    """

    scenario: Scenario
    revision: int | None
    formulas: int
    seen: tuple[int, ...] | None
    asked: Mapping[str, Any]


def encode(
    scenario: Scenario, seen: Iterable[int] = (), asked: Mapping[str, Any] = EMPTY
) -> dict[str, str]:
    """All of a scenario as link keys; ``seen`` are headline numbers to carry along, and
    ``asked`` inputs of a view (``calc.view_inputs``)."""
    keys = {"v": VERSION, "model": scenario.model, "r": str(scenario.model_spec.revision)}
    keys["f"] = str(FORMULAS)
    for name, field in FIELDS.items():
        keys[name] = field.format(getattr(scenario, name))
    if scenario.spec is not None:
        keys["spec"] = pack_spec(scenario.spec)
    figures = ".".join(str(number) for number in seen)
    if figures:
        keys["seen"] = figures
    return keys | asked_keys(asked)


def query_string(keys: Mapping[str, str]) -> str:
    """Link keys as the text after the question mark."""
    return urlencode(keys)


def decode_query(query: str) -> Opened:
    """Read the text after a question mark; raises LinkError."""
    if len(query) > MAX_LENGTH:
        raise LinkError([CalcError("link_too_long", length=len(query), maximum=MAX_LENGTH)])
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise LinkError([CalcError("link_unreadable", reason="not key=value&key=value")]) from None
    params: dict[str, list[str]] = {}
    for key, value in pairs:
        params.setdefault(key, []).append(value)
    return decode(params)


def decode(params: Mapping[str, list[str]]) -> Opened:
    """Read link keys (each with all its values); raises LinkError with every problem."""
    length = sum(len(key) + sum(map(len, values)) for key, values in params.items())
    if length > MAX_LENGTH:
        raise LinkError([CalcError("link_too_long", length=length, maximum=MAX_LENGTH)])
    problems: list[CalcError] = []
    texts = dict(_single_values(params, problems))
    version = texts.pop("v", None)
    if version != VERSION:
        problems.insert(0, CalcError("link_version", supported=VERSION, given=shown(version)))
        raise LinkError(problems[:1])
    revision = _read(texts, "r", REVISION.parse, problems)
    formulas = _read(texts, "f", FORMULAS_THEN.parse, problems) or FORMULAS_THEN.default
    seen = _read(texts, "seen", _figures, problems)
    spec = _read(texts, "spec", unpack_spec, problems)
    values = {
        name: _read(texts, name, field.parse, problems)
        for name, field in FIELDS.items()
        if name in texts
    }
    asked = {
        name: _read(texts, name, field.parse, problems)
        for name, field in EVERY.items()
        if name in texts
    }
    for word in PAGE:
        _read(texts, word.name, word.parse, problems)
    model = texts.pop("model", None)
    if model is None:
        problems.append(CalcError("missing_field", "model"))
    problems += [CalcError("link_unknown_key", key[:40]) for key in texts]
    if not problems:
        try:
            scenario = Scenario(model=str(model), spec=spec, **values)
            return Opened(scenario, revision, formulas, seen, MappingProxyType(asked))
        except CalcError as error:
            problems.append(error)
    raise LinkError(problems)


def pack_spec(spec: ModelSpec) -> str:
    """A custom model's description as compressed, URL-safe text."""
    return packed(spec.model_dump_json(exclude_defaults=True))


def packed(text: str) -> str:
    """A text compressed, as letters that need no quoting in an address."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def inflated(text: str, most: int, code: str) -> bytes:
    """Inverse of ``packed``: JSON of at most so many bytes whose objects repeat no key; raises
    CalcError of a code that takes a reason."""
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", text, re.ASCII):
            raise ValueError("not URL-safe base64 without padding")
        compressed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        inflater = zlib.decompressobj()
        data = inflater.decompress(compressed, most)
    except (binascii.Error, ValueError, zlib.error):
        raise CalcError(code, reason="it is damaged or cut off") from None
    if inflater.unconsumed_tail or inflater.unused_data or not inflater.eof:
        raise CalcError(code, reason=f"it is cut off, or larger than {most:,} bytes")
    try:
        json.loads(data, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError):
        raise CalcError(code, reason="it is not plain JSON") from None
    return data


def unpack_spec(text: str) -> ModelSpec:
    """Inverse of ``pack_spec``; bounded in memory, raises CalcError."""
    data = inflated(text, MAX_SPEC_BYTES, "spec_unreadable")
    spec = read_model_json(data, "spec")
    if spec.id != CUSTOM:
        raise CalcError("spec_unreadable", reason=f"its id is not {CUSTOM}")
    return spec


def _single_values(
    params: Mapping[str, list[str]], problems: list[CalcError]
) -> Iterable[tuple[str, str]]:
    for key, values in params.items():
        if len(values) == 1:
            yield key, values[0]
        else:
            problems.append(CalcError("link_repeated_key", key[:40], times=len(values)))


def _read(texts: dict[str, str], key: str, parse: Any, problems: list[CalcError]) -> Any:
    """Take a key out of ``texts`` and parse it; a fault is added to ``problems``."""
    if key not in texts:
        return None
    try:
        return parse(texts.pop(key))
    except CalcError as error:
        problems.append(error)
        return None


def _figures(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,30}(\.[0-9]{1,30}){0,7}", text, re.ASCII):
        reason = f"{shown(text)} is not up to eight whole numbers with dots between"
        raise CalcError("invalid_value", "seen", reason=reason)
    return tuple(int(number) for number in text.split("."))


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError("repeated key")
    return dict(pairs)
