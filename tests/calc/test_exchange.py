"""What DCP trades: shorter reads for communication, and why the gain is less than dcp-fold."""

from __future__ import annotations

import numpy as np
import pytest

from calc.errors import CalcError
from calc.exchange import against_batch, exchange, gain, link_budgets, roofline
from calc.hardware import load_hardware
from calc.scenario import Scenario
from tests.calc.models import report

H200 = load_hardware("h200")
K3 = Scenario("kimi-k3", tp=8, batch=64)


def test_every_legal_size_has_a_curve_and_cache_falls_with_it() -> None:
    found = exchange(K3, H200, [8_192, 65_536, 1_048_576])
    assert [curve.dcp for curve in found.curves] == [1, 2, 4, 8]
    assert [curve.heads for curve in found.curves] == [12, 24, 48, 96]
    whole = 1_048_576 * 1152 * 24
    assert [curve.kv_bytes[-1] for curve in found.curves] == [whole / d for d in (1, 2, 4, 8)]
    assert found.curves[0].communication == 0


def test_dcp_pays_from_some_context_on() -> None:
    found = exchange(K3, H200)
    for dcp in (2, 4, 8):
        start = found.crossover(dcp)
        assert start is not None
        assert 1_024 < start < 32_768
        one, many = found.curves[0], next(c for c in found.curves if c.dcp == dcp)
        before, after = one.contexts < 0.8 * start, one.contexts > 1.2 * start
        assert (many.time[after] < one.time[after]).all()
        assert (many.time[before] >= one.time[before]).mean() > 0.9
    single = exchange(Scenario("kimi-k3", tp=8, batch=1), H200, [1_000, 2_000])
    assert single.crossover(8) is None


def test_the_gain_is_less_than_dcp_fold_as_heads_gather_and_arithmetic_binds() -> None:
    found = exchange(Scenario("deepseek-v3", tp=8, batch=64), H200, [65_536])
    why = gain(found, 8, 65_536)
    assert (why.heads_grow, why.compute_bound) == (8, True)
    assert why.attention == pytest.approx(4.4, rel=0.05)  # 1103 / 251 µs measured on an H200
    assert why.whole < why.attention < 8
    assert 0 < why.communication_share < 1
    with pytest.raises(CalcError, match="dcp"):
        gain(found, 3, 65_536)


def test_grouped_attention_has_its_own_sizes() -> None:
    found = exchange(Scenario("qwen3-235b-a22b", tp=16, batch=8), H200, [4_096, 262_144])
    assert [curve.dcp for curve in found.curves] == [1, 2, 4]
    assert found.curves[2].attention[1] < found.curves[0].attention[1]


def test_bytes_grow_with_the_batch_and_calls_do_not() -> None:
    points = list(against_batch(Scenario("kimi-k3", tp=8, dcp=8), H200, (1, 64)))
    assert points[1].sent_bytes == 64 * points[0].sent_bytes
    assert points[1].calls == points[0].calls
    assert points[1].communication_us < 10 * points[0].communication_us
    assert sum(points[1].bytes_by_collective.values()) == points[1].sent_bytes


def test_cache_transfers_and_experts_share_the_network() -> None:
    step = report("deepseek-v3", dp=16, ep="on", batch=64, moe_backend="deepep_low_latency").step
    node, network = link_budgets(step, H200, 20.0, 5e8, 2.0)
    assert set(network.loads) == {"experts", "cache_transfer"}
    assert network.loads["cache_transfer"].value == 1e9
    total = sum(item.value for item in network.loads.values())
    assert network.used == pytest.approx(total / 50e9)
    assert node.used == 0


def test_the_roofline_tells_the_kinds_of_attention_apart() -> None:
    bend, points = roofline(H200)
    assert bend.value == pytest.approx(989.4 / 4.8)
    found = {(point.name, point.dcp): point for point in points}
    assert found["MHA", 1].intensity.value == 1
    assert found["GQA", 1].intensity.value == 16
    assert found["MLA", 1].intensity.value == pytest.approx(16 * 1088 / 576)
    assert found["MLA", 8].intensity.value > bend.value > found["MQA", 8].intensity.value
    assert ("MHA", 8) not in found  # every rank has its own heads: nothing to stripe
    assert found["MLA", 8].attainable.value == pytest.approx(989.4e12)
    assert found["MHA", 1].attainable.value == pytest.approx(4.8e12)
    assert len(roofline(H200, dcp=1)[1]) == 4


def test_curves_are_of_the_same_contexts() -> None:
    found = exchange(K3, H200)
    assert all(np.array_equal(c.contexts, found.curves[0].contexts) for c in found.curves)
