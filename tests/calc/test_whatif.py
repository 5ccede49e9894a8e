"""Changed models, attention kinds compared, and what the model view reads of every layer."""

from __future__ import annotations

import pytest

from calc.architecture import format_rows, kind_rows, layer_map, state_rows
from calc.errors import CalcError
from calc.layers import Growth, LatentAttention
from calc.link import pack_spec, unpack_spec
from calc.presets import load_preset, preset_ids
from calc.report import evaluate
from calc.scenario import Scenario
from calc.weights import parameters
from calc.whatif import Change, alternatives, changed, compared_mixer, token_mix


def bytes_a_token(model: object, **fields: object) -> int:
    report = evaluate(Scenario("custom", spec=model, **fields))  # type: ignore[arg-type]
    return int(report.cache.stage.growing_per_token.value)


# --- Changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "row"), [(512, 1152), (768, 1664), (1024, 2176), (1536, 3200), (500, 1128)]
)
def test_a_latent_width_changes_every_row(width: int, row: int) -> None:
    model = changed(load_preset("deepseek-v3"), Change(1, 61, kv_lora_rank=width))
    assert bytes_a_token(model) == 61 * row
    assert unpack_spec(pack_spec(model)) == model


def test_a_width_can_be_changed_in_some_layers_only() -> None:
    model = changed(load_preset("deepseek-v3"), Change(11, 20, kv_lora_rank=1024, rope_dim=32))
    assert [layer.count for layer in model.layers] == [3, 7, 10, 41]
    assert bytes_a_token(model) == 51 * 1152 + 10 * (1024 + 32) * 2
    assert model.mtp_layers == load_preset("deepseek-v3").mtp_layers


def test_half_the_kv_heads_keep_half_the_bytes() -> None:
    model = changed(load_preset("llama-3.1-8b"), Change(1, 32, kv_heads=4))
    assert bytes_a_token(model) == 32 * 4 * 256 * 2


def test_kv_heads_that_do_not_divide_the_heads_are_refused_with_the_legal_ones() -> None:
    with pytest.raises(CalcError) as caught:
        changed(load_preset("llama-3.1-8b"), Change(1, 32, kv_heads=3))
    assert caught.value.field == "kv_heads"
    assert "1, 2, 4, 8, 16, 32" in str(caught.value)


def test_a_window_changes_window_layers_only() -> None:
    model = changed(load_preset("gpt-oss-120b"), Change(1, 36, window=256))
    before = evaluate(Scenario("gpt-oss-120b")).cache.stage
    after = evaluate(Scenario("custom", spec=model)).cache.stage
    assert after.window_per_request.value == 2 * before.window_per_request.value
    assert after.growing_per_token.value == before.growing_per_token.value


