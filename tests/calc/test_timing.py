"""Times: near published measurements, physical in form, and refused where nothing is known."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import pytest

from calc.__main__ import main
from calc.errors import CalcError
from calc.hardware import hardware_ids, load_hardware
from calc.timing import Kernels, Links, command
from calc.timing.data import collectives_for, load_measurements, measured_ids
from calc.timing.errors import compared, error_rows
from calc.timing.matrices import touched_share
from calc.timing.report import borrowed_from, times, times_json
from tests.calc.models import report

H200 = load_hardware("h200")
B200 = load_hardware("b200")

LIMITS = {"collectives": 0.10, "latent": 0.15, "heads": 0.15, "states": 0.15, "deepep": 0.15}


# --- Against measurements -------------------------------------------------------------------------


@pytest.mark.parametrize("row", list(error_rows()), ids=lambda row: row.table)
def test_the_median_error_of_each_table_is_small(row: Any) -> None:
    assert row.points >= 10
    assert row.median <= LIMITS[row.table]


@pytest.mark.parametrize("row", list(error_rows(by_group=True)), ids=lambda row: row.group)
def test_no_group_is_far_off(row: Any) -> None:
    assert row.median < 0.30


def test_estimates_err_to_both_sides() -> None:
    for table in ("latent", "heads"):
        errors = [point.error for point in compared() if point.table == table]
        assert abs(float(np.median(errors))) < 0.05


@pytest.mark.parametrize(
    ("heads", "batch", "tokens", "us"),
    # H200, bf16, FlashAttention 3, vLLM's MLA layer core: aisimulate 0.13 generation_mla_perf,
    # another table than the fit's
    [
        (16, 64, 65_536, 1103),
        (64, 64, 65_536, 1145),
        (128, 64, 65_536, 1930),
        (128, 64, 8_192, 251),
    ],
)
def test_latent_attention_is_near_another_kernel_s_times(
    heads: int, batch: int, tokens: int, us: float
) -> None:
    assert Kernels(H200).latent(batch, heads, tokens).value == pytest.approx(us, rel=0.1)


def test_eight_times_fewer_tokens_with_eight_times_the_heads_gain_less_than_eightfold() -> None:
    kernels = Kernels(H200)
    gained = kernels.latent(64, 16, 65_536).value / kernels.latent(64, 128, 8_192).value
    assert gained == pytest.approx(1103 / 251, rel=0.05)


def test_measurements_of_another_gpu_predict_large_collectives() -> None:
    """Leave the H200 out: its times from the H100's, at 128 MiB over eight GPUs."""
    links = Links(H200, 8, own_all_reduce=False, without="h200")
    for op, us in (("all_gather", 379.9), ("all_to_all", 403.9), ("all_reduce", 564.5)):
        assert links.time("t", op, 2.0**27, 8).value == pytest.approx(us, rel=0.10)  # type: ignore[arg-type]


# --- Form -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", measured_ids())
def test_a_larger_payload_never_takes_less_time_and_the_curve_has_no_jumps(gpu: str) -> None:
    links = Links(load_hardware(gpu), 8, own_all_reduce=False)
    sizes = np.geomspace(256, 2**34, 500)
    for curve in load_measurements(gpu).collectives:
        found = np.array([links.time("t", curve.op, s, curve.ranks).value for s in sizes])
        assert (np.diff(found) >= -1e-9).all(), curve
        assert (found[1:] / found[:-1] < 1.2).all(), curve


def test_beyond_the_measured_sizes_the_rate_carries_on() -> None:
    links = Links(H200, 8)
    huge, twice = (links.time("t", "all_gather", size, 8).value for size in (2.0**36, 2.0**37))
    assert twice / huge == pytest.approx(2, rel=0.01)


