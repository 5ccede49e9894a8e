"""Benchmark results read as untrusted input, and measured beside predicted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calc.calibration import (
    Rates,
    compared,
    compared_collective,
    compared_layer,
    efficiency,
    fit,
    fitted,
    hardware_of,
)
from calc.errors import CalcError
from calc.hardware import load_hardware
from calc.link import decode_query, encode, query_string
from calc.measured import MAX_BYTES, KernelResult, read_result, result_json
from calc.report import evaluate
from calc.scenario import Scenario
from calc.timing.report import times

RECORDED = Path(__file__).resolve().parents[2] / "gpu" / "recorded"
H200 = (RECORDED / "h200-kimi-k3.json").read_text(encoding="utf-8")


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(H200) | fields)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_result_can_be_read_and_says_that_it_is_recorded(path: Path) -> None:
    result = read_result(path.read_text(encoding="utf-8"))
    assert result.recorded
    assert result.kernels
    assert result.memory[0].within
    assert result.merge[0].right


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "result_not_json"),
        ("{", "result_not_json"),
        ("[1]", "result_invalid"),
        ("{}", "result_version"),
        ('"' + "x" * MAX_BYTES + '"', "result_too_large"),
        (changed(version=2), "result_version"),
        (changed(kind="something"), "result_version"),
        (changed(extra=1), "result_invalid"),
        (changed(created="yesterday"), "result_invalid"),
        (changed(seconds=float("inf")), "result_invalid"),
        (changed(seconds="3"), "result_invalid"),
        (changed(kernels=[]) + "}", "result_not_json"),
        (changed(kernels=json.loads(H200)["kernels"] * 40), "result_invalid"),
    ],
)
def test_what_is_no_result_is_refused_in_one_sentence(text: str, code: str) -> None:
    with pytest.raises(CalcError) as caught:
        read_result(text)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_a_backend_without_a_right_answer_carries_no_time() -> None:
    data = json.loads(H200)
    data["kernels"][0]["backends"][0]["status"] = "wrong"
    with pytest.raises(CalcError, match="timing exactly when"):
        read_result(json.dumps(data))


def test_a_result_is_checked_before_it_is_written() -> None:
    data = json.loads(H200)
    assert read_result(result_json(data)) == read_result(H200)
    with pytest.raises(ValueError, match="extra"):
        result_json(data | {"surprise": 1})


def test_the_card_is_known_by_its_name_and_memory() -> None:
    hardware = hardware_of(read_result(H200))
    assert hardware is not None
    assert hardware.id == "h200"
    data = json.loads(H200)
    data["machine"]["gpu"] = "NVIDIA A100-SXM4-80GB"
    data["machine"]["memory_bytes"] = 85 * 10**9
    other = hardware_of(read_result(json.dumps(data)))
    assert other is not None
    assert other.id == "a100-80gb"
    data["machine"]["gpu"] = "Some card"
    assert hardware_of(read_result(json.dumps(data))) is None


def test_measured_stands_beside_two_predictions() -> None:
    """Calibrated on other shapes, the prediction is within 15 % on the card recorded."""
    result = read_result(H200)
    shapes = {kernel.facts.model_dump_json() for kernel in result.kernels}
    assert not shapes & {kernel.facts.model_dump_json() for kernel in result.calibration}
    attention = [row for row in compared(result) if row.what == "attention"]
    assert attention
    for row in attention:
        assert row.floor_us < row.measured_us
        assert row.calibrated_error is not None
        assert abs(row.calibrated_error) < 0.15
        assert row.error is not None
        assert abs(row.error) < 0.30


def test_efficiency_is_offered_as_shares_of_the_data_sheet() -> None:
    result = read_result(H200)
    found = efficiency(result)
    assert found.hbm is not None
    assert found.attention is not None
    assert 0.85 < found.hbm <= result.ceilings.read / 4.8e12  # nothing reads faster than reading
    assert 0.6 < found.attention < 0.8
    assert found.gemm == pytest.approx(650.2 / 989.5, abs=0.002)
    data = json.loads(H200) | {"calibration": []}
    own = efficiency(read_result(json.dumps(data)))
    assert own.hbm is None  # the only attention measured is bound by arithmetic
    assert own.attention is not None
    assert 0.6 < own.attention < 0.8
    assert own.fields()["hbm_efficiency"] == 0


def test_applied_efficiencies_move_the_estimate_towards_what_was_measured() -> None:
    result = read_result(H200)
    shares: dict[str, Any] = {**efficiency(result).fields()}
    before = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=2**20, gpu="h200")
    after = decode_query(query_string(encode(replace(before, **shares)))).scenario
    assert after.hbm_efficiency > 0.9

    def attention(scenario: Scenario) -> float:
        parts = times(evaluate(scenario)).decode.parts
        return float(next(part.each.value for part in parts if part.name == "attention"))

    measured = result.kernels[0].best
    assert measured is not None
    assert measured.timing is not None
    errors = [abs(attention(one) / measured.timing.us - 1) for one in (before, after)]
    assert errors[1] < 0.06 < errors[0]
    other = times(evaluate(after), load_hardware("b200")).decode
    assert other.total.value == times(evaluate(before), load_hardware("b200")).decode.total.value


def test_matrix_products_take_the_measured_share_too() -> None:
    slow, fast = (
        times(
            evaluate(Scenario("llama-3.1-70b", tp=8, batch=4096, gpu="h200", gemm_efficiency=share))
        ).decode.group("products")
        for share in (0.3, 0.6)
    )
    assert slow == pytest.approx(2 * fast, rel=0.05)


COLLECTIVE = {
    "name": "mla.gather_query",
    "collective": "all_gather",
    "ranks": 8,
    "payload_bytes": 7_077_888,
    "dtype": "bf16",
    "right": True,
    "timing": {"us": 45.0, "min_us": 44.0, "max_us": 47.0, "n": 20, "graph": True},
    "bus_bytes_per_s": 137.6e9,
}
LAYER = {
    "kind": "mla",
    "backend": "nccl",
    "ranks": 8,
    "batch": 64,
    "tokens": 16_384,
    "heads": 96,
    "k_dim": 576,
    "v_dim": 512,
    "exchange": "a2a",
    "attention": "FlashMLA",
    "error": 2e-3,
    "right": True,
    "timing": {"us": 520.0, "min_us": 510.0, "max_us": 530.0, "n": 20, "graph": True},
}


@pytest.mark.parametrize("exchange", ["a2a", "ag_rs"])
def test_collectives_and_layers_stand_beside_their_prediction(exchange: str) -> None:
    rows = [COLLECTIVE, COLLECTIVE | {"backend": "gloo"}]
    result = read_result(changed(collectives=rows, layers=[LAYER | {"exchange": exchange}]))
    nccl, gloo = (compared_collective(result, row) for row in result.collectives)
    layer = compared_layer(result, result.layers[0])
    assert nccl
    assert gloo
    assert layer
    assert nccl.error is not None
    assert abs(nccl.error) < 0.5
    assert gloo.predicted_us is None  # a CPU's time says nothing about a GPU
    assert layer.predicted_us is not None
    assert 400 < layer.predicted_us < 700


def points(rates: Rates) -> list[KernelResult]:
    """Kernels that take exactly what the rates say."""
    made = []
    first = json.loads(H200)["kernels"][0]
    for moved, flops in [
        (4e5, 1e8),
        (4e6, 1e9),
        (4e7, 4e10),
        (4e8, 1e10),
        (4e9, 1e10),
        (4e8, 4e12),
    ]:
        us = rates.time_us(moved, flops)
        row = first["backends"][0] | {
            "timing": {"us": us, "min_us": us, "max_us": us, "n": 1, "graph": True}
        }
        data = first | {"bytes": int(moved), "tile_flops": int(flops), "backends": [row]}
        made.append(KernelResult.model_validate_json(json.dumps(data)))
    return made


def test_a_fit_finds_the_rates_that_made_the_times() -> None:
    true = Rates(6.0, 5.0, 4.4e6, 7e8)
    found = fit(points(true), Rates(0.0, 0.0, 4.8e6, 9.9e8))
    assert found.launch_us == pytest.approx(6.0, rel=0.02)
    assert found.ramp_us == pytest.approx(5.0, rel=0.05)
    assert found.bytes_per_us == pytest.approx(4.4e6, rel=1e-3)
    assert found.flops_per_us == pytest.approx(7e8, rel=1e-3)


def test_too_few_points_give_no_rates() -> None:
    data = json.loads(H200)
    data["calibration"] = data["calibration"][:2]
    assert fitted(read_result(json.dumps(data))) == {}
