"""``python -m calc quiz``: the questions of a seed, with their answers where they are asked for."""

from __future__ import annotations

import argparse
import json
from typing import Any

from calc.fields import WholeField
from calc.learn.questions import Question
from calc.learn.quiz import EDITION, LENGTH, question
from calc.link import encode, query_string
from calc.traffic.json import plain
from calc.view_inputs import MOST_SEED

SEED = WholeField("seed", 1, 1, MOST_SEED)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--seed", default="1", help="which quiz; 1 to 1000000, default 1")
    parser.add_argument("--topic", default="all", help="default all")
    parser.add_argument("--answers", action="store_true", help="print the answers too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def answer(options: argparse.Namespace) -> str:
    """What the command prints."""
    seed = SEED.parse(options.seed)
    topic = options.topic
    made = [question(seed, topic, number) for number in range(1, LENGTH + 1)]
    rows = [question_json(one, options.answers) for one in made]
    if options.json:
        head = {"edition": EDITION, "seed": seed, "topic": topic}
        return json.dumps(head | {"questions": rows}, indent=2, allow_nan=False)
    return "\n".join(f"{at:>2}  {_line(row)}" for at, row in enumerate(rows, start=1))


def question_json(one: Question, answers: bool) -> dict[str, Any]:
    """One question as plain data."""
    row: dict[str, Any] = {
        "kind": one.kind,
        "topic": one.topic,
        "given": dict(one.values),
        "options": list(one.options),
        "claim": one.claim or None,
        "unit": one.unit or None,
        "link": "?" + query_string(encode(one.scenario)) if one.scenario else None,
    }
    if not answers:
        return row
    right = one.options[one.right] if one.options else plain(one.value)
    lines = list(one.path.lines) if one.path else []
    return row | {"answer": right, "tolerance": one.tolerance, "mental": lines}


def _line(row: dict[str, Any]) -> str:
    given = ", ".join(f"{name} {value}" for name, value in row["given"].items())
    said = row["claim"] or " | ".join(row["options"])
    words = " ".join(part for part in (row["kind"], given, said) if part)
    return f"{words} -> {row['answer']} {row['unit'] or ''}".rstrip() if "answer" in row else words
