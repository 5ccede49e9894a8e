"""Every option of a step changes what it should, and is refused where nobody has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calc.collectives import Collective, received, sent
from calc.engines import ENGINES
from calc.errors import CalcError
from calc.formats import latent_row_bytes
from calc.layers import Attention, DenseFfn, LatentAttention, MoeFfn
from calc.layout import Layout
from calc.model import Layer
from calc.placement import Placement
from calc.report import Report, evaluate, resolved
from calc.scenario import Scenario
from calc.traffic import Stage
from calc.units import MB, chance_untouched
from tests.calc.models import gqa, indexer, layers, mla, model, report

K3 = {"tp": 8, "dcp": 8, "batch": 64}


def rows(found: Report, *, prefill: bool = False) -> dict[tuple[str, str], Stage]:
    """The collectives of a step by name and kind (of the verifying forward)."""
    step = found.prefill if prefill else found.step
    assert step is not None
    return {(row.name, row.kind): row for row in step.stages if row.collective and not row.drafts}


def refused(of: str, code: str, **fields: Any) -> str:
    with pytest.raises(CalcError) as error:
        report(of, **fields)
    assert error.value.code == code
    return str(error.value)


# --- The numbers that must come out ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "backend", "megabytes"),
    [
        ("vllm", "ag_rs", 323),
        ("vllm", "a2a", 320),
        ("sglang", "a2a", 171),
        ("sglang", "fi_a2a", 172),
        ("sglang", "ag_rs", 456),
    ],
)
def test_latent_layers_of_kimi_k3_send_what_their_backend_sends(
    engine: str, backend: str, megabytes: int
) -> None:
    found = report("kimi-k3", **K3, engine=engine, dcp_backend=backend)
    mla_bytes = sum(
        row.per_step.value
        for row in found.step.stages
        if row.kind == "mla" and row.per_step is not None
    )
    assert round(mla_bytes / MB) == megabytes


def test_striped_indexer_keys_cost_a_merge_and_replicated_ones_nothing() -> None:
    found = report("deepseek-v3.2", **K3, kv_dtype="fp8")
    assert rows(found)["merge_top_k", "indexer"].sent.value == 7 * 64 * 2048 * 8  # type: ignore[union-attr]
    sglang = report("deepseek-v3.2", **K3, kv_dtype="fp8", engine="sglang")
    assert ("merge_top_k", "indexer") not in rows(sglang)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_by_both_algorithms() -> None:
    payload = latent_row_bytes.item("payload", kv_lora_rank=512, rope_dim=64, element_bytes=2)
    for algorithm in ("ring", "nvls"):
        for way in (sent, received):
            one, two, three = (
                way("k", kind, payload, 8, algorithm).value
                for kind in (
                    Collective.ALL_REDUCE,
                    Collective.REDUCE_SCATTER,
                    Collective.ALL_GATHER,
                )
            )
            assert one == two + three


# --- One option at a time -------------------------------------------------------------------------


def test_the_switch_reduces_what_is_sent_only_inside_a_node() -> None:
    ring, nvls = (report("kimi-k3", **K3, collective_algorithm=name) for name in ("ring", "nvls"))
    before, after = rows(ring)["o_proj", "mla"], rows(nvls)["o_proj", "mla"]
    payload = 64 * 7168 * 2
    assert before.sent.value == before.received.value == 2 * 7 * payload / 8  # type: ignore[union-attr]
    assert after.sent.value == after.received.value == 9 * payload / 8  # type: ignore[union-attr]
    gathered = rows(nvls)["gather_query", "mla"]
    assert gathered.sent.value * 8 == gathered.received.value == gathered.payload.value  # type: ignore[union-attr]
    apart = report("kimi-k3", **K3, collective_algorithm="nvls", gpus_per_node=4)
    assert apart.step.sent_per_rank.value == ring.step.sent_per_rank.value


def test_an_fp8_query_halves_what_is_gathered() -> None:
    fields = K3 | {"kv_dtype": "fp8"}
    wide, narrow = (report("kimi-k3", **fields, query_dtype=name) for name in ("bf16", "fp8"))
    key = "gather_query", "mla"
    assert rows(wide)[key].sent.value == 2 * rows(narrow)[key].sent.value  # type: ignore[union-attr]
    assert rows(narrow)[key].dtype == "fp8"


def test_an_fp8_query_needs_fp8_latent_attention() -> None:
    assert "kv_dtype fp8" in refused("kimi-k3", "query_dtype", query_dtype="fp8")
    assert "bf16" in refused("deepseek-v3.2", "query_dtype", query_dtype="fp8", kv_dtype="fp8")
    assert "MLA" in refused("llama-3.1-8b", "query_dtype", query_dtype="fp8", kv_dtype="fp8")


def test_sequence_parallelism_sends_the_same_in_two_halves() -> None:
    off, on = (report("llama-3.1-70b", tp=8, batch=64, sequence_parallel=v) for v in ("off", "on"))
    assert off.step.sent_per_rank.value == on.step.sent_per_rank.value
    assert rows(off)["o_proj", "attention"].collective is Collective.ALL_REDUCE
    assert rows(on)["o_proj", "attention"].collective is Collective.REDUCE_SCATTER
    assert rows(on)["o_proj_gather", "attention"].collective is Collective.ALL_GATHER
    uneven = report("llama-3.1-70b", tp=8, batch=1, sequence_parallel="on")
    assert rows(uneven)["o_proj", "attention"].shape == (8, 8192)  # padded to equal parts
    refused("llama-3.1-70b", "sequence_parallel", sequence_parallel="on", engine="sglang")


def test_speculation_verifies_more_tokens_and_drafts_with_one_layer_at_a_time() -> None:
    plain, drafting = (report("deepseek-v3", tp=8, batch=16, speculative_tokens=k) for k in (0, 3))
    key = "o_proj", "mla"
    assert rows(drafting)[key].sent.value == 4 * rows(plain)[key].sent.value  # type: ignore[union-attr]
    drafts = {row.name: row for row in drafting.step.stages if row.drafts and row.collective}
    assert drafts["o_proj"].shape == (16, 7168)
    assert drafts["o_proj"].calls == drafts["logits"].calls == drafts["embedding"].calls == 3
    assert not any(row.drafts for row in plain.step.stages)


def test_several_drafting_layers_take_turns() -> None:
    spec = model(layers(1, gqa(8, 8))).model_copy(
        update={"mtp_layers": (layers(1, gqa(8, 8)), layers(1, mla(8)))}
    )
    found = report(spec, tp=2, speculative_tokens=3)
    drafts = {
        row.kind: row.calls for row in found.step.stages if row.drafts and row.name == "o_proj"
    }
    assert drafts == {"attention": 2, "mla": 1}


def test_a_pipeline_tells_its_stages_what_was_sampled() -> None:
    found = report("deepseek-v3", tp=8, pp=2, batch=10)
    row = rows(found)["token_broadcast", "model"]
    assert (row.collective, row.payload.value) == (Collective.BROADCAST, 40)  # type: ignore[union-attr]
    assert ("token_broadcast", "model") not in rows(report("deepseek-v3", tp=8, batch=10))


def test_a_parallel_block_has_one_sum() -> None:
    block = Layer(mixers=(gqa(8, 8),), ffns=(DenseFfn(intermediate_size=64),), parallel_block=True)
    names = {name for name, _ in rows(report(model(block), tp=4))}
    assert "parallel_block" in names
    assert not names & {"o_proj", "ffn"}


@pytest.mark.parametrize("option", ["moe_backend", "dispatch_dtype", "ep", "pcp", "gpus_per_node"])
def test_an_option_of_experts_changes_the_step(option: str) -> None:
    base = {"tp": 1, "dp": 8, "batch": 32, "ep": "on"}
    changed: dict[str, Any] = {
        "moe_backend": "deepep_low_latency",
        "dispatch_dtype": "bf16",
        "ep": "off",
        "pcp": 2,
        "gpus_per_node": 4,
    }
    before = report("deepseek-v3", **base)
    after = report("deepseek-v3", **base | {option: changed[option]})
    assert [row for row in before.step.stages if row.collective] != [
        row for row in after.step.stages if row.collective
    ]


# --- Experts --------------------------------------------------------------------------------------


def test_inside_one_tp_group_experts_need_no_dispatch() -> None:
    off, on = (report("deepseek-v3", tp=8, batch=8, ep=ep) for ep in ("off", "on"))
    assert off.step.sent_per_rank.value == on.step.sent_per_rank.value
    assert set(rows(on)) == set(rows(off))


def test_every_message_of_deepep_low_latency_goes_to_one_expert() -> None:
    found = rows(report("deepseek-v3", dp=16, ep="on", batch=128, moe_backend="deepep_low_latency"))
    assert found["dispatch", "moe"].payload.value == 128 * 8 * (7168 + 56 * 4 + 16)  # type: ignore[union-attr]
    assert found["combine", "moe"].payload.value == 128 * 8 * 2 * 7168  # type: ignore[union-attr]


def test_narrower_experts_send_narrower_rows_padded_where_the_engine_pads() -> None:
    fields: dict[str, Any] = {"dp": 8, "ep": "on", "batch": 8}
    k3 = rows(report("kimi-k3", **fields))
    assert k3["combine", "moe"].shape == (64, 3584)
    padded = rows(report("kimi-k3", **fields, moe_backend="deepep_low_latency"))
    assert padded["combine", "moe"].shape == (8, 16, 4096)
    text = refused(
        "kimi-k3", "moe_backend_width", **fields, moe_backend="deepep_low_latency", engine="sglang"
    )
    assert "4096" in text
    assert "3584" in text


def test_a_copy_for_each_rank_is_less_than_one_for_each_expert() -> None:
    fields: dict[str, Any] = {"dp": 8, "ep": "on", "batch": 128, "dispatch_dtype": "fp8"}
    low = rows(report("deepseek-v3", **fields, moe_backend="deepep_low_latency"))
    high = rows(report("deepseek-v3", **fields, moe_backend="deepep_high_throughput"))
    assert high["dispatch", "moe"].sent.value < low["dispatch", "moe"].sent.value  # type: ignore[union-attr]
    # eight groups on eight ranks, four of them chosen: four ranks at most
    assert high["dispatch", "moe"].payload.value <= 128 * 4 * (7168 + 224)  # type: ignore[union-attr]


def test_between_nodes_a_token_crosses_once_for_each_node() -> None:
    found = rows(
        report("deepseek-v3", dp=32, ep="on", batch=64, moe_backend="deepep_high_throughput")
    )
    across, inside = found["dispatch", "moe"], found["dispatch_forward", "moe"]
    assert (across.group_size, across.crosses_nodes) == (4, True)
    assert (inside.group_size, inside.crosses_nodes) == (8, False)


def test_replicas_without_expert_parallelism_share_every_expert_by_width() -> None:
    found = rows(report("deepseek-v3", tp=2, dp=4, batch=8))
    assert (found["dispatch", "moe"].group, found["dispatch", "moe"].group_size) == ("dp", 4)
    assert found["ffn", "moe"].collective is Collective.ALL_REDUCE
    dense = report("llama-3.1-8b", tp=2, dp=4, batch=8)
    assert dense.step.sent_per_rank.value == (
        report("llama-3.1-8b", tp=2, batch=8).step.sent_per_rank.value
    )


def test_sglang_gathers_all_replicas_around_the_experts() -> None:
    found = rows(report("deepseek-v3", tp=2, dp=4, batch=8, engine="sglang"))
    gathered = found["attention_dp_gather", "moe"]
    assert (gathered.group, gathered.group_size, gathered.shape) == ("tp_dp", 8, (32, 7168))
    assert found["o_proj", "mla"].collective is not None


def test_expert_parallelism_takes_all_ranks_and_divides_the_experts() -> None:
    assert "on (16)" in refused("deepseek-v3", "ep_size", tp=8, dp=2, ep="8")
    assert "256 experts" in refused("deepseek-v3", "ep_experts", dp=3, ep="on")
    refused("llama-3.1-8b", "ep_nothing", tp=2, ep="on")
    assert evaluate(Scenario("llama-3.1-8b", ep="on")).scenario.layout.ep == 1
    for text in ("0", "08", "yes", "-1", "99999999", "on "):
        with pytest.raises(CalcError, match="ep: "):
            Scenario("deepseek-v3", ep=text)


def test_a_way_to_the_experts_is_refused_where_the_engine_lacks_it() -> None:
    text = refused("deepseek-v3", "moe_backend_unknown", dp=2, moe_backend="gather_scatter")
    assert "allgather_reducescatter" in text
    refused("deepseek-v3", "moe_backend_ep", dp=2, moe_backend="deepep_low_latency")


# --- Prefill, and both kinds of context parallelism -----------------------------------------------


def test_a_chunk_gathers_its_cached_prefix_over_dcp_and_no_query() -> None:
    fields: dict[str, Any] = {"tp": 8, "dcp": 8, "context": 20_000, "prefill_tokens": 4_000}
    found = rows(report("deepseek-v3", **fields), prefill=True)
    assert found["gather_prefix", "mla"].payload.value == 16_000 * 1152  # type: ignore[union-attr]
    assert ("gather_query", "mla") not in found
    assert found["o_proj", "mla"].shape == (4_000, 7168)
    assert found["logits", "model"].shape[0] == 1
    whole = fields | {"prefill_tokens": 20_000}
    assert ("gather_prefix", "mla") not in rows(report("deepseek-v3", **whole), prefill=True)


def test_sparse_attention_gathers_queries_in_a_chunk_too() -> None:
    fields: dict[str, Any] = {"tp": 8, "dcp": 8, "kv_dtype": "fp8", "prefill_tokens": 100}
    found = rows(report("deepseek-v3.2", **fields), prefill=True)
    assert found["gather_query", "mla"].shape == (100, 128, 576)


def test_striped_kv_attention_merges_a_chunk_only_with_a_prefix() -> None:
    spec = model(layers(1, gqa(8, 1)))
    fields: dict[str, Any] = {"tp": 8, "dcp": 8, "context": 512}
    some = report(spec, **fields, prefill_tokens=100)
    assert ("gather_query", "attention") in rows(some, prefill=True)
    none = report(spec, **fields, prefill_tokens=512)
    assert ("gather_query", "attention") not in rows(none, prefill=True)


def test_prefill_context_parallelism_divides_the_chunk_and_gathers_new_rows() -> None:
    fields: dict[str, Any] = {"tp": 4, "context": 8_000, "prefill_tokens": 8_000}
    found = rows(report("deepseek-v3", **fields, pcp=2), prefill=True)
    assert found["o_proj", "mla"].shape == (4_000, 7168)
    gathered = found["gather_new_rows", "mla"]
    assert (gathered.group, gathered.payload.value) == ("pcp", 8_000 * 1152)  # type: ignore[union-attr]
    assert evaluate(Scenario("deepseek-v3", tp=4, pcp=2)).scenario.layout.world_size == 8


def test_every_rank_of_a_pcp_group_caches_every_token() -> None:
    one, two = (report("deepseek-v3", tp=4, pcp=pcp).cache for pcp in (1, 2))
    assert two.stage.per_request.value == one.stage.per_request.value
    assert two.per_replica.value == 2 * one.per_replica.value


def test_prefill_context_parallelism_is_for_latent_attention_and_without_dcp() -> None:
    refused("llama-3.1-8b", "pcp_kind", pcp=2)
    refused("kimi-k3", "pcp_kind", pcp=2)
    assert "dcp" in refused("deepseek-v3", "pcp_dcp", tp=8, dcp=8, pcp=2)
    refused("deepseek-v3", "prefill_tokens", context=100, prefill_tokens=101)


# --- What was traded away -------------------------------------------------------------------------


def test_the_ways_not_taken_stand_beside_the_step() -> None:
    ways = {way.name: way for way in report("kimi-k3", **K3).step.alternatives}
    gathered = ways["gather_unabsorbed_query"]
    assert gathered.stage.payload.value == 64 * 96 * 192 * 2  # type: ignore[union-attr]
    assert gathered.weight_bytes.value == (96 - 12) * 128 * 512 * 2
    repeated = ways["replicate_query"]
    assert repeated.stage.sent is None
    assert repeated.weight_bytes.value == 84 * (192 * 1536 + 128 * 512) * 2
    down = ways["gather_down_projection"]
    assert down.stage.payload.value == 64 * (576 + 1536) * 2  # type: ignore[union-attr]
    assert down.flops.value == -2 * 64 * 7168 * (2112 - 264)
    assert not report("kimi-k3").step.alternatives


# --- Nodes and routing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "group", "engine", "crosses"),
    [
        ({"tp": 8}, "tp", "vllm", False),
        ({"tp": 16}, "tp", "vllm", True),
        ({"tp": 16, "dcp": 8}, "dcp", "vllm", False),
        ({"tp": 4, "dp": 2}, "dp", "vllm", False),
        ({"tp": 8, "dp": 2}, "ep", "vllm", True),
        ({"tp": 2, "pp": 4, "dp": 2}, "pp", "vllm", False),
        ({"tp": 2, "pp": 4, "dp": 2}, "dp", "vllm", True),
        ({"tp": 2, "pp": 4, "dp": 2}, "dp", "sglang", False),
        ({"tp": 2, "pp": 4, "dp": 2}, "pp", "sglang", True),
        ({"tp": 6, "dp": 2}, "tp", "vllm", True),
    ],
)
def test_a_group_crosses_nodes_where_its_ranks_do(
    sizes: dict[str, int], group: Any, engine: str, crosses: bool
) -> None:
    assert Placement(Layout(**sizes), ENGINES[engine], 8).crosses(group) is crosses  # type: ignore[arg-type]


def test_a_part_that_cuts_through_groups_is_averaged() -> None:
    # 12 experts in 3 groups of 4, one group chosen, 2 of its experts: two parts of 6
    by_hand = (
        (1 / 3) * 0  # group 0 lies wholly in part 0
        + (1 / 3) * 1  # group 2 lies wholly elsewhere
        + (1 / 3) * (1 / 6)  # group 1 is half in it: both from the other half
    )
    assert chance_untouched(2, 12, 2, 3, 1) == pytest.approx(by_hand)


def test_drafts_attend_alone_where_every_rank_keeps_their_whole_cache() -> None:
    """SGLang 0.5.23 keeps the draft pool whole on each DCP rank; vLLM stripes it."""
    for engine, exchanged in (("vllm", True), ("sglang", False)):
        found = report("deepseek-v3", engine=engine, tp=8, dcp=8, speculative_tokens=1)
        groups = {stage.group for stage in found.step.stages if stage.drafts and stage.collective}
        assert ("dcp" in groups) is exchanged


@pytest.mark.parametrize(
    ("preset", "tensors", "width"),
    # DeepSeek-V4 keeps hc_mult = 4 residual streams apart, others a hidden state and a residual
    [("deepseek-v4-flash", 4, 4096), ("deepseek-v4-pro", 4, 7168), ("deepseek-v3", 2, 7168)],
)
def test_every_residual_stream_passes_a_pipeline_boundary(
    preset: str, tensors: int, width: int
) -> None:
    stages = {stage.name: stage for stage in report(preset, tp=4, pp=2, batch=8).step.stages}
    send, gather = stages["pipeline_send"], stages["pipeline_gather"]
    assert send.sent is not None
    assert gather.payload is not None
    assert send.sent.value == tensors * 8 * width * 2 / 4
    assert gather.payload.value == tensors * 8 * width * 2
    assert gather.shape == (tensors, 8, width)


def test_one_rank_moves_nothing_whatever_is_chosen() -> None:
    spec = model(
        Layer(
            mixers=(mla(8, sparse=True), indexer()),
            ffns=(MoeFfn(experts=8, top_k=2, intermediate_size=8),),
        ),
        Layer(mixers=(Attention(heads=8, kv_heads=2, k_dim=8, v_dim=8),)),
        Layer(
            mixers=(LatentAttention(heads=8, kv_lora_rank=128, rope_dim=64, nope_dim=8, v_dim=8),)
        ),
    )
    found = report(
        spec,
        batch=7,
        ep="on",
        prefill_tokens=100,
        sequence_parallel="on",
        speculative_tokens=2,
        collective_algorithm="nvls",
        moe_backend="deepep_low_latency",
    )
    assert found.prefill is not None
    for step in (found.step, found.prefill):
        assert step.sent_per_rank.value == step.all_ranks.value == 0


@pytest.mark.parametrize(
    ("preset", "backend", "replicated"),
    [
        ("deepseek-v3", "auto", False),  # registered, but not sparse
        ("kimi-k2", "a2a", False),
        ("deepseek-v2-lite", "fi_a2a", False),  # not registered at all
        ("deepseek-v3.2", "auto", True),
        ("glm-5", "auto", True),
        ("glm-5", "ag_rs", False),
        ("kimi-k3", "auto", True),
        ("kimi-k3", "ag_rs", False),
    ],
)
def test_sglang_replicates_the_query_for_sparse_models_and_kimi_k3_only(
    preset: str, backend: str, replicated: bool
) -> None:
    """SGLang 0.5.23 arg_groups/model_overrides/deepseek_v2.py _dsa_dcp_overrides, kimi_k3.py."""
    tp = 8 if preset != "deepseek-v2-lite" else 4
    made = Scenario(preset, engine="sglang", tp=tp, dcp=4, dcp_backend=backend)
    assert resolved(made)[1] is replicated


def test_sglang_refuses_replication_with_ag_rs() -> None:
    """SGLang 0.5.23 arg_groups/parallel_hook.py: only a2a and fi_a2a can do without the gather."""
    wanted = Scenario(
        "deepseek-v3", engine="sglang", tp=8, dcp=8, dcp_backend="ag_rs", query_replication="on"
    )
    with pytest.raises(CalcError, match=r"query_replication: SGLang .* ag_rs"):
        resolved(wanted)


def test_deepseek_v3_in_sglang_gathers_its_queries() -> None:
    """At batch 64 over 8 ranks: 61 layers x 7/8 x 64 x 128 x 576 x 2 B beyond replication."""
    made = Scenario("deepseek-v3", engine="sglang", tp=8, dcp=8, batch=64)
    sent = {
        replicated: evaluate(replace(made, query_replication=replicated)).step.sent_per_rank.value
        for replicated in ("auto", "on")
    }
    assert sent["auto"] - sent["on"] == 61 * 7 * 64 * 16 * 576 * 2
