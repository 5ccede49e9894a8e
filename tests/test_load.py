"""Eight visitors at once for a few seconds: no error, and nobody sees somebody else's numbers."""

import asyncio

from tests.benchmarks.bench_load import load
from tests.benchmarks.serving import serving


def test_visitors_at_once_see_their_own_numbers() -> None:
    with serving() as (url, process):
        found = asyncio.run(load(url, sessions=8, seconds=6.0))
        assert process.poll() is None
    assert found.faults == []
    assert found.wrong == []
    assert len(found.durations) >= 8
