"""A short run of the fuzzer, another seed than the long one's."""

from random import Random

import pytest

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, Target, outcome, seeds

INPUTS = 3000


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_text_is_a_result_or_a_named_error(target: Target) -> None:
    random = Random(f"ci {target.name}")  # noqa: S311 - no secret
    for _ in range(max(20, round(INPUTS * target.share))):
        text = mutated(random, seeds(target.name))
        try:
            outcome(target, text)
        except Exception as error:
            raise AssertionError(f"{error!r} from {text[:2000]!r}") from error


def test_every_seed_is_a_result() -> None:
    for target in TARGETS:
        for text in seeds(target.name):
            assert outcome(target, text) == "result", (target.name, text[:200])


def test_shares_sum_to_one() -> None:
    assert sum(target.share for target in TARGETS) == pytest.approx(1)