def test_engines_use_their_own_all_reduce_only_up_to_a_size() -> None:
    own, plain = (Links(H200, 8, own_all_reduce=own) for own in (True, False))
    small, large = 2.0**17, 2.0**20
    assert (
        own.time("t", "all_reduce", small, 8).value < plain.time("t", "all_reduce", small, 8).value
    )
    assert own.time("t", "all_reduce", large, 8).value == (
        plain.time("t", "all_reduce", large, 8).value
    )


def test_more_nodes_take_longer_and_the_network_binds() -> None:
    links = Links(H200, 8)
    inside = links.time("t", "all_reduce", 2.0**26, 8).value
    across = links.time("t", "all_reduce", 2.0**26, 16, 2).value
    network = 2 * (1 / 2) * 2.0**26 / 8 / (50e3 * 0.9)  # each card carries an eighth
    assert across == pytest.approx(inside + network + 24, rel=1e-6)


def test_heads_are_padded_to_a_tile() -> None:
    kernels = Kernels(H200)
    few, tile, two_tiles = (kernels.latent(64, heads, 65_536).value for heads in (8, 64, 128))
    assert few == pytest.approx(tile, rel=0.03)
    assert two_tiles > 1.5 * tile


def test_a_window_reads_no_more_than_its_tiles() -> None:
    kernels = Kernels(H200)
    short, long = (kernels.heads(64, 64, 8, n, 4096, window=128).value for n in (256, 65_536))
    assert short == long


def test_contexts_may_be_an_array() -> None:
    contexts = np.array([1_000, 10_000, 100_000])
    found = Kernels(H200).latent(8, 128, contexts).value
    one = [Kernels(H200).latent(8, 128, int(context)).value for context in contexts]
    assert found == pytest.approx(one)


@pytest.mark.parametrize("gpu", hardware_ids())
def test_every_gpu_has_estimates_from_the_nearest_measured_one(gpu: str) -> None:
    hardware = load_hardware(gpu)
    nearest = collectives_for(hardware)
    assert nearest.gpu in measured_ids()
    assert (nearest.gpu == gpu) == (gpu in measured_ids())
    assert Kernels(hardware).latent(1, 128, 1_000).value > 0
    assert set(borrowed_from(hardware)) == {
        "collectives",
        "latent",
        "heads",
        "convolution",
        "recurrence",
    }


# --- Steps ----------------------------------------------------------------------------------------


def test_a_step_is_the_sum_of_its_parts_and_one_gpu_communicates_nothing() -> None:
    found = times(report("llama-3.1-8b", batch=4, gpu="h200", prefill_tokens=1_000))
    for step in (found.decode, found.prefill):
        assert step is not None
        assert step.total.value == pytest.approx(sum(part.total.value for part in step.parts))
        assert step.group("communication") == 0
        assert step.total.status.value == "exact"  # a sum; its parts are the estimates
        assert all(part.each.status.value == "estimate" for part in step.parts)
    rate = found.decode.tokens_per_second_user.value
    assert rate == pytest.approx(1e6 / found.decode.total.value)
    assert found.decode.tokens_per_second_gpu.value == pytest.approx(4 * rate)


def test_small_dense_models_decode_about_as_fast_as_they_stream_their_weights() -> None:
    found = times(report("llama-3.1-8b", context=2_048, gpu="h200")).decode
    weights = 2 * (8.03e9 - 128_256 * 4_096)  # the embedding is looked up
    assert found.total.value / 1e6 == pytest.approx(weights / 4.8e12, rel=0.5)
    assert found.total.value / 1e6 > weights / 4.8e12


def test_few_tokens_read_few_experts() -> None:
    one, many = touched_share(256, 8, 1), touched_share(256, 8, 512)
    assert one == pytest.approx(8 / 256)
    assert many > 0.999
    few, all_of_them = (
        times(report("deepseek-v3", tp=8, batch=batch, gpu="h200")).decode for batch in (1, 256)
    )
    assert all_of_them.group("products") > 5 * few.group("products")


