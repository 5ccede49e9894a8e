"""A hybrid model generates the same with its cache exactly when the rule calls it usable."""

from __future__ import annotations

import pytest

from calc.errors import CalcError
from calc.reference.hybrid import CHUNK, PREFIX, experiment, model_groups, trial
from calc.reuse import Rule, needs


def test_outputs_are_equal_exactly_when_the_rule_says_usable() -> None:
    found = experiment()
    assert [one.name for one in found if one.usable] == [
        "complete",
        "early_window",
        "early_states",
        "earlier_snapshot",
    ]
    for one in found:
        assert (one.error == 0) == one.usable, one
        assert one.same_tokens or not one.usable
    assert not all(one.same_tokens for one in found), "what is missing can change the words, too"


@pytest.mark.parametrize("boundary", [24, PREFIX])
def test_every_needed_piece_is_needed_and_no_other(boundary: int) -> None:
    """Each chunk of each layer is withheld alone: the logits move if, and only if, it is needed."""
    for group in model_groups():
        wanted = needs(group, boundary, Rule.VLLM)
        for chunk in range(PREFIX // CHUNK):
            found = trial(boundary, {group.id: [chunk]})
            assert found.usable == (chunk not in wanted)
            assert (found.error > 1e-9) == (chunk in wanted), (group.id, chunk)


def test_a_boundary_inside_a_chunk_is_refused() -> None:
    with pytest.raises(CalcError) as caught:
        trial(12, {})
    assert caught.value.code == "reuse_interval"
    with pytest.raises(CalcError):
        trial(8, {}, prefix=10**6)
