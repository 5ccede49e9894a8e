"""Blocks per request and requests per pool against an allocator that really hands out blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engines.vllm_blocks import requests_in_pool
from calc.engines.vllm_request import (
    chunk_blocks,
    full_blocks,
    state_slots,
    state_slots_cached,
    window_blocks,
)
from calc.reference.allocator import GroupRule, OutOfBlocksError, Pool, Request, admit, peak_blocks

BLOCKS = st.sampled_from([1, 4, 16])
LENGTHS = st.integers(1, 700)
BATCHES = st.integers(1, 200)


@given(length=LENGTHS, block=BLOCKS, ranks=st.sampled_from([1, 2, 8]), batch=BATCHES)
@settings(max_examples=60, deadline=None)
def test_full_attention_takes_what_the_closed_form_says(
    length: int, block: int, ranks: int, batch: int
) -> None:
    rule = GroupRule("full", block, ranks=ranks)
    assert peak_blocks([rule], length, batch, 1, length) == [full_blocks(length, ranks, block)]


@given(
    length=LENGTHS,
    block=BLOCKS,
    window=st.integers(1, 100),
    batch=BATCHES,
    concurrent=st.integers(1, 3),
    prompt_share=st.floats(0, 1),
)
@settings(max_examples=120, deadline=None)
def test_a_window_never_takes_more_than_its_admission_cap(
    length: int, block: int, window: int, batch: int, concurrent: int, prompt_share: float
) -> None:
    rule = GroupRule("window", block, reach=window)
    (peak,) = peak_blocks([rule], length, batch, concurrent, max(1, int(length * prompt_share)))
    assert peak <= window_blocks(length, window, concurrent * batch, block)


@given(block=BLOCKS, window=st.integers(2, 60), batch=st.integers(1, 60), more=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_the_admission_cap_of_a_window_is_tight(
    block: int, window: int, batch: int, more: int
) -> None:
    """A long prefill comes within two blocks of it."""
    length = (window + batch * more) * 6 + 16 * block
    rule = GroupRule("window", block, reach=window)
    (peak,) = peak_blocks([rule], length, batch, more, length)
    assert peak >= window_blocks(length, window, more * batch, block) - 2


@given(
    length=LENGTHS, chunk_in_blocks=st.integers(1, 8), batch=BATCHES, concurrent=st.integers(1, 2)
)
@settings(max_examples=60, deadline=None)
def test_a_chunk_never_takes_more_than_its_admission_cap(
    length: int, chunk_in_blocks: int, batch: int, concurrent: int
) -> None:
    rule = GroupRule("chunk", 16, reach=16 * chunk_in_blocks)
    (peak,) = peak_blocks([rule], length, batch, concurrent, length)
    assert peak <= chunk_blocks(length, rule.reach, concurrent * batch, 16)


@given(
    pool=st.integers(1, 400),
    length=st.integers(1, 300),
    drafts=st.integers(0, 3),
    caching=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_pool_admits_as_many_requests_as_the_closed_form_says(
    pool: int, length: int, drafts: int, caching: bool
) -> None:
    """One group of full attention and three of states, as in Kimi K3."""
    slots = state_slots_cached(drafts, 1) if caching else state_slots(drafts)
    rules = [GroupRule("full", 16), *[GroupRule("state", states=slots)] * 3]
    request = full_blocks(length, 1, 16) + 3 * slots
    assert admit(rules, pool, [length] * 400, 64, 1) == requests_in_pool(pool, request)


@given(pool=st.integers(2, 300), length=st.integers(1, 300), window=st.integers(1, 64))
@settings(max_examples=60, deadline=None)
def test_a_pool_never_holds_fewer_windowed_requests_than_promised(
    pool: int, length: int, window: int
) -> None:
    rules = [GroupRule("full", 16), *[GroupRule("window", 16, reach=window)] * 5]
    request = full_blocks(length, 1, 16) + 5 * window_blocks(length, window, 32, 16)
    assert admit(rules, pool, [length] * 300, 32, 1) >= requests_in_pool(pool, request)


def test_a_released_request_gives_all_its_blocks_back() -> None:
    pool = Pool(40)
    request = Request([GroupRule("full", 4), GroupRule("window", 4, reach=8)], pool, 1)
    request.run(60, 16, 40)
    assert len(pool.free) < 39
    request.release()
    assert sorted(pool.free) == list(range(1, 40))


def test_a_pool_that_is_empty_says_so() -> None:
    with pytest.raises(OutOfBlocksError):
        Request([GroupRule("full", 1)], Pool(4), 1).run(9, 1, 9)


@pytest.mark.slow
@given(
    length=st.integers(1, 6000),
    block=st.sampled_from([4, 16, 64]),
    window=st.integers(1, 2048),
    batch=st.integers(1, 4096),
    concurrent=st.integers(1, 3),
    prompt_share=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_the_caps_hold_for_long_requests_too(
    length: int, block: int, window: int, batch: int, concurrent: int, prompt_share: float
) -> None:
    """As above, at sizes that engines serve: full attention, a window and a chunk at once."""
    rules = [
        GroupRule("full", block),
        GroupRule("window", block, reach=window),
        GroupRule("chunk", block, reach=block * 16),
    ]
    prompt = max(1, int(length * prompt_share))
    full, windowed, chunked = peak_blocks(rules, length, batch, concurrent, prompt)
    assert full == full_blocks(length, 1, block)
    assert windowed <= window_blocks(length, window, concurrent * batch, block)
    assert chunked <= chunk_blocks(length, block * 16, concurrent * batch, block)
