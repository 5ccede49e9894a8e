"""The identities hold at every size that may be asked for, and what must fail fails clearly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.learn.proofs import DIFFERENT, EQUAL, PROOFS, SIZES, Sizes, prove


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_holds_with_room_to_spare(name: str) -> None:
    proof = prove(name)
    assert proof.holds
    assert proof.error < EQUAL / 1000 if proof.equal else proof.error > DIFFERENT * 10


@given(
    st.builds(
        Sizes,
        tokens=st.integers(16, 400),
        heads=st.integers(8, 64),
        ranks=st.integers(2, 8),
        seed=st.integers(0, 10**6),
    )
)
def test_every_proof_holds_at_every_size(sizes: Sizes) -> None:
    assert all(prove(name, sizes).holds for name in PROOFS)


def test_what_must_be_equal_and_what_must_differ_are_both_there() -> None:
    assert {equal for equal, _ in PROOFS.values()} == {True, False}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_out_of_bounds_is_named(name: str) -> None:
    with pytest.raises(CalcError, match=name):
        Sizes(**{name: 10**7})
