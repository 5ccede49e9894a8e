"""Questions: the same for a seed for ever, answered by formulas, solvable in the head."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from calc.__main__ import main
from calc.errors import CalcError
from calc.learn.mental import Term, mental
from calc.learn.questions import KINDS, STATEMENTS, Question
from calc.learn.quiz import LENGTH, question
from calc.report import evaluate
from calc.view_inputs import TOPICS

STORED = Path(__file__).resolve().parents[1] / "data" / "quiz_v1.json"
SEEDS = range(1, 41)


def questions() -> list[Question]:
    return [question(seed, "all", n) for seed in SEEDS for n in range(1, LENGTH + 1)]


def told(one: Question) -> list[object]:
    """What must not change: the kind, what is given, the answer."""
    right = one.options[one.right] if one.options else round(one.value, 6)
    return [one.kind, one.claim, json.loads(json.dumps(dict(one.values))), right]


def test_no_question_is_asked_twice_in_a_quiz() -> None:
    for seed in SEEDS:
        asked = [question(seed, "all", number) for number in range(1, LENGTH + 1)]
        assert all(one not in asked[:at] for at, one in enumerate(asked))
    for topic in TOPICS:
        asked = [question(1, topic, number) for number in range(1, LENGTH + 1)]
        assert all(one not in asked[:at] for at, one in enumerate(asked))


def test_what_fits_is_admitted_by_the_engine_too() -> None:
    """Bytes may fit where vLLM's blocks do not: such a layout would be no clear answer."""
    for one in questions():
        if one.kind == "which_fits":
            view = evaluate(one.scenario).engine.view if one.scenario else None
            assert view is not None
            assert view.max_requests.value >= one.scenario.batch  # type: ignore[union-attr]


def test_a_rounded_line_says_that_it_is_rounded() -> None:
    rough = mental([Term((2, 7, 8, 8_000, 2), (8,))], 224_000, 0.03)
    assert rough.lines == ("2 × 7 × 8 × 8,000 × 2 / 8 ≈ 220,000",)


def test_a_seed_means_the_same_quiz_for_ever() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for seed, rows in stored.items():
        made = [told(question(int(seed), "all", n)) for n in range(1, LENGTH + 1)]
        assert made == rows, seed


def test_every_kind_comes_up_and_every_topic_gives_its_own() -> None:
    kinds = Counter(one.kind for one in questions())
    assert len(kinds) == 12
    for topic in TOPICS[1:]:
        made = {question(seed, topic, 1).topic for seed in range(1, 20)}
        assert topic in made
        assert set(KINDS) == set(TOPICS[1:])


def test_the_rounded_way_ends_within_what_is_accepted() -> None:
    for one in questions():
        if one.path is not None:
            assert one.accepts(one.path.value), (one.kind, one.path)
            assert one.path.lines


def test_a_rounded_way_is_rounded() -> None:
    """Most factors have one or two digits, or there would be nothing to do in the head."""
    lines = [line for one in questions() if one.path for line in one.path.lines]
    short = [line for line in lines if len(line) < 60]
    assert len(short) > 0.95 * len(lines)


def test_answers_are_those_of_the_scenario() -> None:
    for one in questions():
        if one.kind == "request_bytes":
            assert one.scenario is not None
            assert one.value == evaluate(one.scenario).cache.stage.per_request.value
        if one.kind == "which_fits":
            assert one.scenario is not None
            assert evaluate(one.scenario).fit.fits
        if one.options:
            assert 0 <= one.right < len(one.options)


def test_true_and_false_are_both_asked_for() -> None:
    made = [question(seed, "statements", 1) for seed in range(1, 200)]
    share = sum(one.right == 0 for one in made) / len(made)
    assert 0.35 < share < 0.65
    assert len({one.claim for one in made}) > 0.5 * len(STATEMENTS)


@pytest.mark.parametrize(
    ("seed", "topic", "number", "words"),
    [(0, "all", 1, "learn_quiz"), (1, "cooking", 1, "topic"), (1, "all", 11, "number")],
)
def test_a_quiz_that_cannot_be_is_named(seed: int, topic: str, number: int, words: str) -> None:
    with pytest.raises(CalcError, match=words):
        question(seed, topic, number)


def test_the_command_prints_questions_and_answers_only_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["quiz", "--seed", "7", "--json"]) == 0
    hidden = json.loads(capsys.readouterr().out)["questions"]
    assert len(hidden) == LENGTH
    assert not any("answer" in row for row in hidden)
    assert main(["quiz", "--seed", "7", "--answers"]) == 0
    assert capsys.readouterr().out.count("->") == LENGTH
    assert main(["quiz", "--seed", "zero"]) == 2
