"""``python -m calc import``: what a config.json says, as text or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from calc.errors import CalcError
from calc.hf_config.parse import MAX_BYTES
from calc.hf_config.reader import Imported, read_config
from calc.model import Layer
from calc.weights import parameters

STDIN = "-"
MAX_NAME = 80


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("config", help="a config.json; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def answer(options: argparse.Namespace) -> str:
    """What the command prints."""
    found = import_file(options.config)
    if options.json:
        return json.dumps(imported_json(found), indent=2, allow_nan=False)
    return _text(found)


def import_file(path: str) -> Imported:
    """The model in a file; raises CalcError with the field and the reason."""
    try:
        if path == STDIN:
            text = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file"
        raise CalcError("config_unreadable", reason=reason) from None
    stem = "custom model" if path == STDIN else Path(path).stem
    return read_config(text, name=stem[:MAX_NAME] or "custom model")


def imported_json(found: Imported) -> dict[str, Any]:
    """The ModelSpec with its counts, how it was read, and what was not understood."""
    spec, counted = found.spec, parameters(found.spec)
    return {
        **spec.model_dump(mode="json", exclude={"layers", "mtp_layers"}),
        "parameters_total": counted.total.value,
        "parameters_active": counted.active.value,
        "parameters_mtp": counted.mtp.value,
        "layer_count": spec.layer_count,
        "layers": [_layer(layer) for layer in spec.layers],
        "mtp_layers": [_layer(layer) for layer in spec.mtp_layers],
        "findings": [
            {"about": made.about, "field": made.field, "layers": dict(made.counts)}
            for made in found.findings
        ],
        "warnings": [
            {"code": notice.code, "text": str(notice), **dict(notice.values)}
            for notice in found.warnings
        ],
    }


def _layer(layer: Layer) -> dict[str, Any]:
    """One run of equal layers: its kinds and count, then all its fields."""
    plain = layer.model_dump(mode="json")
    return {
        "kind": "+".join(layer.kinds),
        "ffn": "+".join(part.kind for part in layer.ffns) or "none",
        **plain,
    }


def _text(found: Imported) -> str:
    spec, counted = found.spec, parameters(found.spec)
    lines = [
        f"{spec.name}: {spec.layer_count} layers, hidden size {spec.hidden_size:,}",
        f"parameters, total    {counted.total.value:>20,}",
        f"parameters, active   {counted.active.value:>20,}",
        "layers, in order",
    ]
    for run in (_layer(layer) for layer in spec.layers):
        lines.append(f"  {run['count']:>4} x {run['kind']}, feed-forward {run['ffn']}")
    for made in found.findings:
        kinds = ", ".join(f"{count} {kind}" for kind, count in made.counts)
        lines.append(f"decided by {made.field}: {kinds}")
    lines += [f"warning: {notice}" for notice in found.warnings]
    return "\n".join(lines)
