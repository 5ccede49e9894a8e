"""Every verdict that is arithmetic, by plain numbers; the known errors of the sources are there."""

from __future__ import annotations

import json
import math

import pytest

from calc.__main__ import main
from calc.learn.claims import CLAIMS, Claim, Source, Verdict, name
from calc.view_inputs import SOURCES, VERDICTS

LATENT = 512 + 64
K3_GATHER = 64 * 96 * 576 * 2 * 7 / 8
K3_PARTIALS = 64 * 96 * 516 * 2 * 7 / 8
K3_REDUCE = 64 * 7168 * 2 * 2 * 7 / 8
K3_WHOLE_STEP = (
    24 * (K3_GATHER + K3_PARTIALS)
    + (1 + 93 + 1 + 92) * K3_REDUCE  # embedding, every mixer, the dense FFN, shared experts
    + 92 * K3_REDUCE / 2  # routed experts work on 3,584 of 7,168 columns
    + 64 * 163_840 * 2 * 7 / 8  # logits
)
K3_STATES = 69 * (96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2)

BY_HAND: dict[str, tuple[Verdict, dict[str, float]]] = {
    "storage_row": (Verdict.RIGHT, {"always": LATENT * 2}),
    "storage_token": (Verdict.RIGHT, {"always": LATENT * 2 * 61}),
    "storage_token_kib": (Verdict.RIGHT, {"always": LATENT * 2 * 61 / 1024}),
    "storage_prefix_mib": (Verdict.RIGHT, {"always": LATENT * 2 * 61 * 8192 / 2**20}),
    "storage_mha_row": (Verdict.RIGHT, {"always": 128 * (192 + 128) * 2}),
    "storage_times_71": (
        Verdict.CONDITIONAL,
        {"k_192": 128 * 320 / LATENT, "k_128": 2 * 128 * 128 / LATENT},
    ),
    "storage_tp_copies": (Verdict.CONDITIONAL, {"dcp_1": 1152, "dcp_8": 144}),
    "storage_swa_all": (Verdict.RIGHT, {"always": 48 * 32768}),
    "storage_swa_units": (Verdict.RIGHT, {"always": 8 * 32768 + 40 * 1024}),
    "storage_swa_share": (
        Verdict.CONDITIONAL,
        {
            "ideal": 100 * (8 * 32768 + 40 * 1024) / (48 * 32768),
            "decode": 100 * (8 * 32768 + 40 * 1040) / (48 * 32768),
            "admission": 100 * (8 * 32768 + 40 * (1023 + 8192)) / (48 * 32768),
            "no_hybrid": 100,
        },
    ),
    "storage_window_chunks": (
        Verdict.CONDITIONAL,
        {"vllm": math.ceil(1023 / 16), "whole": 64, "lmcache": 4},
    ),
    "storage_experts": (Verdict.RIGHT, {"always": 1}),
    "storage_fp8_half": (
        Verdict.CONDITIONAL,
        {
            "per_tensor": 50,
            "token_head": 100 * 584 / 1152,
            "ds_mla": 100 * 656 / 1152,
            "ds_mla_index": 100 * (656 + 132) / 1152,
        },
    ),
    "movement_mha_token": (Verdict.WRONG, {"always": 2 * 32 * 128 * 2}),
    "movement_layer_mib": (Verdict.WRONG, {"always": 8192 * 2 * 4096 * 2 / 2**20}),
    "movement_layers_gib": (Verdict.WRONG, {"always": 32 * 8192 * 2 * 4096 * 2 / 2**30}),
    "movement_latent_4k": (Verdict.WRONG, {"published": 1152, "toy": 1088 * 2}),
    "movement_times_16000": (
        Verdict.WRONG,
        {"k_192": 40960 / 576, "k_128": 32768 / 576, "toy": 8192 / 1088},
    ),
    "movement_latent_1024": (Verdict.WRONG, {"published": 512}),
    "movement_mqa_500": (Verdict.WRONG, {"head_128": 1152 / 512}),
    "movement_gqa_2000": (Verdict.WRONG, {"gqa_8": 1152 / 4096}),
    "movement_rotary_32": (Verdict.WRONG, {"published": 64}),
    "movement_rotary_128": (Verdict.WRONG, {"published": 64}),
    "movement_int8_half": (Verdict.CONDITIONAL, {"elements": 50, "scaled": 100 * 584 / 1152}),
    "movement_a100_flops": (Verdict.CONDITIONAL, {"fp32": 19.5, "bf16": 312}),
    "movement_shared_2tb": (Verdict.WRONG, {"shared": 108 * 128 * 1.41e-3}),
    "movement_ring_fits": (
        Verdict.CONDITIONAL,
        # 64 KiB a layer fit into 164; 32 layers do not
        {"one_layer": 164, "all_layers": 32 * 64},
    ),
    "movement_latency_32": (Verdict.WRONG, {"always": 100 / 3}),
    "movement_batch_230": (
        Verdict.CONDITIONAL,
        {"one_after_another": 1.8 * 128, "one_step": 1.8},
    ),
    "movement_times_14": (Verdict.RIGHT, {"always": 14}),
    "movement_saved_16": (Verdict.RIGHT, {"always": 16}),
    "striping_times_43": (
        Verdict.CONDITIONAL,
        {"k_nope_twice": 2 * 96 * 128 / 576, "k_192": 96 * 320 / 576},
    ),
    "striping_times_14": (
        Verdict.CONDITIONAL,
        {"k_nope_twice": 2 * 32 * 128 / 576, "k_192": 32 * 320 / 576},
    ),
    "striping_row_kb": (Verdict.CONDITIONAL, {"kib": 1.125, "kb": 1.152}),
    "striping_million_gb": (
        Verdict.CONDITIONAL,
        {"decimal": 1152 * 24 / 1e3, "binary": 1152 * 24 * 2**20 / 1e9},
    ),
    "striping_stripe_gb": (
        Verdict.WRONG,
        {"decimal": 1152 * 3 / 1e3, "binary": 1152 * 3 * 2**20 / 1e9},
    ),
    "striping_saved_gb": (Verdict.RIGHT, {"decimal": 1152 * 21 / 1e3}),
    "striping_states_mb": (Verdict.WRONG, {"per_request": K3_STATES / 1e6}),
    "striping_query_width": (Verdict.CONDITIONAL, {"up_projection": 192, "absorbed": 576}),
    "striping_gather_payload": (Verdict.RIGHT, {"off": 64 * 96 * 576 * 2 / 1e6}),
    "striping_gather_sent": (Verdict.CONDITIONAL, {"off": K3_GATHER / 1e6, "on": 0}),
    "striping_partial_width": (Verdict.CONDITIONAL, {"fi_a2a": 516, "a2a": 514}),
    "striping_partial_sent": (
        Verdict.RIGHT,
        {"fi_a2a": K3_PARTIALS / 1e6, "a2a": 64 * 96 * 514 * 2 * 7 / 8 / 1e6},
    ),
    "striping_reduce_sent": (
        Verdict.CONDITIONAL,
        # NVLS: each rank sends its tensor up once, and the switch's echo of its share
        {"ring": K3_REDUCE / 1e6, "nvls": 64 * 7168 * 2 * (1 + 1 / 8) / 1e6},
    ),
    "striping_step_mb": (
        Verdict.CONDITIONAL,
        {
            "fi_a2a": 24 * (K3_GATHER + K3_PARTIALS + K3_REDUCE) / 1e6,
            "replicated": 24 * (K3_PARTIALS + K3_REDUCE) / 1e6,
            "vllm": 24
            * (K3_GATHER + 8 * 64 * 96 * 4 * 7 / 8 + 64 * 96 * 512 * 2 * 7 / 8 + K3_REDUCE)
            / 1e6,
            "whole_step": K3_WHOLE_STEP / 1e6,
        },
    ),
    "striping_all_ranks_gb": (
        Verdict.WRONG,
        {"fi_a2a": 8 * 24 * (K3_GATHER + K3_PARTIALS + K3_REDUCE) / 1e9},
    ),
    "striping_context_free": (Verdict.RIGHT, {"always": 1}),
    "popular_gqa_formula": (Verdict.WRONG, {"latent": 1152}),
    "popular_tp_cuts_mla": (Verdict.CONDITIONAL, {"tp_8": 1, "tp_8_dcp_8": 1 / 8}),
    "popular_tp_cuts_gqa": (Verdict.WRONG, {"kv_heads_8": 1 / 8}),
    "popular_experts_grow": (Verdict.WRONG, {"half_experts": 1}),
    "popular_mla_below_mqa": (Verdict.WRONG, {"head_128": 2.25}),
    "popular_or_43": (
        Verdict.CONDITIONAL,
        {"deepseek_v3": 40960 / 576, "kimi_k3": 30720 / 576, "k_nope_twice": 24576 / 576},
    ),
    "popular_million": (Verdict.CONDITIONAL, {"decimal": 10**6, "binary": 2**20}),
}
"""The verdict and the right values of every claim with a number, worked out without the package."""


