"""A quiz: the same questions for the same seed, for ever and everywhere."""

from __future__ import annotations

import functools
from random import Random

from calc.errors import CalcError, shown
from calc.learn.questions import KINDS, Question
from calc.view_inputs import EVERY, TOPICS

LENGTH = 10
"""Questions of a quiz."""
EDITION = 1
"""Raised when questions change, so that a seed never silently means another quiz."""


@functools.lru_cache(maxsize=512)
def question(seed: int, topic: str, number: int) -> Question:
    """Question ``number`` (from 1) of a quiz.

    >>> question(7, "kv", 1) == question(7, "kv", 1)
    True
    """
    EVERY["learn_quiz"].check(seed)
    if topic not in TOPICS:
        raise CalcError("not_a_choice", "topic", given=shown(topic), allowed=", ".join(TOPICS))
    if not 1 <= number <= LENGTH:
        raise CalcError("out_of_range", "number", given=number, minimum=1, maximum=LENGTH)
    random = Random(f"{EDITION}/{seed}/{topic}/{number}")  # noqa: S311 - no secret
    topics = list(KINDS) if topic == "all" else [topic]
    return random.choice(KINDS[random.choice(topics)])(random)
