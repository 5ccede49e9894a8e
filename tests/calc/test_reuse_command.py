"""``python -m calc reuse``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calc.__main__ import main
from calc.link import encode, query_string
from calc.presets import preset_ids
from calc.reuse import Rule, usable
from calc.reuse_groups import reuse_groups
from calc.scenario import Scenario


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["reuse", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_usable_prefix_of_kimi_k3_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    k3 = ["--preset", "kimi-k3", "--tp", "8", "--prefix", "100000"]
    found = answer(capsys, *k3, "--missing", "state=129")["reuse"]
    assert (found["alignment_tokens"], found["usable_tokens"]) == (768, 98_304 + 768)
    assert (found["reason"], found["binding_group"]) == ("snapshot", "state")
    striped = answer(capsys, *k3, "--dcp", "8")["reuse"]
    assert (striped["alignment_tokens"], striped["usable_tokens"]) == (6144, 98_304)


@pytest.mark.parametrize("rule", ["ideal", "vllm", "sglang", "lmcache"])
def test_every_rule_answers_for_every_kind_of_model(
    capsys: pytest.CaptureFixture[str], rule: str
) -> None:
    for model in ("deepseek-v4-flash", "llama-4-scout", "falcon-mamba-7b"):
        found = answer(capsys, "--preset", model, "--rule", rule, "--prefix", "20000")
        assert 19_000 < found["reuse"]["usable_tokens"] <= 20_000
        assert found["storage"]["objects"]
        assert len(found["identity"]["digest"]) == 64


@pytest.mark.parametrize("rule", Rule)
def test_every_preset_has_groups(rule: Rule) -> None:
    for preset in preset_ids():
        groups = reuse_groups(Scenario(preset), rule)
        assert usable(groups, 9_000, {}, rule).tokens > 3_000


def test_two_scenarios_are_compared_and_the_move_between_them_is_weighed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = query_string(encode(Scenario("deepseek-v3", tp=4, dcp=4, kv_dtype="fp8")))
    found = answer(capsys, "--preset", "deepseek-v3", "--tp", "8", "--other", f"?{link}")["other"]
    assert not found["compatible"]
    assert found["first_difference"] == "kv_dtype"
    assert found["transfer"]["moved_bytes"] == 70_272 * 8192
    other = query_string(encode(Scenario("kimi-k3", tp=8)))
    different = answer(capsys, "--preset", "deepseek-v3", "--other", other)["other"]
    assert different["transfer"] is None
    assert different["first_difference"] == "model"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--missing", "state"], "missing"),
        (["--missing", "growing=99999"], "has no chunk 99999"),
        (["--missing", "growing=1,1"], "more than once"),
        (["--missing", "growing=1", "--missing", "growing=2"], "more than once"),
        (["--missing", "window=1"], "no group"),
        (["--prefix", "0"], "prefix"),
        (["--prefix", "many"], "prefix"),
        (["--new-tokens", "-1"], "new_tokens"),
        (
            [
                "--preset",
                "kimi-k3",
                "--engine",
                "sglang",
                "--interval",
                "100",
                "--block-size",
                "64",
            ],
            "interval",
        ),
        (["--lora-version", "2"], "lora"),
    ],
)
def test_what_cannot_be_ends_with_status_2_and_a_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["reuse", "--preset", "deepseek-v3", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_window_larger_than_the_prefix_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse", "--preset", "gemma-3-27b", "--prefix", "512"]) == 2
    assert "window of 1024" in capsys.readouterr().err


def test_snapshots_and_steady_writes_are_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Kimi K3 at tp = 8 keeps 56,171,520 B of states a rank: 130 snapshots in 100,000 tokens."""
    k3 = ["--preset", "kimi-k3", "--tp", "8", "--prefix", "100000", "--requests", "3"]
    found = answer(capsys, *k3, "--written-tokens", "1000", "--kept-snapshots", "2")["storage"]
    snapshots = found["snapshots"]
    assert snapshots["unit_tokens"] == 768
    assert snapshots["densest"]["storage_bytes"] == 130 * 56_171_520
    assert snapshots["best"]["cost_us"] <= snapshots["densest"]["cost_us"]
    # 24 latent layers of 1,152 B a token and rank, and two snapshots a request
    assert found["write_bytes_per_second_per_rank"] == 3 * (1000 * 27_648 + 2 * 56_171_520)
    assert answer(capsys, "--preset", "deepseek-v3")["storage"]["snapshots"] is None


def test_ranges_may_have_any_dash_and_a_text_too_long_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    llama = ["--preset", "llama-3.1-8b", "--prefix", "8192"]
    found = answer(capsys, *llama, "--missing", "growing=100–103")
    assert found["reuse"]["usable_tokens"] == 1_600
    many = ",".join(str(chunk) for chunk in range(100, 300, 2))
    assert main(["reuse", *llama, "--missing", f"growing={many}"]) == 2
    assert capsys.readouterr().err.startswith("missing: 407 characters; at most 400")


