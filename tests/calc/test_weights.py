"""Parameter counts against the published models, and how a layout divides their bytes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from calc.errors import CalcError
from calc.expressions import FUNCTIONS, filled, filled_python, symbolic
from calc.items import walk
from calc.layout import Layout
from calc.presets import load_preset, preset_ids
from calc.weight_formats import STORED_FORMATS
from calc.weights import RankWeights, parameters, rank_bytes


@dataclass(frozen=True)
class Groups:
    tp: int = 1
    dcp: int = 1
    pp: int = 1
    ep: int = 1

    @property
    def expert_ranks(self) -> int:
        return max(self.tp, self.ep)


# billions of parameters that the model's own implementation (transformers, or the modeling file of
# its repository) allocates: text backbone, without MTP and vision
TOTALS = {
    "deepseek-v3": 671.026,
    "deepseek-v3.2": 671.878,
    "glm-5": 743.911,
    "gpt-oss-120b": 116.829,
    "gpt-oss-20b": 20.915,
    "kimi-k3": 2_779,
    "llama-3.1-70b": 70.554,
    "llama-3.1-8b": 8.030,
    "mimo-v2-flash": 308.779,
    "mixtral-8x7b": 46.703,
    "nemotron-h-56b": 56.324,
    "qwen3-235b-a22b": 235.094,
    "qwen3.5-27b": 26.896,
}

# billions, as model cards, papers and the names of the repositories round them
ROUNDED = {
    "bamba-9b": 9.8,
    "deepseek-v2": 236,
    "deepseek-v2-lite": 15.7,
    "deepseek-v4-flash": 284,
    "falcon-h1-34b": 33.6,
    "falcon-mamba-7b": 7.27,
    "gemma-2-9b": 9.24,
    "gemma-2-27b": 27.2,
    "granite-4.0-h-small": 32.2,
    "jamba-1.5-large": 398,
    "jamba-1.5-mini": 52,
    "llama-2-7b": 6.74,
    "llama-3.1-405b": 405.9,
    "mamba-codestral-7b": 7.29,
    "minimax-m2": 229,
    "minimax-text-01": 456,
    "mistral-7b": 7.24,
    "nemotron-3-nano": 31.6,
    "nemotron-3-super": 120.7,
    "nemotron-h-47b": 46.8,
    "nemotron-h-8b": 8.1,
    "phi-3-mini-4k": 3.82,
    "phi-4": 14.7,
    "phi-4-mini": 3.84,
    "qwen3-30b-a3b": 30.5,
    "qwen3-32b": 32.8,
    "qwen3-8b": 8.19,
    "zamba2-7b": 7.36,
}

# active for one token, embedding and head included: DeepSeek-V3 and Qwen3 by their formula, Kimi K3
# published as 104 B
ACTIVE = {"deepseek-v3": 37.55, "kimi-k3": 105.4, "qwen3-235b-a22b": 22.19}


@pytest.mark.parametrize("preset", TOTALS)
def test_the_parameters_agree_with_the_published_model(preset: str) -> None:
    total = parameters(load_preset(preset)).total.value
    assert total == pytest.approx(TOTALS[preset] * 1e9, rel=1e-3)


@pytest.mark.parametrize("preset", ROUNDED)
def test_the_parameters_round_to_the_figure_that_is_advertised(preset: str) -> None:
    total = parameters(load_preset(preset)).total.value
    assert total == pytest.approx(ROUNDED[preset] * 1e9, rel=1e-2)


@pytest.mark.parametrize("preset", ACTIVE)
def test_active_parameters_take_only_the_chosen_experts(preset: str) -> None:
    active = parameters(load_preset(preset)).active.value
    assert active == pytest.approx(ACTIVE[preset] * 1e9, rel=1e-3)


def test_kimi_linear_agrees_to_the_parameter() -> None:
    # the parameter count that the model page of moonshotai/Kimi-Linear-48B-A3B-Instruct shows
    assert parameters(load_preset("kimi-linear-48b")).total.value == 49_122_681_728


@pytest.mark.parametrize("preset", preset_ids())
def test_the_total_is_the_sum_of_its_parts(preset: str) -> None:
    report = parameters(load_preset(preset))
    assert report.total.value == sum(part.per_layer.value * part.layers for part in report.parts)
    assert report.active.value <= report.total.value
    assert len({part.name for part in report.parts}) == len(report.parts)


@pytest.mark.parametrize("preset", preset_ids())
def test_one_rank_in_bf16_weighs_two_bytes_a_parameter(preset: str) -> None:
    model = load_preset(preset)
    assert rank_bytes(model, Groups(), "bf16").total.value == 2 * parameters(model).total.value


@pytest.mark.parametrize("preset", preset_ids())
def test_every_derivation_of_a_rank_can_be_drawn_and_evaluates_to_its_value(preset: str) -> None:
    weights = rank_bytes(load_preset(preset), Groups(tp=2, pp=2))
    for item in walk(weights.total):
        assert symbolic(item.formula)
        assert filled(item)
        drawn = eval(filled_python(item), dict(FUNCTIONS))  # noqa: S307 - our own arithmetic
        assert drawn == item.value


def test_tp_divides_the_matrices_and_replicates_norms_routers_and_down_projections() -> None:
    model = load_preset("deepseek-v3")
    weights = rank_bytes(model, Groups(tp=8), "bf16")
    replicated = {name for part in weights.replicated for name in part.tensors}
    assert {"q_a_proj", "kv_a_proj", "q_a_norm", "kv_a_norm", "router", "norm"} <= replicated
    assert {"q_b_proj", "w_uk", "w_uv", "o_proj", "gate_proj", "table"}.isdisjoint(replicated)
    held_once = sum(part.item.value for part in weights.parts if part.replicas == 1)
    held_by_all = sum(part.item.value for part in weights.replicated)
    assert held_once * 8 + held_by_all == 2 * parameters(model).total.value


def test_kv_projections_are_replicated_beyond_the_kv_heads() -> None:
    # Qwen3-235B has 4 KV heads: at tp=8 two ranks hold the same one
    weights = rank_bytes(load_preset("qwen3-235b-a22b"), Groups(tp=8), "bf16")
    (twice,) = [part for part in weights.parts if part.replicas == 2]
    assert set(twice.tensors) == {"k_proj", "v_proj"}
    assert twice.item.value == 2 * 94 * 128 * 4096 * 2  # K and V, one head, bf16


def test_query_replication_keeps_the_whole_groups_query_projection_on_each_rank() -> None:
    model = load_preset("deepseek-v3")
    gathered = rank_bytes(model, Groups(tp=8, dcp=8), "bf16")
    replicated = rank_bytes(model, Groups(tp=8, dcp=8), "bf16", query_replicated=True)
    # q_b_proj 128 x 192 x 1536 and W_UK 128 x 128 x 512, seven eighths more, in 61 layers
    more = (128 * 192 * 1536 + 128 * 128 * 512) * 2 * 61 * 7 // 8
    assert replicated.total.value - gathered.total.value == more
    assert "w_uk" in {name for part in replicated.replicated for name in part.tensors}


def test_expert_parallelism_spreads_whole_experts_over_ep() -> None:
    model = load_preset("deepseek-v3")
    one = 3 * 7168 * 2048 * 2 * 58

    def experts(weights: RankWeights) -> int:
        return sum(p.item.value for p in weights.parts if p.role == "experts")

    assert experts(rank_bytes(model, Groups(ep=64), "bf16")) == 256 // 64 * one
    assert experts(rank_bytes(model, Groups(tp=8, ep=8), "bf16")) == 256 // 8 * one
    assert experts(rank_bytes(model, Groups(tp=8), "bf16")) == 256 * one // 8
    assert experts(rank_bytes(model, Groups(ep=60), "bf16")) == 5 * one  # the fullest rank


def test_pipeline_stages_add_up_to_the_whole_model() -> None:
    model = load_preset("llama-3.1-70b")
    weights = rank_bytes(model, Groups(pp=4), "bf16")
    assert sum(weights.stage_bytes) == 2 * parameters(model).total.value
    assert weights.total.value == max(weights.stage_bytes) == weights.stage_bytes[weights.stage]


def test_a_tied_embedding_is_on_both_ends_of_a_pipeline() -> None:
    model = load_preset("gemma-3-27b")
    weights = rank_bytes(model, Groups(pp=2), "bf16")
    table = 262_208 * 5376
    assert sum(weights.stage_bytes) == 2 * (parameters(model).total.value + table)


def test_shared_transformer_blocks_weigh_once_however_many_layers_call_them() -> None:
    # Zamba2-7B: two blocks of 3 x 7168^2 + 7168 x 3584 and 3 x 14336 x 3584, called by 13 layers
    parts = {part.name: part for part in parameters(load_preset("zamba2-7b")).parts}
    assert (parts["attention"].layers, parts["attention_2"].layers) == (1, 1)
    assert parts["attention"].total.value == 3 * 7168**2 + 7168 * 3584
    own = [
        part
        for part in parts.values()
        if any(item.key.endswith("exit_proj") for item in part.per_layer.parts())
    ]
    assert sum(part.layers for part in own) == 13


def test_drafting_adds_the_mtp_layer_to_the_last_stage() -> None:
    model = load_preset("deepseek-v3")
    plain, drafting = (rank_bytes(model, Groups(), "bf16", drafting=on) for on in (False, True))
    assert drafting.total.value - plain.total.value == 2 * parameters(model).mtp.value
    assert parameters(model).mtp.value == pytest.approx(11.6e9, rel=5e-3)


@pytest.mark.parametrize(
    ("weight_format", "expected"),
    [
        ("bf16", 256 * 512 * 2),
        ("fp8", 256 * 512 + 2 * 4 * 4),  # 2 x 4 blocks of 128 x 128, a float32 each
        ("mxfp4", 256 * 512 // 2 + 256 * 16),  # 16 groups of 32 a row, a byte each
        ("nvfp4", 256 * 512 // 2 + 256 * 32 + 4),  # 32 groups of 16 a row, one float32
        ("int4", 256 * 512 // 2 + 256 * 4 * 2),  # 4 groups of 128 a row, 2 bytes each
    ],
)
def test_a_matrix_in_a_format_weighs_its_elements_and_its_scales(
    weight_format: str, expected: int
) -> None:
    stored = STORED_FORMATS[weight_format]
    assert stored.bytes(256, 512, 1) == expected
    assert stored.bytes(256, 512, 3) == 3 * expected


def test_a_mixed_checkpoint_quantises_only_the_parts_it_names() -> None:
    # openai/gpt-oss-120b: experts in mxfp4, everything else in bf16; its model card says 60.8 GiB
    weights = rank_bytes(load_preset("gpt-oss-120b"), Groups())
    formats = {part.role: part.format for part in weights.parts}
    assert formats["experts"] == "mxfp4"
    assert formats["attention"] == formats["router"] == formats["embedding"] == "bf16"
    assert weights.total.value == pytest.approx(60.8 * 2**30, rel=1e-3)


def test_one_chosen_format_leaves_embeddings_routers_and_norms_in_bf16() -> None:
    weights = rank_bytes(load_preset("qwen3-235b-a22b"), Groups(), "fp8")
    formats = {part.role: part.format for part in weights.parts}
    assert formats["attention"] == formats["experts"] == "fp8"
    assert formats["embedding"] == formats["head"] == formats["router"] == "bf16"


def test_an_unknown_weight_format_names_the_known_ones() -> None:
    with pytest.raises(CalcError, match=r"weight_format.*fp7.*mxfp4"):
        rank_bytes(load_preset("llama-3.1-8b"), Groups(), "fp7")


@pytest.mark.parametrize("preset", preset_ids())
def test_more_tp_never_makes_a_rank_heavier(preset: str) -> None:
    model = load_preset(preset)
    sizes = [rank_bytes(model, Groups(tp=tp)).total.value for tp in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)


def test_replicas_without_expert_parallelism_cut_every_expert_over_all_their_ranks() -> None:
    model = load_preset("deepseek-v3")

    def experts(layout: Layout) -> int:
        parts = rank_bytes(model, layout, "bf16").parts
        return sum(part.item.value for part in parts if part.role == "experts")

    assert experts(Layout(tp=8)) == 4 * experts(Layout(tp=8, dp=4))
    assert experts(Layout(tp=8, dp=4)) == experts(Layout(tp=8, dp=4, ep=32))