@pytest.mark.parametrize("preset", ["deepseek-v3", "llama-3.1-8b"])
def test_a_cache_shared_by_two_layers_halves_rows_and_drops_projections(preset: str) -> None:
    base = load_preset(preset)
    model = changed(base, Change(1, base.layer_count, shared_kv=2))
    owners = sum(
        layer.count
        for layer in model.layers
        if not getattr(layer.mixers[0], "reads_other_layer", False)
    )
    assert owners == -(-base.layer_count // 2)
    assert bytes_a_token(model) * base.layer_count == bytes_a_token(custom(preset)) * owners
    mixer = base.mixers[0]
    names = ("kv_a_proj", "kv_a_norm", "k_proj", "v_proj")
    projections = [t.parameters("x").value for t in mixer.tensors(base.hidden_size)]
    named = [t.name for t in mixer.tensors(base.hidden_size)]
    dropped = sum(v for n, v in zip(named, projections, strict=True) if n in names)
    saved = parameters(base).total.value - parameters(model).total.value
    assert saved == dropped * (base.layer_count - owners)


def test_a_shared_down_projection_saves_parameters_and_no_cache() -> None:
    base = load_preset("deepseek-v3")
    model = changed(base, Change(1, 61, shared_down=61))
    assert bytes_a_token(model) == 61 * 1152
    saved = parameters(base).total.value - parameters(model).total.value
    assert saved == 60 * (576 * 7168 + 512)


def test_reading_layers_work_in_every_report() -> None:
    model = changed(load_preset("deepseek-v3"), Change(1, 61, shared_kv=3))
    for engine in ("vllm", "sglang"):
        report = evaluate(
            Scenario(
                "custom", spec=model, engine=engine, tp=8, dcp=8, gpu="h200", prefill_tokens=512
            )
        )
        assert report.to_json()["capacity"]["blocks"]


@pytest.mark.parametrize(("first", "last"), [(0, 3), (5, 4), (1, 62)])
def test_a_range_outside_the_layers_is_refused(first: int, last: int) -> None:
    with pytest.raises(CalcError, match="no range of the 61 layers"):
        changed(load_preset("deepseek-v3"), Change(first, last, kv_lora_rank=64))


@pytest.mark.parametrize("preset", preset_ids())
def test_every_preset_can_be_changed_and_fits_a_link(preset: str) -> None:
    base = load_preset(preset)
    change = Change(1, base.layer_count, kv_lora_rank=1024, kv_heads=1, window=128, shared_kv=2)
    model = changed(base, change)
    assert len(pack_spec(model)) < 2000
    assert model.layer_count == base.layer_count
    assert model.sources == {"base": preset}
    assert evaluate(Scenario("custom", spec=model)).headline()


# --- Kinds compared -------------------------------------------------------------------------------


def compared(preset: str) -> dict[str, tuple[int, int, float]]:
    mixer = compared_mixer(load_preset(preset))
    assert mixer is not None
    return {
        row.name: (row.elements.value, row.bytes.value, round(row.ratio.value, 2))
        for row in alternatives(mixer)
    }


def test_deepseek_v3_as_mha_gqa_mqa_and_mla() -> None:
    found = compared("deepseek-v3")
    assert found["own"] == found["mla"] == (576, 1152, 71.11)
    assert found["mha"] == (128 * 320, 81920, 1.0)
    assert found["gqa"] == (8 * 320, 5120, 16.0)
    assert found["mqa"] == (320, 640, 128.0)


def test_an_mha_of_4096_keeps_16_kib_a_token_and_layer() -> None:
    """2 x 32 x 128 x 2 B: the hidden width is those 32 x 128 already."""
    found = compared("llama-2-7b")
    assert found["mha"] == (8192, 16384, 1.0)
    assert found["gqa"][1] == 4096
    assert found["mqa"][1] == 512
    assert found["mla"] == (576, 1152, 14.22)
    assert found["mla"][0] / found["mqa"][0] == 2.25


def test_an_average_width_lies_between_the_two_of_its_tokens() -> None:
    mixer = load_preset("deepseek-v3").latent_mixers[0]
    mix = token_mix(mixer, 256, 0.5)
    assert (mix.width.value, mix.elements.value, mix.bytes.value) == (384, 448, 896)
    assert mix.full.value == 1152
    assert token_mix(mixer, 256, 0).bytes.value == 1152


# --- What the model view reads --------------------------------------------------------------------


@pytest.mark.parametrize("preset", preset_ids())
def test_the_layer_map_has_every_layer_once_with_its_stage(preset: str) -> None:
    model = load_preset(preset)
    sizes = model.stage_sizes(min(4, model.layer_count))
    found = layer_map(model, sizes)
    assert [cell.number for cell in found.cells] == list(range(1, model.layer_count + 1))
    stages = [cell.stage for cell in found.cells]
    assert [stages.count(stage) for stage in range(len(sizes))] == list(sizes)
    rows = kind_rows(Scenario(preset))
    assert sum(row.layers for row in rows) >= model.layer_count


def test_kind_rows_say_what_a_rank_of_the_layout_keeps() -> None:
    (row, *_) = kind_rows(Scenario("llama-3.1-70b", tp=4))
    assert (row.layers, row.whole[0].bytes.value, row.here[0].bytes.value) == (80, 4096, 1024)


def test_formats_show_their_scales_and_refusals() -> None:
    found = {row.id: row for row in format_rows(Scenario("deepseek-v3", engine="sglang"))}
    expected = {
        "bf16": (1152, None),
        "fp8": (576, None),
        "fp8_ds_mla": (656, 16),
        "int8_per_token_head": (584, 8),
        "nvfp4_ds_mla": (352, 32),
        "nvfp4": (324, 36),
        "int4_per_token_head": (296, 8),
    }
    for name, (row, scales) in expected.items():
        made = found[name]
        assert made.rows[0].value == row
        held = made.scales[0]
        assert (held.value if held else None) == scales
    refused = {row.id: row for row in format_rows(Scenario("llama-3.1-8b"))}["fp8_ds_mla"]
    assert refused.refusal is not None
    assert refused.refusal.code == "format_kind"


@pytest.mark.parametrize("preset", preset_ids())
def test_a_row_less_its_scales_is_its_elements(preset: str) -> None:
    bits = {"fp8": 8, "int8_per_token_head": 8, "int4_per_token_head": 4, "nvfp4": 4}
    for row in format_rows(Scenario(preset)):
        for item, scales in zip(row.rows, row.scales, strict=True):
            assert scales is None or 0 < scales.value < item.value / 3
        mixers = [m for m in load_preset(preset).mixers if isinstance(m, LatentAttention)]
        if row.id in bits and mixers and not mixers[0].sparse and row.rows:
            scale = row.scales[0].value if row.scales[0] else 0
            assert (row.rows[0].value - scale) * 8 == mixers[0].row_elements * bits[row.id]


def test_states_name_the_dtypes_of_both_engines() -> None:
    (row,) = state_rows(Scenario("qwen3-next-80b-a3b"))
    assert row.kind == "gdn"
    assert row.defaults == {"vllm": ("bf16", "bf16"), "sglang": ("bf16", "float32")}
    (row,) = state_rows(Scenario("kimi-k3", state_dtype="bf16"))
    assert row.used == ("bf16", "bf16")
    assert row.defaults["vllm"] == ("bf16", "float32")


def test_layers_that_keep_nothing_themselves_still_have_a_cell() -> None:
    rows = kind_rows(Scenario("gemma-3n-e4b"))
    readers = [row for row in rows if not row.whole and row.part.kind in ("attention",)]
    assert readers
    grown = [row for row in rows if row.whole and row.whole[0].growth is Growth.GROWING]
    assert grown


def custom(preset: str) -> object:
    return load_preset(preset).model_copy(update={"id": "custom"})
