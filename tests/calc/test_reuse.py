"""What a prefix hit needs of each kind of layer, by the rules of three engines and the ideal one.

Rules: vLLM 0.33 v1/core/single_type_kv_cache_manager.py and kv_cache_coordinator.py; SGLang
0.5.23 mem_cache/unified_cache; LMCache 0.5.6 v1/distributed/bitmap_ops/fold.py.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.chunks import Chunks, parse_chunks, written
from calc.errors import CalcError
from calc.layers import Growth
from calc.reference.prefix import Keeps, PrefixCache, chain
from calc.reuse import Cut, ReuseGroup, Rule, _lacking, needs, usable, window_chunks
from calc.reuse_asked import Asked
from calc.reuse_groups import hash_lookahead, reuse_groups
from calc.scenario import Scenario

KINDS = {
    "full": Growth.GROWING,
    "window": Growth.WINDOW,
    "chunk": Growth.CHUNK,
    "state": Growth.STATE,
}


def group(kind: str, chunk: int = 16, limit: int = 0, drafted: bool = False) -> ReuseGroup:
    return ReuseGroup(kind, "attention", KINDS[kind], 1, chunk, limit, drafted)


# --- the source's cases ---------------------------------------------------------------------------


def test_full_attention_needs_everything_from_the_start() -> None:
    assert needs(group("full"), 160, Rule.IDEAL) == range(10)
    hit = usable([group("full")], 160, {"full": [3]}, Rule.IDEAL)
    assert (hit.tokens, hit.cut, hit.binding, hit.blocking) == (48, Cut.MISSING, "full", 3)


@pytest.mark.parametrize("rule", Rule)
def test_early_chunks_of_a_window_may_be_missing(rule: Rule) -> None:
    groups = [group("full"), group("window", limit=64)]
    early = usable(groups, 320, {"window": range(16)}, rule)
    assert (early.tokens, early.cut) == (320, Cut.COMPLETE)
    inside = usable(groups, 320, {"window": [17]}, rule)
    assert inside.tokens < 320
    assert (inside.cut, inside.binding, inside.blocking) == (Cut.WINDOW, "window", 17)


def test_a_window_needs_its_last_w_tokens_by_the_source_and_one_less_in_vllm() -> None:
    """The source says [p - w, p); the next token reads itself and w - 1 before it."""
    window = group("window", limit=65)
    assert needs(window, 320, Rule.IDEAL) == range(15, 20)
    assert needs(window, 320, Rule.VLLM) == range(16, 20)
    assert needs(window, 320, Rule.SGLANG) == range(15, 20)


def test_a_window_of_1024_tokens_needs_64_blocks_of_16() -> None:
    assert window_chunks(group("window", 16, 1024), Rule.VLLM).value == 64
    assert window_chunks(group("window", 256, 1024), Rule.LMCACHE).value == 4


@pytest.mark.parametrize("rule", Rule)
def test_without_a_snapshot_at_the_boundary_there_is_no_hit_there(rule: Rule) -> None:
    groups = [group("full"), group("state")]
    hit = usable(groups, 160, {"state": [9, 8]}, rule)
    assert (hit.tokens, hit.cut, hit.binding, hit.blocking) == (128, Cut.SNAPSHOT, "state", 8)
    assert usable(groups, 160, {"state": range(9)}, rule).tokens == 160
    assert usable(groups, 160, {"state": range(10)}, rule).tokens == 0


def test_experts_change_nothing() -> None:
    """DeepSeek-V3 with and without its experts: the cache is that of its latent attention."""
    moe = Scenario("deepseek-v3", tp=8)
    spec = moe.model_spec.model_copy(
        update={
            "id": "custom",
            "layers": tuple(
                layer.model_copy(update={"ffns": ()}) for layer in moe.model_spec.layers
            ),
        }
    )
    dense = Scenario("custom", tp=8, spec=spec)
    for rule in Rule:
        assert reuse_groups(moe, rule) == reuse_groups(dense, rule)


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dcp", "unit"), [(1, 768), (8, 6144)])
def test_kimi_k3_hits_on_768_tokens_and_on_6144_with_dcp_8(dcp: int, unit: int) -> None:
    """vLLM aligns the block to a state: 768 at tp = 8; dcp stripes attention, not states."""
    groups = reuse_groups(Scenario("kimi-k3", tp=8, dcp=dcp), Rule.VLLM)
    assert [(one.growth, one.chunk) for one in groups] == [
        (Growth.GROWING, unit),
        (Growth.STATE, 768),
    ]
    hit = usable(groups, 100_000, {}, Rule.VLLM)
    assert (hit.align, hit.tokens) == (unit, 100_000 // unit * unit)


def test_a_request_seen_before_computes_its_last_token_again() -> None:
    hit = usable([group("full")], 160, {}, Rule.VLLM, new_tokens=0)
    assert (hit.tokens, hit.cut, hit.recomputed.value) == (144, Cut.LAST_TOKEN, 16)
    assert usable([group("full")], 160, {}, Rule.VLLM, new_tokens=1).tokens == 160
    stored = usable([group("full", 32)], 160, {}, Rule.LMCACHE, new_tokens=0)
    assert (stored.tokens, stored.cut) == (159, Cut.LAST_TOKEN)


@pytest.mark.parametrize(
    ("preset", "layout", "drafted", "prefix", "tokens"),
    [
        ("kimi-k3", {"tp": 8, "dcp": 8}, 3, 20_000, 18_432),
        ("qwen3-next-80b-a3b", {"gpu": "a100-80gb"}, 1, 5_000, 4_896),
        ("deepseek-v3", {"tp": 8}, 1, 8_200, 8_192),
        ("deepseek-v3", {"tp": 8}, 1, 8_192, 8_176),  # the token behind the block is not shared
        ("deepseek-v3", {"tp": 8}, 4, 8_193, 8_192),  # one module, however many it drafts
        ("minimax-m2", {"tp": 4}, 3, 8_194, 8_176),  # three modules read three tokens further
        ("minimax-m2", {"tp": 4}, 3, 8_195, 8_192),
        ("llama-3.1-8b", {}, 2, 8_193, 8_192),  # a draft model of its own (EAGLE)
    ],
)
def test_vllm_looks_ahead_while_drafting_and_gives_no_block_up(
    preset: str, layout: dict[str, Any], drafted: int, prefix: int, tokens: int
) -> None:
    """vLLM 0.33 config/vllm.py num_hash_lookahead_tokens, v1/core/sched/scheduler.py: lookahead
    hashes prove the boundary token, so EAGLE needs no drop."""
    scenario = Scenario(preset, speculative_tokens=drafted, **layout)
    hit = Asked(scenario, {"prefix": prefix}).hit
    assert (hit.tokens, hit.longest.value) == (tokens, prefix - hash_lookahead(scenario))
    if tokens + hit.align <= prefix:
        assert hit.cut is Cut.LOOKAHEAD
    alone = Asked(replace(scenario, speculative_tokens=0), {"prefix": prefix}).hit
    assert tokens <= alone.tokens


def test_with_a_kv_connector_only_groups_with_a_drafts_layer_drop_a_block() -> None:
    """v1/core/kv_cache_planning.py: is_eagle_group; the hybrid coordinator looks one block further
    for it (eagle_proof_margin), so that nothing is lost where that block is there."""
    drops = {"prefix": 8_193, "lookahead": "off"}
    dense = Asked(Scenario("deepseek-v3", tp=8, speculative_tokens=1), drops)
    assert [one.drafted for one in dense.groups] == [True]
    assert (dense.hit.tokens, dense.hit.cut) == (8_176, Cut.DRAFT)
    hybrid = Asked(Scenario("qwen3-next-80b-a3b", speculative_tokens=1), drops)
    assert [(one.growth, one.drafted) for one in hybrid.groups] == [
        (Growth.GROWING, True),
        (Growth.STATE, False),
    ]
    unit = hybrid.hit.align
    assert hybrid.hit.tokens == (8_193 // unit - 1) * unit
    alone = Asked(Scenario("llama-3.1-8b", speculative_tokens=1), drops)
    assert all(one.drafted for one in alone.groups), "no layer is known as the draft's"


def test_a_drafting_group_gives_its_last_block_up() -> None:
    hit = usable([group("full", drafted=True)], 170, {}, Rule.VLLM)
    assert (hit.tokens, hit.cut) == (144, Cut.DRAFT)
    assert usable([group("full", drafted=True)], 170, {}, Rule.SGLANG).tokens == 160
    state = usable([group("full"), group("state", drafted=True)], 160, {}, Rule.VLLM)
    assert state.tokens == 160


def test_blocks_of_different_size_meet_at_their_common_multiple() -> None:
    hit = usable([group("full", 48), group("window", 32, 40)], 200, {}, Rule.VLLM)
    assert (hit.align, hit.tokens, hit.cut) == (96, 192, Cut.ALIGNMENT)


def test_lmcache_looks_at_whole_chunks_of_256_and_sglang_at_pages_over_all_dcp_ranks() -> None:
    stored = reuse_groups(Scenario("swa-48"), Rule.LMCACHE)
    assert {one.chunk for one in stored} == {256}
    assert usable(stored, 1_100, {}, Rule.LMCACHE).tokens == 1_024
    pages = reuse_groups(Scenario("kimi-k3", tp=8, dcp=8, engine="sglang"), Rule.SGLANG)
    assert [one.chunk for one in pages] == [8, 256]


# --- against a cache that searches ----------------------------------------------------------------


def _groups(draw: random.Random, rule: Rule) -> list[Keeps]:
    sizes = {Rule.VLLM: [2, 3, 4, 6], Rule.SGLANG: [2], Rule.LMCACHE: [3]}[rule]
    made = [Keeps("full", draw.choice(sizes), drafted=rule is Rule.VLLM and draw.random() < 0.2)]
    for _ in range(draw.randint(0, 2)):
        match draw.choice(["window", "state"] + ["chunk"] * (rule is Rule.VLLM)):
            case "window":
                drafted = rule is Rule.VLLM and draw.random() < 0.2
                made.append(Keeps("window", draw.choice(sizes), draw.randint(2, 9), drafted))
            case "state":
                wide = [4, 6] if rule is Rule.SGLANG else sizes
                made.append(Keeps("state", draw.choice(wide)))
            case _:
                size = made[0].chunk
                if not any(one.drafted for one in made) and all(o.chunk == size for o in made):
                    made.append(Keeps("chunk", size, size * draw.randint(1, 4)))
    return made


@pytest.mark.parametrize("rule", [Rule.VLLM, Rule.SGLANG, Rule.LMCACHE])
@settings(max_examples=250, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_a_cache_with_any_history_finds_what_the_rules_say(rule: Rule, seed: int) -> None:
    """Requests that share beginnings go in, chunks go out; one more request asks."""
    draw = random.Random(seed)  # noqa: S311 - a history, no secret
    keeps = _groups(draw, rule)
    ahead = draw.choice([0, 0, 1, 3]) if not any(one.drafted for one in keeps) else 0
    ahead = ahead if rule is Rule.VLLM else 0
    cache = PrefixCache(keeps, room=draw.choice([20, 40, 10**6]), ahead=ahead)
    base = [draw.randint(0, 1) for _ in range(40)]
    for _ in range(draw.randint(1, 4)):
        cut = draw.randint(0, 40)
        cache.insert(base[:cut] + [draw.randint(0, 1) for _ in range(draw.randint(1, 12))])
        if draw.random() < 0.7:
            cache.insert(base)
    for _ in range(draw.randint(0, 5)):
        number = draw.randrange(len(keeps))
        keys = chain(base, keeps[number].chunk, ahead)
        cache.evict(number, draw.choice(keys))
    asked = base[: draw.randint(10, 40)]
    new = draw.randint(0, 1)
    whole = len(asked) - new
    asked = asked[:whole] + [2] * new  # what is new, nobody has asked before
    ids = [f"{one.kind}{number}" for number, one in enumerate(keeps)]
    groups = [
        ReuseGroup(name, "attention", KINDS[one.kind], 1, one.chunk, one.reach, one.drafted)
        for name, one in zip(ids, keeps, strict=True)
    ]
    missing: dict[str, list[int]] = {
        name: [place for place, there in enumerate(row) if not there and place < whole // g.chunk]
        for name, g, row in zip(ids, groups, cache.there(asked), strict=True)
    }
    found = {Rule.VLLM: cache.vllm, Rule.SGLANG: cache.sglang, Rule.LMCACHE: cache.lmcache}[rule]
    assert usable(groups, whole, missing, rule, new, lookahead=ahead).tokens == found(asked)


def test_equal_tokens_after_different_beginnings_have_different_keys() -> None:
    assert chain([1, 2, 3, 4], 2)[1] != chain([9, 2, 3, 4], 2)[1]
    assert chain([1, 2, 3, 4], 2)[0] == chain([1, 2, 9, 9], 2)[0]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("reuse_range", {"missing": {"full": [10]}}),
        ("reuse_range", {"missing": {"full": [-1]}}),
        ("reuse_group", {"missing": {"other": [1]}}),
        ("reuse_window", {"groups": [group("window", limit=161)]}),
        ("reuse_block", {"groups": [group("full", chunk=0)]}),
        ("reuse_nothing", {"groups": []}),
        ("out_of_range", {"prefix": 0}),
        ("out_of_range", {"prefix": 2**60}),
        ("out_of_range", {"new_tokens": -1}),
    ],
)
def test_what_cannot_be_is_refused_by_name(code: str, asked: dict[str, Any]) -> None:
    given: dict[str, Any] = {"groups": [group("full")], "prefix": 160, "missing": {}}
    with pytest.raises(CalcError) as caught:
        usable(rule=Rule.VLLM, **(given | asked))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("3, 2-4", "reuse_overlap"),
        ("7, 7", "reuse_overlap"),
        ("4-2", "reuse_unreadable"),
        ("x", "reuse_unreadable"),
        ("1,,2", "reuse_unreadable"),
        ("0-99999999", "reuse_unreadable"),
    ],
)
def test_lists_of_chunks_that_say_too_much_are_refused(text: str, code: str) -> None:
    with pytest.raises(CalcError) as caught:
        parse_chunks(text, "full")
    assert caught.value.code == code


def test_lists_of_chunks_are_read_and_written_alike() -> None:
    assert list(parse_chunks(" 3, 7-9 ", "full")) == [3, 7, 8, 9]
    assert not parse_chunks("", "full")
    assert parse_chunks(written({0, 1, 2, 5}), "full") == Chunks.of({0, 1, 2, 5})


def test_only_states_ask_for_an_interval_that_pages_divide() -> None:
    """SGLang 0.5.23 arg_groups/mamba_hook.py checks it for models with states; the page is widened
    by DCP (runtime_context.py mamba_track_grid), so that the usual 256 becomes 512."""
    sparse = Scenario("deepseek-v3.2", tp=8, dcp=8, engine="sglang")
    assert {one.chunk for one in reuse_groups(sparse, Rule.SGLANG)} == {512}
    dense = Scenario("llama-3.1-8b", engine="sglang", block_size=16)
    assert [one.chunk for one in reuse_groups(dense, Rule.SGLANG, interval=1000)] == [16]
    striped = Scenario("kimi-k3", tp=8, dcp=8, engine="sglang", block_size=64)
    assert [one.chunk for one in reuse_groups(striped, Rule.SGLANG)] == [512, 512]
    with pytest.raises(CalcError) as caught:
        reuse_groups(striped, Rule.SGLANG, interval=256)
    assert caught.value.code == "reuse_interval"


@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(1, 9))
def test_runs_of_chunks_are_a_sorted_set(named: set[int], first: int, size: int) -> None:
    found = Chunks.of(named)
    assert list(found) == sorted(named) == [found[place] for place in range(len(found))]
    assert [chunk in found for chunk in range(42)] == [chunk in named for chunk in range(42)]
    turned = range(first, first + size)
    assert set(found.toggled(turned)) == named ^ set(turned)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_the_search_in_leaps_finds_what_one_step_at_a_time_finds(seed: int) -> None:
    """Attention chunks that no block divides and windows of one token are the hard ones."""
    draw = random.Random(seed)  # noqa: S311 - a history, no secret
    groups = [
        ReuseGroup(
            f"{kind}{number}",
            "attention",
            KINDS[kind],
            1,
            draw.choice([1, 2, 3, 4, 6]),
            draw.randint(1, 14),
            draw.random() < 0.3,
        )
        for number, kind in enumerate(draw.choices(list(KINDS), k=draw.randint(1, 3)))
    ]
    prefix = draw.randint(14, 90)
    missing = {}
    for one in groups:
        edges = sorted(draw.randint(0, one.chunks(prefix)) for _ in range(4))
        missing[one.id] = Chunks([range(*edges[:2]), range(*edges[2:])])
    rule = draw.choice([Rule.IDEAL, Rule.VLLM])
    hit = usable(groups, prefix, missing, rule)
    reach = prefix  # the request has one token more, so that nothing is cut off
    fits = [
        boundary
        for boundary in range(0, prefix + 1, hit.align)
        if all(_lacking(g, boundary, missing[g.id], rule, reach) is None for g in groups)
    ]
    assert hit.tokens == max(fits, default=0)


def test_sixteen_million_missing_chunks_are_answered_at_once() -> None:
    """Kimi K3 in SGLang with a state at every token, none of them there: as many steps as runs."""
    scenario = Scenario("kimi-k3", tp=8, engine="sglang")
    text = ",".join(f"{start}-{start + 2**20 - 1}" for start in range(0, 2**24, 2**20))
    asked = {"prefix": 2**24, "interval": 1}
    before = time.perf_counter()
    for missing in (f"state={text}", f"growing={text}", f"state=0-{2**24 - 2};growing=9"):
        assert Asked(scenario, asked | {"missing": missing}).hit.tokens == 0
    last = Asked(scenario, asked | {"missing": f"state=0-{2**23},{2**23 + 2}-{2**24 - 1}"}).hit
    assert last.tokens == 2**23 + 2
    assert time.perf_counter() - before < 1


def test_an_interval_between_states_that_no_page_divides_is_refused() -> None:
    scenario = Scenario("kimi-k3", tp=8, engine="sglang", block_size=64)
    assert [one.chunk for one in reuse_groups(scenario, Rule.SGLANG)] == [64, 256]
    with pytest.raises(CalcError) as caught:
        reuse_groups(scenario, Rule.SGLANG, interval=100)
    assert caught.value.code == "reuse_interval"


def test_a_prefix_of_16_million_single_token_pages_is_answered_at_once() -> None:
    groups = reuse_groups(Scenario("swa-48", engine="sglang"), Rule.SGLANG)
    hit = usable(groups, 2**24, {"growing": [2**23], "window": [5]}, Rule.SGLANG)
    assert hit.tokens == 2**23


@pytest.mark.parametrize("rule", [Rule.VLLM, Rule.SGLANG, Rule.LMCACHE])
def test_layers_that_draft_are_looked_up_with_the_rest(rule: Rule) -> None:
    # DeepSeek-V3: 61 latent layers, and one MTP layer while it drafts
    plain = Scenario("deepseek-v3", engine="sglang" if rule is Rule.SGLANG else "vllm")
    drafting = replace(plain, speculative_tokens=1)
    for scenario, layers in ((plain, 61), (drafting, 62)):
        assert sum(group.layers for group in reuse_groups(scenario, rule)) == layers


def test_a_long_prefix_with_a_missing_window_is_searched_in_leaps() -> None:
    """Were every boundary tried, a million of them would be: one window chunk a token."""
    groups = [
        ReuseGroup("growing", "attention", Growth.GROWING, 1, 1),
        ReuseGroup("window", "sliding_window", Growth.WINDOW, 1, 1, 1024),
    ]
    gone = {"window": frozenset(range(5, 2**20 - 1))}
    assert usable(groups, 2**20, gone, Rule.SGLANG).tokens == 5