def test_every_claim_with_a_number_is_worked_out_by_hand_here() -> None:
    assert {name(claim) for claim in CLAIMS if claim.judged is None} == set(BY_HAND)


@pytest.mark.parametrize(
    "claim", [claim for claim in CLAIMS if claim.judged is None], ids=lambda claim: name(claim)
)
def test_the_right_values_and_the_verdict_are_those_of_plain_arithmetic(claim: Claim) -> None:
    verdict, values = BY_HAND[name(claim)]
    found = {right.case: float(right.item.value) for right in claim.rights()}
    assert found == pytest.approx(values, rel=1e-9)
    assert claim.verdict is verdict


def test_no_two_claims_share_a_name_and_all_sources_and_verdicts_are_there() -> None:
    assert len({name(claim) for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.verdict for claim in CLAIMS} == set(Verdict)
    assert {claim.source for claim in CLAIMS} == set(Source)


def test_the_page_can_ask_for_every_verdict_and_source() -> None:
    assert ("all", *(verdict.value for verdict in Verdict)) == VERDICTS
    assert ("all", *(source.value for source in Source)) == SOURCES


def test_a_judged_claim_needs_no_number_and_the_others_need_one() -> None:
    for claim in CLAIMS:
        assert (claim.judged is None) == (claim.claimed is not None and bool(claim.rights()))


def test_the_command_prints_claims_with_their_right_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["claims", "--json", "--source", "movement", "--verdict", "wrong"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in found} == {"wrong"}
    toy = next(row for row in found if row["id"] == "movement_mha_token")
    assert toy["right"] == [{"condition": "always", "value": 16384.0, "unit": "B/token",
                             "holds": False}]  # fmt: skip
    assert main(["claims", "--source", "popular"]) == 0
    assert "popular_million" in capsys.readouterr().out
