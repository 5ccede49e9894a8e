"""A hybrid MoE model decoded over simulated ranks: its result, and its bytes against the table."""

from __future__ import annotations

import numpy as np
import pytest

from calc.layers import Attention, DenseFfn, LatentAttention, MoeFfn
from calc.model import Layer
from calc.reference import gqa, mla, moe, step
from calc.reference.ranks import Array, Ranks
from calc.traffic.experts import ROWS
from tests.calc.models import model, report

HIDDEN, HEADS, VOCABULARY, EXPERTS, TOP_K = 48, 16, 64, 16, 3
STAGES = {  # of the simulation: of the table
    mla.QUERY_ALL_GATHER: "gather_query",
    mla.LSE_ALL_GATHER: "gather_lse",
    mla.OUTPUT_REDUCE_SCATTER: "reduce_partials",
    mla.OUTPUT_ALL_TO_ALL: "exchange_partials",
    gqa.OUTPUT_ALL_REDUCE: "reduce_partials",
}


def latent_weights() -> mla.Weights:
    return mla.random_weights(mla.Shape(HIDDEN, HEADS, 20, 16, 12, 6, 10))


def small_model(seed: int = 0) -> step.Model:
    rng = np.random.default_rng(seed)
    dense = step.Dense(
        rng.normal(scale=0.1, size=(HIDDEN, 32)), rng.normal(scale=0.1, size=(32, HIDDEN))
    )
    experts = moe.random_weights(HIDDEN, 16, EXPERTS, TOP_K)
    return step.Model(
        rng.normal(size=(VOCABULARY, HIDDEN)),
        [
            (latent_weights(), dense),
            (gqa.random_weights(HIDDEN, HEADS, 1, 8, 6), experts),
            (latent_weights(), experts),
        ],
        rng.normal(scale=0.1, size=(HIDDEN, VOCABULARY)),
    )


def same_model_spec():
    attention = Attention(heads=HEADS, kv_heads=1, k_dim=8, v_dim=6)
    latent = LatentAttention(
        heads=HEADS, kv_lora_rank=16, rope_dim=6, nope_dim=12, v_dim=10, q_lora_rank=20
    )
    dense = DenseFfn(intermediate_size=32, gated=False)
    experts = MoeFfn(experts=EXPERTS, top_k=TOP_K, intermediate_size=16)
    return model(
        Layer(mixers=(latent,), ffns=(dense,)),
        Layer(mixers=(attention,), ffns=(experts,)),
        Layer(mixers=(latent,), ffns=(experts,)),
        hidden_size=HIDDEN,
        vocab_size=VOCABULARY,
    )


AG_RS = "allgather_reducescatter"
LL, HT = "deepep_low_latency", "deepep_high_throughput"
LAYOUTS = [  # tp, dp, dcp, DCP backend, experts spread, way
    (1, 1, 1, "ag_rs", False, "sum"),
    (4, 1, 1, "ag_rs", False, "sum"),
    (4, 1, 2, "ag_rs", True, "sum"),
    (8, 1, 8, "a2a", False, "sum"),
    (1, 4, 1, "ag_rs", True, AG_RS),
    (2, 2, 2, "a2a", False, AG_RS),
    (1, 4, 1, "ag_rs", False, AG_RS),
    (2, 4, 2, "ag_rs", True, AG_RS),
    (4, 2, 4, "a2a", True, AG_RS),
    (1, 4, 1, "ag_rs", True, LL),
    (2, 2, 2, "ag_rs", True, LL),
    (1, 8, 1, "ag_rs", True, HT),
    (4, 2, 2, "a2a", True, HT),
]


