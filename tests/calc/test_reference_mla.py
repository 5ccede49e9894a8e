"""The simulated decode step computes attention, and its ledger counts what a ring would send."""

import ast
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from calc.reference import mla
from calc.reference.ranks import Array, Ledger, Ranks

BACKENDS: tuple[mla.Backend, ...] = ("a2a", "fi_a2a", "ag_rs")
LAYOUTS = [  # tp, dcp, heads, batch
    (1, 1, 4, 3),
    (2, 1, 4, 2),
    (2, 2, 2, 3),
    (4, 2, 8, 5),
    (4, 4, 12, 1),
    (6, 3, 6, 4),
    (8, 2, 16, 3),
    (8, 4, 8, 2),
    (8, 8, 24, 4),
]
STEPS = [
    (*layout, backend, replicated)
    for layout, backend, replicated in product(LAYOUTS, BACKENDS, (False, True))
]


def layer(heads: int, *, rope: bool = True) -> mla.Weights:
    """A small layer whose widths all differ, so that no two axes can be taken for each other."""
    shape = mla.Shape(
        hidden=48,
        heads=heads,
        q_latent=20,
        kv_latent=16,
        nope=12,
        rope_width=6,
        value=10,
        rope=rope,
    )
    return mla.random_weights(shape, seed=heads)


def ragged_contexts(batch: int, hidden: int = 48) -> list[Array]:
    """Contexts of 3, 1, 26, ... tokens: the short ones leave stripes empty for dcp >= 2."""
    rng = np.random.default_rng(batch)
    lengths = [3, 1, 26, 11, 7][:batch]
    return [rng.normal(size=(length, hidden)) * rng.uniform(0.3, 2.0) for length in lengths]


