"""What the views of the page ask beside a scenario, so that a link reproduces them.

A name begins with its view's. Defaults are frozen like those of a Scenario; a
link carries what differs from them, for the view that is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.errors import CalcError
from calc.fields import ChoiceField, InputField, WholeField
from calc.plan_inputs import COMPARED, LAYOUTS, SWEEPS
from calc.reuse_inputs import REUSE_INPUTS

VIEWS = ("model", "capacity", "traffic", "reuse", "plan", "learn", "gpu", "about")
PAGE = (
    ChoiceField("lang", "en", ("en", "zh")),
    ChoiceField("view", "capacity", VIEWS),
    ChoiceField("presenting", "off", ("off", "on")),
)
"""What every link of the page says, and the command line has no use for."""

VERDICTS = ("all", "right", "conditional", "wrong", "unverifiable", "out_of_scope")
SOURCES = ("all", "storage", "movement", "striping", "popular")
"""Of claims, in the Learn view."""

TOPICS = ("all", "kv", "fit", "crossover", "traffic", "hits", "statements")
"""Of questions, in the Learn view."""

MOST_SEED = 10**6
"""Of quizzes."""

VIEW_INPUTS: dict[str, tuple[InputField, ...]] = {
    "capacity": (
        ChoiceField("capacity_part", "formula", ("formula", "budget", "engine", "answers", "log")),
    ),
    "traffic": (
        ChoiceField("traffic_part", "bytes", ("bytes", "time", "exchange", "links", "roofline")),
    ),
    "plan": (
        ChoiceField("plan_part", "layouts", ("layouts", "compare", "sweep", "export")),
        *LAYOUTS,
        *SWEEPS,
        *COMPARED,
    ),
    "learn": (
        ChoiceField("learn_part", "derive", ("derive", "claims", "proofs", "practice")),
        ChoiceField("learn_verdict", "all", VERDICTS),
        ChoiceField("learn_source", "all", SOURCES),
        WholeField("learn_quiz", 1, 1, MOST_SEED),
        ChoiceField("learn_topic", "all", TOPICS),
        WholeField("learn_number", 1, 1, 10),
        WholeField("learn_tokens", 96, 16, 2048),
        WholeField("learn_heads", 8, 8, 64),
        WholeField("learn_ranks", 4, 2, 8),
        WholeField("learn_seed", 1, 0, 10**6),
    ),
    "reuse": (
        ChoiceField("reuse_part", "hit", ("hit", "storage", "identity")),
        *REUSE_INPUTS,
    ),
}
"""The inputs of each view; a view without any is not named."""

EVERY = {made.name: made for inputs in VIEW_INPUTS.values() for made in inputs}


def asked_keys(asked: Mapping[str, Any]) -> dict[str, str]:
    """Values of view inputs as link keys; defaults, and what cannot be read back, stay out."""
    keys = {}
    for name, value in asked.items():
        field = EVERY[name]
        try:
            if field.check(value) != field.default:
                keys[name] = field.format(value)
        except CalcError:  # half typed: the view says so itself
            continue
    return keys