def test_a_link_asks_what_its_sender_asked(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"reuse_prefix": 100_000, "reuse_missing": "state=129", "reuse_nvme_rate": 14.0}
    link = query_string(encode(Scenario("kimi-k3", tp=8), asked=asked))
    found = answer(capsys, "--link", link)
    assert found["reuse"]["usable_tokens"] == 99_072
    assert found["storage"]["tiers"][2]["bytes_per_second"] == 14e9
    assert answer(capsys, "--link", link, "--missing", "state=128")["reuse"]["usable_tokens"] == (
        99_840
    )


def test_an_option_out_of_bounds_is_named_as_it_was_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["reuse", "--preset", "deepseek-v3", "--nvme-rate", "0"]) == 2
    assert capsys.readouterr().err.startswith("nvme_rate: 0.0 is out of range")


def test_a_prefix_below_the_hit_unit_is_a_hit_of_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["--prefix", "500"], ["--dcp", "8", "--kv-dtype", "fp8"]):
        found = answer(capsys, "--preset", "kimi-k3", "--tp", "8", *arguments)
        assert found["reuse"]["usable_tokens"] == 0
        assert found["storage"]["snapshots"] is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("deepseek-v3 --decode-tp 3", "decode_tp: 3 does not divide"),
        ("deepseek-v3 --tp 8 --decode-dcp 3", "decode_dcp: 3 does not divide"),
        ("deepseek-v3 --decode-pp 100", "decode_pp: 100 stages"),
        ("llama-3.1-8b --decode-kv-dtype nvfp4_ds_mla", "decode_kv_dtype: nvfp4_ds_mla"),
        ("deepseek-v3 --other-tp 3", "other_tp: 3 does not divide"),
        ("llama-3.1-8b --other-kv-dtype fp8_ds_mla", "other_kv_dtype: fp8_ds_mla"),
        ("deepseek-v3 --other v=1&model=nope", "other: model: there is no preset"),
        ("deepseek-v3 --other v=1&model=deepseek-v3&tp=3", "other: tp: 3 does not divide"),
        ("deepseek-v3 --tp 8 --there-part 7", "there_part: 7 is none of the parts"),
        ("deepseek-v3 --tp 8 --part 7", "part: 7 is none of the parts"),
        ("deepseek-v3 --there-lora-version 2", "there_lora_version: a version needs"),
        ("kimi-k3 --tp 8 --snapshot-interval 100", "snapshot_interval: 100 tokens"),
        ("kimi-k3 --tp 8 --hit-lengths 20000x1 --prefix 8192", "hit_lengths: 20000 is out"),
    ],
)
def test_a_fault_bears_the_name_of_the_option_that_was_typed(
    capsys: pytest.CaptureFixture[str], arguments: str, named: str
) -> None:
    assert main(["reuse", "--preset", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(named)


def test_a_gpu_without_a_network_card_leaves_only_the_transfer_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody knows an L4's network (presets/hardware/l4.yaml); a typed rate is taken instead."""
    l4 = ["--preset", "llama-3.1-8b", "--gpu", "l4"]
    found = answer(capsys, *l4)
    assert found["reuse"]["usable_tokens"] == 8_192
    refused = found["disaggregation"]["error"]
    assert (refused["code"], refused["field"]) == ("transfer_network", "network_rate")
    assert found["other"]["transfer"]["error"] == refused
    assert [tier["id"] for tier in found["storage"]["tiers"]] == ["hbm", "host", "nvme"]
    typed = answer(capsys, *l4, "--network-rate", "10")
    assert typed["disaggregation"]["us"] == pytest.approx(8192 * 131_072 / 10e9 * 1e6, abs=1e-3)
    wide = answer(capsys, *l4, "--tp", "16")
    assert wide["storage"]["tiers"]["error"]["code"] == "network_unknown"
    assert wide["storage"]["objects"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--prefix-caching", "off"], "prefix_caching"),
        (["--max-num-batched-tokens", "512"], "max_num_batched_tokens"),
    ],
)
def test_lmcache_refuses_states_that_vllm_saves_nowhere(
    capsys: pytest.CaptureFixture[str], arguments: list[str], field: str
) -> None:
    """LMCache 0.5.6 integration/vllm/kv_cache_group_edits.py validate_kv_cache_groups and
    lmcache_mp_connector.py: mode none, or a step below a state's block, ends its start."""
    k3 = ["--preset", "kimi-k3", "--tp", "8", *arguments]
    assert main(["reuse", *k3, "--rule", "lmcache"]) == 2
    assert capsys.readouterr().err.startswith(f"{field}: ")
    assert answer(capsys, *k3)["reuse"]["rule"] == "vllm"
    dense = ["--preset", "llama-3.1-8b", "--rule", "lmcache", *arguments]
    assert answer(capsys, *dense)["reuse"]["usable_tokens"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_without_prefix_caching_finds_nothing(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    off = ["--preset", "llama-3.1-8b", "--engine", engine, "--prefix-caching", "off"]
    found = answer(capsys, *off, "--prefix", "32768")["reuse"]
    assert (found["usable_tokens"], found["reason"]) == (0, "off")
    assert {group["reason"] for group in found["groups"]} == {"off"}
    # a store beside the engine is another matter
    assert answer(capsys, *off, "--rule", "lmcache", "--prefix", "32768")["reuse"]["usable_tokens"]


def test_lmcache_takes_multiples_of_the_engine_s_blocks_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """LMCache 0.5.6 integration/vllm/lmcache_mp_connector.py refuses others at its start."""
    k3 = ["--preset", "kimi-k3", "--tp", "8", "--rule", "lmcache", "--prefix", "32768"]
    assert answer(capsys, *k3)["reuse"]["usable_tokens"] == 32_768 // 768 * 768
    assert main(["reuse", *k3, "--chunk", "256"]) == 2
    assert "no multiple of 768" in capsys.readouterr().err


def test_lmcache_never_ends_a_hit_one_token_behind_a_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A state has taken in its last token and cannot step back to have it computed again."""
    whole = ["--rule", "lmcache", "--prefix", "768", "--new-tokens", "0"]
    assert answer(capsys, "--preset", "kimi-k3", "--tp", "8", *whole)["reuse"]["usable_tokens"] == 0
    assert answer(capsys, "--preset", "llama-3.1-8b", *whole)["reuse"]["usable_tokens"] == 767


def test_lmcache_keeps_attention_in_chunks_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """LMCache 0.5.6 integration/vllm/kv_cache_groups.py: only windows and states are special."""
    llama = ["--preset", "llama-4-scout", "--tp", "8", "--prefix", "32768"]
    found = answer(capsys, *llama, "--rule", "lmcache", "--missing", "growing=0")["reuse"]
    assert found["usable_tokens"] == 0
    assert [group["growth"] for group in found["groups"]] == ["growing"]


@pytest.mark.parametrize(
    ("engine", "model", "tokens"),
    [("sglang", "deepseek-v4-flash", 4864), ("sglang", "deepseek-v3.2", 4992),
     ("vllm", "deepseek-v3.2", 4992)],
)  # fmt: skip
def test_sparse_attention_has_larger_blocks(
    capsys: pytest.CaptureFixture[str], engine: str, model: str, tokens: int
) -> None:
    """5,000 tokens in pages of 256 (DeepSeek-V4), 64 (DSA), and in vLLM's blocks of 64 (DSA)."""
    found = answer(capsys, "--preset", model, "--engine", engine, "--tp", "8", "--prefix", "5000")
    assert found["reuse"]["usable_tokens"] == tokens


def test_a_chunk_that_cuts_a_compressed_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    v4 = ["reuse", "--preset", "deepseek-v4-flash", "--rule", "ideal", "--chunk", "10"]
    assert main([*v4, "--prefix", "5000"]) == 2
    assert "chunk: 10 tokens" in capsys.readouterr().err


def test_snapshots_follow_the_tracked_interval(capsys: pytest.CaptureFixture[str]) -> None:
    sglang = ["--preset", "kimi-k3", "--tp", "8", "--engine", "sglang", "--prefix", "32768"]
    found = answer(capsys, *sglang, "--interval", "1024")["storage"]["snapshots"]
    assert (found["unit_tokens"], found["densest"]["storage_bytes"]) == (1024, 32 * 56_171_520)
    link = query_string(encode(Scenario("kimi-k3", tp=8, engine="sglang")))
    both = answer(capsys, *sglang, "--interval", "1024", "--other", link)
    assert both["identity"]["fields"]["block_size"] == "mla 1, kda 1024"
    assert both["other"]["first_difference"] == "block_size"


def test_instances_that_differ_in_layout_or_interleave_do_not_serve_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = ["--preset", "kimi-k3", "--tp", "8", "--dcp", "8"]
    for arguments, field in (
        (["--layout", "NHD", "--there-layout", "HND"], "layout"),
        (["--there-interleave", "2"], "interleave"),
        (["--there-part", "3"], "part"),
    ):
        found = answer(capsys, *base, *arguments)["other"]
        assert (found["compatible"], found["first_difference"]) == (False, field)


def test_the_busiest_stage_sets_what_a_rank_sends(capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 3.1 8B in three stages: 11 of 32 layers of 4,096 B a token, 8,192 tokens."""
    found = answer(capsys, "--preset", "llama-3.1-8b", "--pp", "3", "--decode-pp", "1")
    assert found["disaggregation"]["sent_bytes_per_rank"] == 11 * 4096 * 8192
