"""A legal value for the field an error is about, where the error says which would do."""

from __future__ import annotations

from typing import Any

from calc.errors import CalcError

PLAIN = {
    "dcp_kind": ("dcp", 1),
    "dcp_nothing": ("dcp", 1),
    "backend_unknown": ("dcp_backend", "auto"),
    "query_replication": ("query_replication", "auto"),
    "format_kind": ("kv_dtype", "bf16"),
    "format_width": ("kv_dtype", "bf16"),
    "state_dtype_kind": ("state_dtype", "auto"),
}
"""Codes with one value that always does."""

LISTED = {
    "tp_heads": "tp",
    "tp_kv_heads": "tp",
    "dcp_divides_tp": "dcp",
    "dcp_kv_heads": "dcp",
}
"""Codes that list the legal values."""


def remedy(error: CalcError, values: dict[str, Any]) -> tuple[str, Any] | None:
    """(field, value), the legal value nearest below what was typed; None if none is known."""
    if error.code in PLAIN:
        return PLAIN[error.code]
    if error.code == "pp_layers":
        return "pp", int(error.values["layers"])
    if error.code in LISTED:
        name = LISTED[error.code]
        legal = [int(text) for text in str(error.values["allowed"]).split(", ") if text.isdigit()]
        below = [number for number in legal if number <= values[name]]
        if legal:
            return name, max(below) if below else min(legal)
    return None