def test_every_stage_that_communicates_takes_time() -> None:
    for fields in (
        {"tp": 8, "dcp": 8, "batch": 64},
        {"dp": 16, "ep": "on", "moe_backend": "deepep_low_latency", "batch": 64},
        {"dp": 32, "ep": "on", "moe_backend": "deepep_high_throughput", "batch": 64},
        {"tp": 8, "pp": 2, "engine": "sglang"},
        {"tp": 4, "dp": 4, "engine": "sglang", "batch": 64},
    ):
        found = report("deepseek-v3", gpu="b200", **fields)
        timed = [part for part in times(found).decode.parts if part.group == "communication"]
        assert [part.stage for part in timed] == [
            row for row in found.step.stages if row.collective
        ]
        assert all(part.each.value > 0 for part in timed)


@pytest.mark.parametrize("preset", ["deepseek-v4-flash", "falcon-h1-34b", "jamba-1.5-mini"])
def test_every_kind_of_mixer_takes_time(preset: str) -> None:
    found = report(preset, gpu="h200", context=100_000)
    timed = {part.kind for part in times(found).decode.parts if part.group != "products"}
    assert timed == {mixer.kind for mixer in found.model.mixers}


def test_a_longer_prefix_and_a_longer_chunk_take_longer() -> None:
    def chunk(context: int, new: int) -> float:
        found = times(report("deepseek-v3", tp=8, gpu="h200", context=context, prefill_tokens=new))
        assert found.prefill is not None
        return float(found.prefill.total.value)

    assert chunk(4_096, 4_096) < chunk(100_000, 4_096) < chunk(100_000, 8_192)


def test_without_known_rates_there_are_no_times() -> None:
    for gpu in ("none", "custom"):
        with pytest.raises(CalcError, match=r"known: .*h200"):
            times(report("llama-3.1-8b", gpu=gpu))


def test_a_gpu_without_a_known_network_is_refused_only_across_nodes() -> None:
    assert times(report("llama-3.1-8b", tp=8, gpu="l4")).decode.total.value > 0
    with pytest.raises(CalcError, match="no network between nodes is known for l4") as error:
        times(report("llama-3.1-8b", tp=8, gpu="l4", gpus_per_node=4))
    assert error.value.code == "network_unknown"


# --- The command line -----------------------------------------------------------------------------


def test_the_command_prints_the_error_table_and_single_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["timing", "--errors"]) == 0
    assert capsys.readouterr().out.startswith("| estimate of | points |")
    arguments = ["--collective", "all_gather", "--bytes", "4194304", "--json"]
    assert main(["timing", "--gpu", "h200", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["us"] == pytest.approx(41.3, rel=0.3)
    assert main(["timing", "--kernel", "latent", "--heads", "0"]) == 2
    assert capsys.readouterr().err.startswith("heads: ")


def test_a_chosen_gpu_adds_times_to_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["evaluate", "--preset", "deepseek-v3", "--tp", "8", "--json"]
    assert main([*base, "--gpu", "h200"]) == 0
    timing = json.loads(capsys.readouterr().out)["timing"]
    assert timing["status"] == "estimate"
    assert timing["decode"]["step_us"] == pytest.approx(
        sum(timing["decode"]["groups_us"].values()), rel=1e-4
    )
    assert set(timing["median_error"]) == set(LIMITS)
    assert main(base) == 0
    assert json.loads(capsys.readouterr().out)["timing"] is None
    found = report("deepseek-v3", tp=8, gpu="b200", prefill_tokens=64)
    assert times_json(times(found))["prefill"]["parts"]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("bytes", "9" * 300),
        ("ranks", "1"),
        ("context", "\uff14"),
        ("batch", "1_000"),
        ("window", "-1"),
    ],
)
def test_sizes_out_of_bounds_are_named(option: str, text: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    what = ["--kernel", "heads"] if option in ("context", "batch", "window") else []
    asked = parser.parse_args([*(what or ["--collective", "all_reduce"]), f"--{option}", text])
    with pytest.raises(CalcError) as refused:
        command.answer(asked)
    assert refused.value.field == option