def decoded(layout: tuple, batch: int = 4) -> tuple[list[Array], list[Array], Ranks]:
    tp, dp, dcp, backend, spread, way = layout
    small, rng = small_model(), np.random.default_rng(7)
    tokens = [rng.integers(0, VOCABULARY, batch) for _ in range(dp)]
    pasts = [
        [[rng.normal(size=(length, HIDDEN)) for length in (5, 0, 11, 2)] for _ in small.layers]
        for _ in range(dp)
    ]
    groups = step.Groups(tp, dp, dcp, backend, spread, way)
    found, ranks = step.decode(small, tokens, pasts, groups)
    wanted = [step.unsharded(small, of, past) for of, past in zip(tokens, pasts, strict=True)]
    return found, [wanted[rank // tp] for rank in range(tp * dp)], ranks


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_ends_with_the_logits_of_the_unsharded_model(layout: tuple) -> None:
    found, wanted, _ = decoded(layout)
    for got, expected in zip(found, wanted, strict=True):
        assert np.abs(got - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("layout", [row for row in LAYOUTS if row[-1] in ("sum", AG_RS)])
def test_the_bytes_of_a_step_are_those_of_the_table(layout: tuple) -> None:
    tp, dp, dcp, backend, spread, _ = layout
    _, _, ranks = decoded(layout)
    counted: dict[str, int] = {}
    for name, by_rank in ranks.ledger.sent.items():
        name = STAGES.get(name, name)
        counted[name] = counted.get(name, 0) + sum(by_rank)
        assert sum(by_rank) == sum(ranks.ledger.received.get(name, by_rank))
    found = report(
        same_model_spec(),
        tp=tp,
        dp=dp,
        dcp=dcp,
        batch=4,
        dcp_backend=backend,
        ep="on" if spread and tp * dp > 1 else "off",
    )
    said: dict[str, float] = {}
    for row in found.step.stages:
        if row.per_step is not None:
            said[row.name] = said.get(row.name, 0) + row.per_step.value * tp * dp
    assert counted == said
    assert sum(counted.values()) == found.step.all_ranks.value


@pytest.mark.parametrize(("tp", "kv_heads", "dcp"), [(4, 2, 2), (8, 1, 8), (8, 4, 2), (4, 1, 2)])
@pytest.mark.parametrize("backend", ["ag_rs", "a2a", "fi_a2a"])
@pytest.mark.parametrize("heads_first", [False, True])
def test_grouped_attention_striped_over_ranks_is_plain_attention(
    tp: int, kv_heads: int, dcp: int, backend: mla.Backend, heads_first: bool
) -> None:
    weights = gqa.random_weights(HIDDEN, HEADS, kv_heads, 8, 6)
    rng = np.random.default_rng(1)
    contexts = [rng.normal(size=(length, HIDDEN)) for length in (9, 1, 30)]
    ranks = Ranks(tp)
    caches = gqa.striped_caches(weights, contexts, tp, dcp, heads_first=heads_first)
    hidden = [np.stack([context[-1] for context in contexts])] * tp
    addends = gqa.attend(
        ranks, weights, caches, hidden, tp=tp, dcp=dcp, backend=backend, heads_first=heads_first
    )
    wanted = gqa.unsharded_attention(weights, contexts)
    assert np.abs(sum(addends) - wanted).max() < 1e-10 * np.abs(wanted).max()
    if heads_first or backend != "fi_a2a":
        engine = "sglang" if heads_first else "vllm"
        spec = model(
            Layer(mixers=(Attention(heads=HEADS, kv_heads=kv_heads, k_dim=8, v_dim=6),)),
            hidden_size=HIDDEN,
        )
        table = report(spec, tp=tp, dcp=dcp, batch=3, engine=engine, dcp_backend=backend)
        counted = {STAGES[name]: sum(sent) for name, sent in ranks.ledger.sent.items()}
        said = {
            row.name: row.per_step.value * tp
            for row in table.step.stages
            if row.per_step is not None and row.group == "dcp"
        }
        # the simulation's partial outputs are bf16 throughout, as K/V attention's are
        assert counted == said


# --- Messages to experts --------------------------------------------------------------------------


def uniform_routing(
    rng: np.random.Generator, tokens: int, experts: int, top_k: int, groups: int, chosen: int
) -> tuple[moe.Ids, Array]:
    """Groups and then experts in them, all equally likely."""
    ids = []
    for _ in range(tokens):
        each = experts // groups
        of = rng.choice(groups, chosen, replace=False)
        pool = np.concatenate([np.arange(group * each, (group + 1) * each) for group in of])
        ids.append(rng.choice(pool, top_k, replace=False))
    return np.array(ids), np.full((tokens, top_k), 1 / top_k)


ROUTINGS = [  # ranks, experts, top_k, groups, chosen groups, ranks of a node
    (8, 16, 3, 1, 1, 0),
    (8, 16, 3, 1, 1, 4),
    (8, 32, 4, 8, 4, 0),
    (8, 32, 4, 4, 2, 4),
    (4, 32, 4, 8, 3, 2),
]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("way", [LL, HT])
def test_messages_average_to_the_expectation_and_each_is_counted(routing: tuple, way: str) -> None:
    size, experts, top_k, groups, chosen, node = routing
    rng, rounds, tokens = np.random.default_rng(3), 40, 16
    weights = moe.random_weights(8, 4, experts, top_k, groups=(groups, chosen))
    spec = model(
        Layer(
            mixers=(Attention(heads=8, kv_heads=8, k_dim=8, v_dim=8),),
            ffns=(
                MoeFfn(
                    experts=experts,
                    top_k=top_k,
                    intermediate_size=4,
                    groups=groups,
                    top_k_groups=chosen,
                ),
            ),
        ),
        hidden_size=2048,  # a width the kernels have; the simulation's rows stand for it
    )
    table = report(
        spec, dp=size, ep="on", batch=tokens, moe_backend=way, gpus_per_node=node or size
    )
    said = {row.name: row.sent.value for row in table.step.stages if row.kind == "moe" and row.sent}
    row = moe.Row(2, 16 if way == LL else 0)
    sums = {name: np.zeros(rounds) for name in said}
    for index in range(rounds):
        ranks = Ranks(size)
        rows = [rng.normal(size=(tokens, 8)) for _ in range(size)]
        routed = [uniform_routing(rng, tokens, experts, top_k, groups, chosen) for _ in rows]
        if way == LL:
            moe.send_to_experts(ranks, weights, rows, row=row, routed=routed)
            remote = sum(
                int(np.sum(ids // (experts // size) != rank))
                for rank, (ids, _) in enumerate(routed)
            )
            assert sum(ranks.ledger.sent["dispatch"]) == remote * (8 * 2 + 16)
            assert sum(ranks.ledger.sent["combine"]) == remote * 8 * 2
        else:
            moe.send_to_ranks(ranks, weights, rows, row=row, routed=routed, ranks_per_node=node)
            reached = [
                [sorted({int(e) // (experts // size) for e in of}) for of in ids]
                for ids, _ in routed
            ]
            if node == 0:
                remote = sum(
                    len(set(of) - {rank}) for rank, rows_of in enumerate(reached) for of in rows_of
                )
            else:
                remote = sum(
                    len({dst // node for dst in of} - {rank // node})
                    for rank, rows_of in enumerate(reached)
                    for of in rows_of
                )
            assert sum(ranks.ledger.sent["dispatch"]) == remote * 8 * 2
        for name in said:
            beside = 16 if way == LL and name == "dispatch" else 0
            messages = sum(ranks.ledger.sent[name]) / (8 * 2 + beside)
            sums[name][index] = messages * (2048 * 2 + beside) / size
    for name, samples in sums.items():
        spread = samples.std(ddof=1) / rounds**0.5
        assert abs(samples.mean() - said[name]) < 4.5 * spread, name


def test_an_fp8_row_goes_with_its_scales() -> None:
    ranks, weights = Ranks(2), moe.random_weights(256, 4, 4, 2)
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(3, 256)) for _ in range(2)]
    moe.gather_and_reduce(ranks, weights, rows, row=moe.Row(1, 8))
    assert ranks.ledger.sent["dispatch"] == [3 * (ROWS["fp8"](256) + 8 * 2)] * 2
