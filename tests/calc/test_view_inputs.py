"""Inputs of views: a default never changes once it is published, names belong to their view."""

from calc.view_inputs import EVERY, VIEW_INPUTS, VIEWS

FROZEN = {
    "capacity_part": "formula",
    "traffic_part": "bytes",
    "plan_part": "layouts",
    "plan_gpus": 8,
    "plan_objective": "concurrency",
    "plan_concurrency": None,
    "plan_engines": "this",
    "plan_backends": "this",
    "plan_kv_dtypes": "this",
    "plan_replications": "this",
    "plan_max_step_ms": 0.0,
    "plan_max_sent_mb": 0.0,
    "plan_top": 20,
    "plan_output": "request_bytes",
    "plan_input": "context",
    "plan_values": "1024:1048576:x2",
    "plan_input2": "none",
    "plan_values2": "1,2,4,8",
    "plan_pins": "",
    "plan_shown": "all",
    "learn_part": "derive",
    "learn_verdict": "all",
    "learn_source": "all",
    "learn_quiz": 1,
    "learn_topic": "all",
    "learn_number": 1,
    "learn_tokens": 96,
    "learn_heads": 8,
    "learn_ranks": 4,
    "learn_seed": 1,
    "reuse_part": "hit",
    "reuse_rule": "engine",
    "reuse_prefix": None,
    "reuse_new_tokens": 1,
    "reuse_chunk": None,
    "reuse_interval": None,  # was 256, which is what an empty one stands for wherever 256 can be
    "reuse_missing": "",
    "reuse_host_gib": 128.0,
    "reuse_host_rate": 55.0,
    "reuse_nvme_gb": 1920.0,
    "reuse_nvme_rate": 7.0,
    "reuse_network_gb": 100000.0,
    "reuse_network_rate": 0.0,
    "reuse_snapshot_interval": None,
    "reuse_hits": 4,
    "reuse_prefill_rate": 20000,
    "reuse_hit_lengths": "any",
    "reuse_requests": 1,
    "reuse_written_tokens": 4096,
    "reuse_kept_snapshots": 1,
    "reuse_uses": 10,
    "reuse_decode_tp": None,
    "reuse_decode_dcp": None,
    "reuse_decode_pp": None,
    "reuse_decode_kv_dtype": "same",
    "reuse_other_kv_dtype": "same",
    "reuse_other_engine": "same",
    "reuse_other_tp": None,
    "reuse_other_dcp": None,
    "reuse_here_rope": "",
    "reuse_here_lora": "",
    "reuse_here_lora_version": "",
    "reuse_here_media": "",
    "reuse_here_draft": "",
    "reuse_here_salt": "",
    "reuse_here_layout": "",
    "reuse_there_rope": "",
    "reuse_there_lora": "",
    "reuse_there_lora_version": "",
    "reuse_there_media": "",
    "reuse_there_draft": "",
    "reuse_there_salt": "",
    "reuse_there_layout": "",
    "reuse_here_interleave": 1,
    "reuse_here_part": 0,
    "reuse_here_stage": 0,
    "reuse_there_interleave": 1,
    "reuse_there_part": 0,
    "reuse_there_stage": 0,
    "reuse_lookahead": "on",
}
"""The default of each input when it was introduced; never change one, add below."""


def test_no_default_ever_changes() -> None:
    assert {name: field.default for name, field in EVERY.items()} == FROZEN


def test_every_input_is_named_after_its_view() -> None:
    assert set(VIEW_INPUTS) <= set(VIEWS)
    for view, inputs in VIEW_INPUTS.items():
        assert all(field.name.startswith(f"{view}_") for field in inputs)


def test_every_default_can_be_read_back() -> None:
    for field in EVERY.values():
        assert field.check(field.default) == field.default
