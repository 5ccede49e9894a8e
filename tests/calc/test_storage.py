"""Stored objects, copies, snapshots, tiers, routing and transfer, by hand and by simulation."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.checkpoints import Workload, best, interval_cost, mean_recompute, trade_off
from calc.errors import CalcError
from calc.expressions import filled_python
from calc.hardware import load_hardware
from calc.items import Item, walk
from calc.layers import Growth
from calc.reuse_asked import Asked
from calc.scenario import Scenario
from calc.storage import Prefixes, Tier, objects, routing, steady_writes, tiers
from calc.transfer import distinct_bytes, transfer
from tests.calc.models import gqa, layers, model, report

H200 = load_hardware("h200")


def test_latent_objects_are_equal_on_all_ranks_and_stored_once() -> None:
    """DeepSeek-V3, 256 tokens: 61 x 1,152 B x 256 on each of 8 ranks, seven of them copies."""
    found = objects(report("deepseek-v3", tp=8), 256)
    assert found.on_rank.value == 61 * 1152 * 256
    assert found.on_ranks.value == 8 * found.on_rank.value
    assert found.unique.value == found.on_rank.value
    assert found.saved.value == 87.5


def test_kv_heads_are_copied_only_beyond_their_count() -> None:
    few = objects(report(model(layers(4, gqa(32, 8))), tp=8), 256)
    assert few.saved.value == 0
    many = objects(report(model(layers(4, gqa(32, 8))), tp=32), 256)
    assert many.saved.value == 75
    assert many.unique.value == few.unique.value == 4 * 8 * 256 * 2 * 256


def test_dcp_leaves_no_copies_and_states_have_none() -> None:
    """Kimi K3 at tp = dcp = 8: each rank an eighth of 768 rows, and its part of the state."""
    found = objects(report("kimi-k3", tp=8, dcp=8), 768)
    state, rows = found.stored
    assert rows.on_rank.value == 24 * 1152 * 96
    assert state.on_rank.value == 69 * 814_080
    assert state.part.growth is Growth.STATE
    assert found.saved.value == 0
    with pytest.raises(CalcError) as caught:
        objects(report("kimi-k3", tp=8, dcp=8), 100)
    assert caught.value.code == "storage_chunk"
    with pytest.raises(CalcError):
        objects(report("kimi-k3"), 0)


# --- snapshots ------------------------------------------------------------------------------------


def work(**changed: object) -> Workload:
    return replace(Workload(61_440, 4.0, 90.0, 7e9, 50_000.0), **changed)  # type: ignore[arg-type]


def state_of_k3() -> Item:
    return report("kimi-k3", tp=8).cache.stage.state_per_request


def test_an_interval_weighs_states_and_saves_recomputing() -> None:
    found = interval_cost(state_of_k3(), 6144, 768, work())
    assert (found.kept.value, found.storage.value) == (10, 10 * 69 * 814_080)
    assert found.write_rate.value == pytest.approx(69 * 814_080 * 50_000 / 6144)
    assert found.recompute.value == 3071.5
    assert found.cost.value == pytest.approx(4 * 3071.5 * 90 + 561_715_200 / 7e9 * 1e6)


@pytest.mark.parametrize(
    ("prefix", "interval"), [(6144, 768), (32_768, 19_968), (500, 768), (1, 1)]
)
def test_the_mean_recompute_is_that_of_hits_anywhere(prefix: int, interval: int) -> None:
    each = [tokens % interval for tokens in range(prefix)]
    assert mean_recompute(prefix, interval) == sum(each) / len(each)


def test_the_best_interval_is_near_the_square_root_rule() -> None:
    """Cost h (I - 1)/2 t + P/I s/b has its least at sqrt(2 P s / (b h t))."""
    state = state_of_k3()
    asked = work(link_rate=1e8)
    found = best(state, 768, asked)
    smooth = (2 * 61_440 * state.value / 1e8 * 1e6 / (4 * 90)) ** 0.5
    assert found.tokens / smooth == pytest.approx(1, abs=0.35)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    prefix=st.integers(1, 900),
    unit=st.integers(1, 7),
    hits=st.integers(1, 50),
    rate=st.floats(1e8, 1e13),
    lengths=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 9)), max_size=3),
)
def test_the_best_interval_is_the_best_of_all(
    prefix: int, unit: int, hits: int, rate: float, lengths: list[tuple[int, int]]
) -> None:
    """Against every multiple of the unit, also where more are possible than are drawn."""
    prefix = max(prefix, unit)
    known = tuple((min(tokens, prefix), often) for tokens, often in lengths)
    asked = Workload(prefix, float(hits), 90.0, rate, 1e4, known)
    state = state_of_k3()
    every = [interval_cost(state, size, unit, asked) for size in range(unit, prefix + 1, unit)]
    cheapest = min(every, key=lambda one: (one.cost.value, -one.tokens))
    assert best(state, unit, asked) == cheapest


def test_the_best_of_31_250_intervals_is_no_sample() -> None:
    """Falcon Mamba 7B, 500,000 tokens hit once: 11,120 by trying all, 11,440 of the 200 drawn."""
    found = Asked(Scenario("falcon-mamba-7b", gpu="h200"), {"prefix": 500_000, "hits": 1})
    made = report("falcon-mamba-7b", gpu="h200")
    ways = found.snapshots(made, Prefixes(made, H200), found.tiers(made, H200))
    assert ways is not None
    assert ways.best.tokens == 11_120
    assert len(ways.every) <= 201


def test_the_best_of_16_million_intervals_is_found_at_once() -> None:
    lengths = tuple((2**24 - 99_991 * place, 1 + place) for place in range(64))
    before = time.perf_counter()
    for known in ((), lengths):
        asked = work(prefix=2**24, lengths=known, link_rate=1e9)
        found = best(state_of_k3(), 1, asked)
        drawn = trade_off(state_of_k3(), 1, asked)
        assert found.cost.value <= min(one.cost.value for one in drawn)
    assert time.perf_counter() - before < 2


def test_hits_at_known_lengths_are_counted_one_by_one() -> None:
    """Hits at 1,000 (three times) and at 5,000, snapshots every 768 tokens."""
    found = interval_cost(state_of_k3(), 768, 768, work(lengths=((1_000, 3), (5_000, 1))))
    assert found.recompute.value == (3 * 232 + 392) / 4
    # all hits at 6,144: an interval that ends there recomputes nothing
    at = best(state_of_k3(), 768, work(lengths=((6_144, 1),), link_rate=1e9))
    assert at.recompute.value == 0


@pytest.mark.parametrize(
    ("interval", "unit"), [(100, 768), (0, 768), (-768, 768), (1_000, 768), (61_441, 768)]
)
def test_an_interval_that_does_not_divide_is_refused(interval: int, unit: int) -> None:
    with pytest.raises(CalcError) as caught:
        interval_cost(state_of_k3(), interval, unit, work())
    assert caught.value.code == "reuse_interval"


# --- tiers ----------------------------------------------------------------------------------------


def test_loading_is_bytes_over_the_link_and_pays_from_the_break_even_length_on() -> None:
    found = report("deepseek-v3", tp=8, gpu="h200")
    prefixes = Prefixes(found, H200)
    slow = Tier("nvme", 10**12, 2e7, 100.0, "a very slow drive")
    cost = prefixes.cost(slow, 32_768)
    assert cost.point.loaded.value == pytest.approx(100 + 70_272 * 32_768 / 2e7 * 1e6)
    assert cost.held.value == 10**12 // (70_272 * 32_768)
    assert cost.break_even is None or cost.break_even > 32_768
    assert cost.point.saved.value < 0
    fast = prefixes.cost(tiers(found, H200)[1], 32_768)
    assert fast.break_even is not None
    assert fast.break_even < 1_000
    assert fast.point.saved.value > 0


def test_the_break_even_length_is_one() -> None:
    prefixes = Prefixes(report("deepseek-v3", tp=8, gpu="h200"), H200)
    tier = Tier("network", 10**12, 5e8, 200_000.0, "slow to start")
    length = prefixes.break_even(tier)
    assert length is not None
    assert length > 16
    assert prefixes.point(tier, length).saved.value > 0
    assert prefixes.point(tier, length - max(2, length // 100)).saved.value <= 0


def test_every_derivation_gives_its_number_again() -> None:
    from calc.expressions import FUNCTIONS

    found = report("kimi-k3", tp=8, gpu="h200")
    cost = Prefixes(found, H200).cost(tiers(found, H200)[2], 4096)
    interval = interval_cost(state_of_k3(), 768, 768, work())
    ways = routing(8, 5)
    moved = transfer(Scenario("kimi-k3", tp=8, gpu="h200"), Scenario("kimi-k3", tp=8, dcp=8), H200)
    for item in (
        cost.point.saved,
        cost.held,
        interval.cost,
        interval.write_rate,
        ways.aware,
        ways.random,
        moved.time,
        moved.distinct,
        objects(found, 768).saved,
        steady_writes(found, 2.0, 1000, 3),
    ):
        for part in walk(item):
            again = eval(filled_python(part), dict(FUNCTIONS))  # noqa: S307 - our own expressions
            assert again == pytest.approx(part.value)


def test_steady_writes_are_new_rows_and_snapshots() -> None:
    found = steady_writes(report("kimi-k3", tp=8), 2.0, 1000, 3)
    assert found.value == 2 * (1000 * 24 * 1152 + 3 * 69 * 814_080)


@pytest.mark.parametrize(
    ("model", "layers", "row"), [("swa-48", 48, 4096), ("llama-4-scout", 48, 4096)]
)
def test_rows_of_windows_and_attention_chunks_are_written_too(
    model: str, layers: int, row: int
) -> None:
    """Every layer stores every new row: 4,096 tokens a second of 48 layers."""
    assert steady_writes(report(model), 1.0, 4096, 0).value == 4096 * layers * row


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replicas", "uses"), [(1, 4), (4, 1), (8, 10), (32, 6)])
def test_hit_rates_are_those_of_a_simulated_router(replicas: int, uses: int) -> None:
    draw = random.Random(5)  # noqa: S311 - a simulation, no secret
    hits, rounds = 0, 4000
    for _ in range(rounds):
        warm: set[int] = set()
        for _ in range(uses):
            where = draw.randrange(replicas)
            hits += where in warm
            warm.add(where)
    found = routing(replicas, uses)
    assert found.random.value == pytest.approx(hits / rounds / uses, abs=0.015)
    assert found.aware.value == (uses - 1) / uses
    with pytest.raises(CalcError):
        routing(0, uses)


# --- prefill and decode apart ---------------------------------------------------------------------


def test_a_transfer_gives_each_rank_its_own_part() -> None:
    """Kimi K3 from tp = 8 to tp = dcp = 8: latents leave seven copies behind and are striped."""
    found = transfer(
        Scenario("kimi-k3", tp=8), Scenario("kimi-k3", tp=8, dcp=8, context=65_536), H200
    )
    rows, states = 24 * 1152 * 65_536, 8 * 69 * 814_080
    assert found.moved.value == rows + states
    assert found.distinct.value == rows + states
    assert found.relaid == ("dcp",)
    assert found.time.value == pytest.approx(found.received.value / 50e9 * 1e6)


def test_copies_are_moved_to_every_rank_that_keeps_one() -> None:
    found = transfer(
        Scenario("deepseek-v3", tp=4, dcp=4, kv_dtype="bf16"),
        Scenario("deepseek-v3", tp=8, kv_dtype="fp8", context=4096),
        H200,
    )
    assert found.distinct.value == 70_272 * 4096
    assert found.moved.value == 8 * 70_272 * 4096
    assert found.relaid == ("kv_dtype", "tp", "dcp")
    assert found.sent.value == 2 * 70_272 * 4096
    assert distinct_bytes(report("deepseek-v3", tp=8, context=4096)).value == 70_272 * 4096


def test_only_replicas_of_one_model_exchange_caches() -> None:
    with pytest.raises(CalcError) as caught:
        transfer(Scenario("deepseek-v3"), Scenario("kimi-k3"), H200)
    assert caught.value.code == "transfer_model"