def worst_relative(found: Array, wanted: Array) -> float:
    """Largest deviation in units of the largest wanted value [-]."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def stage(ledger: Ledger, name: str) -> set[int]:
    """The distinct byte counts that ranks sent and received in a stage: one number, if even."""
    return {*ledger.sent.get(name, [0]), *ledger.received.get(name, [0])}


@pytest.mark.parametrize(("tp", "dcp", "heads", "batch", "backend", "replicated"), STEPS)
def test_every_rank_ends_with_the_unsharded_unabsorbed_attention(
    tp: int, dcp: int, heads: int, batch: int, backend: mla.Backend, replicated: bool
) -> None:
    weights, contexts = layer(heads), ragged_contexts(batch)
    result = mla.decode_step(
        weights, contexts, tp=tp, dcp=dcp, backend=backend, query_replication=replicated
    )
    wanted = mla.unsharded_attention(weights, contexts)
    assert len(result.outputs) == tp
    assert max(worst_relative(output, wanted) for output in result.outputs) < 1e-10
    assert all(np.array_equal(output, result.outputs[0]) for output in result.outputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_without_rotation_agrees_too_and_is_another_result(backend: mla.Backend) -> None:
    contexts = ragged_contexts(4)
    flat, turned = layer(8, rope=False), layer(8)
    wanted = mla.unsharded_attention(flat, contexts)
    result = mla.decode_step(flat, contexts, tp=4, dcp=4, backend=backend)
    assert worst_relative(result.outputs[0], wanted) < 1e-10
    assert worst_relative(mla.unsharded_attention(turned, contexts), wanted) > 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("tp", "dcp"), [(2, 2), (4, 2), (8, 8)])
def test_a_plain_mean_of_the_partial_outputs_is_wrong(
    tp: int, dcp: int, backend: mla.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def equal_shares(lses: Array) -> Array:
        return np.full_like(lses, 1 / len(lses))

    weights, contexts = layer(8), ragged_contexts(4)
    wanted = mla.unsharded_attention(weights, contexts)
    monkeypatch.setattr(mla, "merge_weights", equal_shares)
    result = mla.decode_step(weights, contexts, tp=tp, dcp=dcp, backend=backend)
    assert np.abs(result.outputs[0] - wanted).max(axis=1).min() > 1e-2 * np.abs(wanted).max()


def test_merge_shares_sum_to_one_and_ignore_empty_stripes() -> None:
    lses = np.array([[-np.inf, 2.0], [-np.inf, 0.0], [5.0, -300.0]])
    shares = mla.merge_weights(lses)
    assert np.allclose(shares.sum(axis=0), 1.0)
    assert shares[:, 0].tolist() == [0.0, 0.0, 1.0]


def test_an_empty_stripe_gives_zeros_and_an_lse_of_minus_infinity() -> None:
    weights = layer(4)
    queries = np.ones((1, 4, 22))
    output, lse = mla.partial_attention(weights.shape, queries, [np.zeros((0, 22))])
    assert not output.any()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize(("tp", "dcp"), [(1, 1), (4, 1), (4, 2), (6, 3), (8, 8)])
def test_each_group_stores_each_token_exactly_once_with_its_owner(tp: int, dcp: int) -> None:
    weights, contexts = layer(24), ragged_contexts(5)
    caches = mla.decode_step(weights, contexts, tp=tp, dcp=dcp).caches
    for request, context in enumerate(contexts):
        rows = mla.cache_rows(weights, context, np.arange(len(context), dtype=np.float64))
        for group in Ranks(tp).groups(dcp):
            rebuilt = np.full_like(rows, np.nan)
            stripes = [caches[rank][request] for rank in group]
            assert sum(map(len, stripes)) == len(context)
            for place, stripe in enumerate(stripes):
                rebuilt[place::dcp] = stripe
            assert np.allclose(rebuilt, rows, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("replicated", [False, True])
def test_one_rank_sends_nothing(backend: mla.Backend, replicated: bool) -> None:
    result = mla.decode_step(
        layer(4), ragged_contexts(3), tp=1, backend=backend, query_replication=replicated
    )
    assert result.ledger == Ledger(1)


@pytest.mark.parametrize(
    ("backend", "replicated", "stages"),
    [
        ("ag_rs", False, {"query_all_gather", "lse_all_gather", "output_reduce_scatter"}),
        ("ag_rs", True, {"lse_all_gather", "output_reduce_scatter"}),
        ("a2a", False, {"query_all_gather", "output_all_to_all"}),
        ("a2a", True, {"output_all_to_all"}),
        ("fi_a2a", False, {"query_all_gather", "output_all_to_all"}),
        ("fi_a2a", True, {"output_all_to_all"}),
    ],
)
def test_a_backend_runs_just_its_own_collectives(
    backend: mla.Backend, replicated: bool, stages: set[str]
) -> None:
    result = mla.decode_step(
        layer(8), ragged_contexts(2), tp=4, dcp=2, backend=backend, query_replication=replicated
    )
    assert set(result.ledger.sent) == stages | {"o_proj_all_reduce"}
    assert set(result.ledger.received) == set(result.ledger.sent)


@pytest.mark.parametrize("backend", BACKENDS)
def test_traffic_does_not_depend_on_the_context_length(backend: mla.Backend) -> None:
    weights = layer(8)
    short, long = [np.ones((1, 48))] * 2, [np.ones((40, 48)), np.ones((5, 48))]
    counted = [
        mla.decode_step(weights, contexts, tp=4, dcp=4, backend=backend).ledger
        for contexts in (short, long)
    ]
    assert counted[0] == counted[1]


def test_plain_tensor_parallelism_only_all_reduces() -> None:
    ledger = mla.decode_step(layer(4), ragged_contexts(2), tp=4, dcp=1).ledger
    assert set(ledger.sent) == {"o_proj_all_reduce"}


@pytest.mark.parametrize(
    ("backend", "wire", "output_bytes", "lse_bytes"),
    [
        # 8 ranks, 64 tokens, 96 heads, 7 of 8 parts leave; bytes of one head's row in brackets
        ("ag_rs", mla.WireBytes(), 7 * 8 * 96 * (512 * 2), 7 * 64 * 96 * 4),  # vLLM: bf16
        ("ag_rs", mla.WireBytes(output=4), 7 * 8 * 96 * (512 * 4), 7 * 64 * 96 * 4),  # SGLang: fp32
        ("a2a", mla.WireBytes(), 7 * 8 * 96 * (514 * 2), 0),
        ("fi_a2a", mla.WireBytes(), 7 * 8 * 96 * (516 * 2), 0),
    ],
)
def test_kimi_k3_at_tp_8_dcp_8_and_64_tokens_sends_the_engines_bytes(
    backend: mla.Backend, wire: mla.WireBytes, output_bytes: int, lse_bytes: int
) -> None:
    """96 heads, latent 512, rotated key 64; a token at a time, as bytes are linear in tokens."""
    ranks = Ranks(8)
    mla.group_queries(ranks, [np.zeros((1, 12, 576))] * 8, 8, wire)
    mla.exchange(ranks, [np.zeros((1, 96, 512))] * 8, [np.zeros((1, 96))] * 8, 8, backend, wire)
    last = ranks.ledger
    output = mla.OUTPUT_REDUCE_SCATTER if backend == "ag_rs" else mla.OUTPUT_ALL_TO_ALL
    assert {64 * n for n in stage(last, mla.QUERY_ALL_GATHER)} == {6_193_152}
    assert {64 * n for n in stage(last, output)} == {output_bytes}
    assert {64 * n for n in stage(last, mla.LSE_ALL_GATHER)} == {lse_bytes}


@pytest.mark.parametrize("wire", [mla.WireBytes(), mla.WireBytes(query=1, output=4, hidden=4)])
def test_wire_types_scale_only_their_own_stage(wire: mla.WireBytes) -> None:
    def ledger(chosen: mla.WireBytes) -> Ledger:
        return mla.decode_step(layer(8), ragged_contexts(3), tp=8, dcp=4, wire=chosen).ledger

    one, chosen = ledger(mla.WireBytes(1, 1, 1)), ledger(wire)
    for name, factor in (
        (mla.QUERY_ALL_GATHER, wire.query),
        (mla.OUTPUT_REDUCE_SCATTER, wire.output),
        (mla.O_PROJ_ALL_REDUCE, wire.hidden),
        (mla.LSE_ALL_GATHER, 1),
    ):
        assert chosen.sent[name] == [n * factor for n in one.sent[name]]


def integers(count: int, *dims: int) -> list[Array]:
    """Whole-number arrays, so that sums are exact in any order."""
    return list(np.random.default_rng(count).integers(-9, 9, (count, *dims)).astype(np.float64))


@pytest.mark.parametrize(("size", "group"), [(1, 1), (2, 2), (4, 2), (5, 5), (6, 3), (8, 8)])
def test_all_reduce_is_reduce_scatter_then_all_gather_in_values_and_bytes(
    size: int, group: int
) -> None:
    arrays = integers(size, 2 * group, 3)
    whole, halves = Ranks(size), Ranks(size)
    reduced = whole.all_reduce(arrays, 2, stage="x", group_size=group)
    parts = halves.reduce_scatter(arrays, 2, stage="x", group_size=group)
    gathered = halves.all_gather(parts, 2, stage="x", group_size=group)
    for members in whole.groups(group):
        total = sum(arrays[rank] for rank in members)
        assert all(np.array_equal(reduced[rank], total) for rank in members)
        assert all(np.array_equal(gathered[rank], total) for rank in members)
    assert whole.ledger == halves.ledger
    assert stage(whole.ledger, "x") == {2 * (group - 1) * 2 * 3 * 2}


@pytest.mark.parametrize(("size", "group"), [(2, 2), (4, 2), (6, 3), (8, 8)])
def test_all_to_all_twice_is_the_identity_and_keeps_the_own_block_at_home(
    size: int, group: int
) -> None:
    buffers = integers(size, group, 5)
    ranks = Ranks(size)
    once = ranks.all_to_all(buffers, 2, stage="x", group_size=group)
    assert stage(ranks.ledger, "x") == {(group - 1) * 5 * 2}
    back = ranks.all_to_all(once, 2, stage="x", group_size=group)
    assert all(map(np.array_equal, back, buffers))
    for members in ranks.groups(group):
        for i, j in product(range(group), repeat=2):
            assert np.array_equal(once[members[i]][j], buffers[members[j]][i])


def test_an_all_reduce_that_does_not_divide_moves_the_same_bytes_in_total() -> None:
    ranks = Ranks(4)
    reduced = ranks.all_reduce(integers(4, 7), 2, stage="x")
    assert all(np.array_equal(array, reduced[0]) for array in reduced)
    assert sum(ranks.ledger.sent["x"]) == 2 * (4 - 1) * 7 * 2


def test_what_arrives_is_a_copy() -> None:
    source = np.zeros(3)
    arrived = Ranks(2).send(0, 1, source, 2, stage="x")
    source[0] = 1.0
    assert arrived[0] == 0.0


def test_totals_per_rank_are_sums_over_stages() -> None:
    ledger = mla.decode_step(layer(8), ragged_contexts(2), tp=4, dcp=2).ledger
    for rank in range(4):
        assert ledger.sent_by(rank) == sum(row[rank] for row in ledger.sent.values()) > 0
        assert ledger.received_by(rank) == sum(row[rank] for row in ledger.received.values())


@pytest.mark.parametrize(
    ("tp", "dcp", "lengths", "message"),
    [
        (3, 1, [2], "tp = 3 does not divide 8 heads"),
        (4, 3, [2], "dcp = 3 does not divide tp = 4"),
        (4, 2, [2, 0], "at least the token it decodes"),
        (4, 2, [], "at least the token it decodes"),
    ],
)
def test_an_impossible_step_is_refused_by_name(
    tp: int, dcp: int, lengths: Sequence[int], message: str
) -> None:
    contexts = [np.ones((length, 48)) for length in lengths]
    with pytest.raises(ValueError, match=message):
        mla.decode_step(layer(8), contexts, tp=tp, dcp=dcp)


def test_an_lse_that_fills_no_whole_number_of_elements_is_refused() -> None:
    wire = mla.WireBytes(output=8)
    with pytest.raises(ValueError, match="8-byte elements"):
        mla.decode_step(layer(8), ragged_contexts(1), tp=4, dcp=2, backend="a2a", wire=wire)


def test_the_reference_imports_none_of_the_formulas_it_checks() -> None:
    for path in Path(mla.__file__).parent.glob("*.py"):
        if path.name == "hybrid.py":
            continue  # an experiment on a rule: it withholds just what the rule calls needed
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                assert not name.startswith("calc") or name.startswith("calc.reference"), path.name
