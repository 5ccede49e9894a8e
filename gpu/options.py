"""The command line's options: the scenario's fields, as ``python -m calc evaluate`` has them."""

from __future__ import annotations

import argparse
from typing import Any

from calc.link import decode_query, encode, query_string
from calc.scenario import FIELDS, Scenario

ALIASES = {"bfloat16": "bf16", "fp32": "float32"}


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """A preset or a link, and every field of a scenario."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--preset", help="id of a model preset")
    model.add_argument("--link", help="a share link, or the text after its question mark")
    for name, field in FIELDS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", dest=name, help=f"default {field.default}"
        )


def scenario(options: argparse.Namespace) -> Scenario:
    """The scenario asked for; CalcError names the field."""
    if options.link is not None:
        return decode_query(options.link.rpartition("?")[2]).scenario
    values: dict[str, Any] = {
        name: field.parse(ALIASES.get(text, text))
        for name, field in FIELDS.items()
        if (text := getattr(options, name)) is not None
    }
    return Scenario(options.preset, **values)


def as_query(wanted: Scenario) -> str:
    """The scenario as a link's query, kept with a result."""
    return query_string(encode(wanted))


def as_arguments(wanted: Scenario) -> list[str]:
    """Options that give the same scenario to another process."""
    return ["--link", as_query(wanted)]
