"""Reads the YAML files below ``presets/``: strictly, and with every fault named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from calc.errors import CalcError, shown


def read_yaml(path: Path) -> Any:
    """A file as plain data, its lists as tuples (which strict pydantic models take)."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CalcError("preset_invalid", field="yaml", file=path.name, reason=str(error)) from None
    return tuples(data)


def tuples(node: Any) -> Any:
    """Lists as tuples, at every depth."""
    if isinstance(node, dict):
        return {key: tuples(value) for key, value in node.items()}
    if isinstance(node, list):
        return tuple(tuples(value) for value in node)
    return node


# libyaml parses about eight times as fast; a build of PyYAML without it does the same in Python
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_SafeLoader):  # type: ignore[misc]
    """YAML whose keys are words, none of them repeated."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = [(loader.construct_object(key), value) for key, value in node.value]
    keys = [key for key, _ in pairs]
    strange = [key for key in keys if not isinstance(key, str)]
    if strange:
        raise yaml.YAMLError(f"keys that are not words: {', '.join(map(shown, strange))}")
    repeated = {key for key in keys if keys.count(key) > 1}
    if repeated:
        raise yaml.YAMLError(f"repeated keys: {', '.join(sorted(repeated))}")
    return {key: loader.construct_object(value, deep=True) for key, value in pairs}


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
