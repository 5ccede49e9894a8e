"""Start-up logs: what is read, what contradicts itself, what is refused, what explains it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import CalcError
from calc.logs import MAX_CHARACTERS, read_log
from calc.reconcile import REASONS, Reconciliation, reconcile
from calc.scenario import Scenario

# github.com/vllm-project/vllm/issues/40691, shortened
QWEN = """\
INFO 04-23 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.19.0) with config: \
model='Qwen/Qwen3.5-27B', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, \
pipeline_parallel_size=1, kv_cache_dtype=auto, enable_prefix_caching=False
INFO [interface.py:931] Setting attention block size to 784 tokens to ensure that attention page \
size is >= mamba page size.
INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,864 tokens
INFO [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: 33.04x
"""
# github.com/vllm-project/vllm/issues/28228, shortened
KIMI = """\
INFO LLM engine (v0.11.0) with config: model='Kimi-Linear-48B', max_seq_len=120000, \
tensor_parallel_size=2
INFO Setting attention block size to 960 tokens to ensure that attention page size is >= mamba page
INFO Available KV cache memory: 2.30 GiB
INFO GPU KV cache size: 75,840 tokens
INFO Maximum concurrency for 120,000 tokens per request: 2.48x
"""
# github.com/vllm-project/vllm/issues/10517, shortened
LLAMA = """\
Memory profiling results: total_gpu_memory=23.58GiB kv_cache_size=2.89GiB
# GPU blocks: 1478, # CPU blocks: 2048
Maximum concurrency for 29000 tokens per request: 0.82x
The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in \
KV cache (23648). Try increasing `gpu_memory_utilization`
"""
# github.com/sgl-project/sglang/pull/11309, shortened
DEEPSEEK = """\
[2025-10-07 23:17:10] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3.2-Exp', \
tp_size=8, dp_size=8, page_size=64, mem_fraction_static=0.8, kv_cache_dtype='fp8_e4m3')
[2025-10-07 23:17:19 DP0 TP0] KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB
[2025-10-07 23:17:19 DP0 TP0] Memory pool end. avail mem=37.71 GB
"""
NEMOTRON = """\
[TP0] server_args=ServerArgs(model_path='nvidia/Nemotron-3-Nano', tp_size=4)
[TP0] Mamba Cache is allocated. max_mamba_cache_size: 8, conv_state size: 0.00 GB, ssm_state \
size: 0.10 GB
[TP0] KV Cache is allocated. #tokens: 1557504, K size: 2.23 GB, V size: 2.23 GB
[TP0] max_total_num_tokens=1557504, max_running_requests=8, context_len=8192
"""


def beside(text: str, model: str, **fields: object) -> Reconciliation:
    return reconcile(read_log(text), Scenario(model, **fields))  # type: ignore[arg-type]


def test_a_vllm_log_states_its_inputs_and_its_figures() -> None:
    log = read_log(QWEN)
    assert (log.engine, log.one("version"), log.one("model")) == (
        "vllm",
        "0.19.0",
        "Qwen/Qwen3.5-27B",
    )
    assert [log.whole(name) for name in ("tp", "pp", "max_model_len")] == [1, 1, 32768]
    assert (log.whole("attention_block"), log.whole("cache_tokens")) == (784, 290864)
    assert (log.number("concurrency"), log.one("prefix_caching")) == (33.04, "False")
    assert log.conflicts == []


def test_the_definition_of_the_size_line_is_told() -> None:
    assert read_log(QWEN).size_line == "by_group"
    product = QWEN.replace("290,864", f"{int(33.04 * 32768):,}")
    assert read_log(product).size_line == "either"
    merged = (
        "GPU KV cache size: 1,082,655 tokens, "
        "Maximum concurrency for 32,768 tokens per request: 33.04x"
    )
    assert read_log(merged).size_line == "product"
    assert read_log("GPU KV cache size: 1,082,655 tokens").size_line == "unknown"


def test_an_sglang_log_states_its_pools() -> None:
    log = read_log(NEMOTRON)
    assert (log.engine, log.whole("tp"), log.whole("slots")) == ("sglang", 4, 8)
    assert (log.whole("allocated_tokens"), log.number("k_gib")) == (1557504, 2.23)
    assert (log.number("state_gib"), log.whole("running")) == (0.10, 8)


def test_the_size_line_of_a_hybrid_agrees_beside_its_concurrency() -> None:
    text = QWEN + "INFO Available KV cache memory: 71.16 GiB\n"
    found = beside(text, "qwen3.5-27b")
    assert {finding.name for finding in found.findings} == {
        "attention_block",
        "tokens_by_group",
        "concurrency",
    }
    assert found.agrees, found.findings


# figures of public vLLM logs that print no memory: the token line of the old definition says how
# many blocks there are, and the concurrency follows from them
GEMMA = """\
INFO LLM engine (v0.17.0) with config: model='google/gemma-4-31B-it', max_seq_len=262144
INFO max_num_batched_tokens=2048
INFO GPU KV cache size: 37,392 tokens
INFO Maximum concurrency for 262,144 tokens per request: 1.53x
"""
KIMI_K2 = """\
INFO LLM engine (v0.11.0) with config: max_seq_len=131072, tensor_parallel_size=8, \
decode_context_parallel_size=8
INFO GPU KV cache size: 5,721,088 tokens
INFO Maximum concurrency for 131,072 tokens per request: 43.65x
"""
QWEN_235B = """\
INFO LLM engine (v0.11.0) with config: max_seq_len=262144, tensor_parallel_size=8, \
decode_context_parallel_size=2
INFO GPU KV cache size: 1,723,584 tokens
INFO Maximum concurrency for 262,144 tokens per request: 6.57x
"""


@pytest.mark.parametrize(
    ("text", "model", "reasons"),
    [
        (GEMMA, "gemma-4-31b", ("one_batch",)),
        (KIMI_K2, "kimi-k2", ()),
        (QWEN_235B, "qwen3-235b-a22b", ()),
    ],
)
def test_a_token_line_says_how_many_blocks_there_are(
    text: str, model: str, reasons: tuple[str, ...]
) -> None:
    found = beside(text, model)
    assert [finding.name for finding in found.findings] == ["tokens_by_group", "concurrency"]
    assert found.explained
    assert found.reasons == reasons


def test_a_concurrency_that_no_such_blocks_give_is_not_explained() -> None:
    assert not beside(KIMI_K2.replace("43.65", "43.63"), "kimi-k2").explained
    assert not beside(QWEN_235B.replace("6.57x", "9.99x"), "qwen3-235b-a22b").explained


def test_a_refused_start_agrees() -> None:
    found = beside(LLAMA, "llama-3.1-8b")
    assert {f.name for f in found.findings} == {"gpu_blocks", "concurrency", "stored_tokens"}
    assert found.agrees, found.findings


def test_what_a_log_does_not_say_is_found_as_the_reason() -> None:
    found = beside(KIMI, "kimi-linear-48b")
    assert not found.agrees
    assert found.explained
    assert "states_not_cached" in found.reasons
    assert "kernel_block_64" in found.reasons
    assert set(found.reasons) <= set(REASONS)
    assert all(finding.agrees for finding in found.explained_by)


def test_a_log_of_another_model_stays_unexplained() -> None:
    found = beside(KIMI, "llama-3.1-8b")
    assert not found.agrees
    assert not found.explained


def test_sglang_pools_agree() -> None:
    assert beside(DEEPSEEK, "deepseek-v3.2").agrees
    assert beside(NEMOTRON, "nemotron-3-nano", prefix_caching="off").agrees


def test_contradicting_lines_are_named_with_both_places() -> None:
    other = QWEN + "INFO Setting attention block size to 1056 tokens\n"
    (conflict,) = read_log(other).conflicts
    assert conflict.name == "attention_block"
    assert (conflict.first.value, conflict.second.value) == (784, 1056)
    assert conflict.first.line < conflict.second.line


def test_a_length_that_differs_from_the_one_asked_for_is_a_contradiction() -> None:
    other = QWEN.replace("max_seq_len=32768", "max_seq_len=65536")
    assert [conflict.name for conflict in read_log(other).conflicts] == ["max_model_len"]


def test_ranks_that_differ_a_little_do_not_contradict_each_other() -> None:
    ranks = "Available KV cache memory: 40.10 GiB\nAvailable KV cache memory: 40.31 GiB\n"
    log = read_log(ranks)
    assert (log.number("available_gib"), log.conflicts) == (40.10, [])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "log_empty"),
        ("hello\nworld", "log_empty"),
        ("llama_model_loader: loaded meta data\nllama_kv_cache: size = 1560.00 MiB", "log_foreign"),
        ("[TensorRT-LLM][INFO] Memory used for KV cache", "log_foreign"),
        ("x" * (MAX_CHARACTERS + 1), "log_too_long"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str, code: str) -> None:
    with pytest.raises(CalcError) as caught:
        read_log(text)
    assert caught.value.code == code
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        "GPU KV cache size: " + "9," * 5_000_000,
        "GPU KV cache size model='" * 400_000,
        "GPU blocks: " + " version 1.1" * 800_000,
        "GPU KV cache size: 1,234 tokens model= dtype=\n" * 200_000,
        "KV Cache is allocated. #tokens: " + "sglang" * 1_600_000,
    ],
    ids=["digits", "quotes", "versions", "lines", "sglang"],
)
def test_ten_megabytes_are_read_in_seconds(text: str) -> None:
    start = time.perf_counter()
    read_log(text[:MAX_CHARACTERS])
    assert time.perf_counter() - start < 20


@given(st.text(max_size=400), st.sampled_from(["GPU KV cache size: ", "#tokens: ", ""]))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(text: str, before: str) -> None:
    try:
        log = read_log(before + text + "\nGPU KV cache size: 1,024 tokens")
    except CalcError:
        return
    assert log.engine in ("vllm", "sglang")
