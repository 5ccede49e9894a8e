"""A quiz: the same questions for the same seed, for ever and everywhere."""

from __future__ import annotations

import functools
from random import Random

from calc.errors import CalcError, shown
from calc.learn.questions import KINDS, Question
from calc.view_inputs import EVERY, TOPICS

LENGTH = 10
"""Questions of a quiz."""
MOST_ATTEMPTS = 1000
"""Draws until a question is not one of those before it."""
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
    topics = list(KINDS) if topic == "all" else [topic]
    before = [question(seed, topic, earlier) for earlier in range(1, number)]
    for attempt in range(MOST_ATTEMPTS):
        random = Random(f"{EDITION}/{seed}/{topic}/{number}/{attempt}")  # noqa: S311 - no secret
        made = random.choice(KINDS[random.choice(topics)])(random)
        if made not in before:
            return made
    raise AssertionError("too few questions on a topic")
