"""``python -m calc claims``: claims that were checked, with the right values."""

from __future__ import annotations

import argparse
import json
from typing import Any

from calc.learn.claims import CLAIMS, Claim, Source, Verdict, name


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--verdict", choices=[verdict.value for verdict in Verdict])
    parser.add_argument("--source", choices=[source.value for source in Source])
    parser.add_argument("--json", action="store_true", help="print JSON")


def answer(options: argparse.Namespace) -> str:
    """What the command prints."""
    chosen = [
        claim
        for claim in CLAIMS
        if options.verdict in (None, claim.verdict.value)
        and options.source in (None, claim.source.value)
    ]
    if options.json:
        return json.dumps([claim_json(claim) for claim in chosen], indent=2, allow_nan=False)
    return "\n".join(_line(claim) for claim in chosen)


def claim_json(claim: Claim) -> dict[str, Any]:
    """One claim as plain data."""
    return {
        "id": name(claim),
        "source": claim.source.value,
        "verdict": claim.verdict.value,
        "claimed": claim.claimed,
        "right": [
            {
                "condition": right.case,
                "value": float(right.item.value),
                "unit": right.item.unit,
                "holds": claim.holds(right),
            }
            for right in claim.rights()
        ],
    }


def _line(claim: Claim) -> str:
    rights = ", ".join(f"{right.case} {float(right.item.value):,.6g}" for right in claim.rights())
    said = "" if claim.claimed is None else f"claimed {claim.claimed:,.6g}; {rights}"
    return f"{claim.verdict.value:<14}{name(claim):<34}{said}".rstrip()
