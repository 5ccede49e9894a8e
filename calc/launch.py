"""The flags with which an engine is started as a scenario says, for the version of its rules.

Names and values as in vLLM 0.33.0 engine/arg_utils.py and config/{cache,parallel}.py, and in
SGLang 0.5.23 srt/arg_groups/fields/.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from calc.errors import CalcError
from calc.formats import KV_FORMATS
from calc.report import Report, evaluate
from calc.scenario import FIELDS, Scenario
from calc.units import GIB

MODEL = "MODEL"
"""Stands for the weights' folder or hub id, which a scenario does not know."""

VLLM_KV = {"bf16": "bfloat16"}
SGLANG_KV = {"bf16": "bfloat16", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
KV_FLAGS = {"vllm": {name: VLLM_KV.get(name, name) for name in KV_FORMATS}, "sglang": SGLANG_KV}
"""By engine: the value of its cache dtype flag for each format that it takes."""

DTYPES = {"bf16": "bfloat16", "float32": "float32"}
NO_FLAG = {
    "gpu": "the machine",
    "gpu_memory_gib": "the machine",
    "gpus_per_node": "the machine",
    "cache_memory": "says which of two flags is given",
    "activation_gib": "the engine measures it",
    "cuda_graph_gib": "the engine measures it",
    "communication_gib": "the engine measures it",
    "shared_prefix": "what is asked of the engine",
    "lengths": "what is asked of the engine",
    "prefill_tokens": "what is asked of the engine",
    "collective_algorithm": "NCCL's",
    "hbm_efficiency": "of the estimate",
    "attention_efficiency": "of the estimate",
    "gemm_efficiency": "of the estimate",
}
"""Fields that no engine is started with, and why."""
OTHER_ENGINE = {
    "vllm": ("mem_fraction_static", "swa_full_tokens_ratio", "mamba_full_memory_ratio"),
    "sglang": ("gpu_memory_utilization", "async_scheduling", "hybrid_kv_manager"),
}
"""Fields of the other engine, which change nothing of this one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command for ``engine`` at ``version``. ``left_out``: fields for which it has no flag here.

    Over several nodes, addresses and node ranks come on top.
    """

    engine: str
    version: str
    command: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command as a shell reads it, one flag a line."""
        lines: list[str] = []
        for word in map(shlex.quote, self.command):
            if word.startswith("--") or not lines:
                lines.append(word)
            else:
                lines[-1] += f" {word}"
        return " \\\n  ".join(lines)


def launch_command(scenario: Scenario) -> Launch:
    """The command of a scenario's engine; raises CalcError for what ``evaluate`` refuses, and
    where the engine would refuse to start.

    >>> launch_command(Scenario("deepseek-v3", tp=8, ep="on")).text.splitlines()[:2]
    ['vllm serve MODEL \\\\', '  --tensor-parallel-size 8 \\\\']
    """
    report = evaluate(scenario)
    make = {"vllm": _vllm, "sglang": _sglang}[scenario.engine]
    command, left_out = make(report)
    rules = scenario.engine_rules
    return Launch(rules.name, rules.version, tuple(command), tuple(left_out))


def _vllm(report: Report) -> tuple[list[str], list[str]]:
    made = report.scenario
    if made.max_num_batched_tokens < made.batch:  # config/scheduler.py
        raise CalcError(
            "launch_batched",
            "max_num_batched_tokens",
            given=made.max_num_batched_tokens,
            batch=made.batch,
        )
    flags = ["vllm", "serve", MODEL, "--tensor-parallel-size", str(made.tp)]
    for name, value in (("pipeline", made.pp), ("data", made.dp), ("prefill-context", made.pcp)):
        if value > 1:
            flags += [f"--{name}-parallel-size", str(value)]
    if made.dcp > 1:
        flags += ["--decode-context-parallel-size", str(made.dcp)]
        flags += ["--dcp-comm-backend", report.backend]
        flags += _either("dcp-q-replicate", report)
    if made.ep != "off":
        flags += ["--enable-expert-parallel"]
        if made.moe_backend != "auto":
            flags += ["--all2all-backend", made.moe_backend]
    flags += ["--kv-cache-dtype", KV_FLAGS["vllm"][made.kv_dtype]]
    for name, dtype in (("mamba", made.conv_dtype), ("mamba-ssm", made.state_dtype)):
        if dtype != "auto" and _has_states(report):
            flags += [f"--{name}-cache-dtype", DTYPES[dtype]]
    flags += ["--max-model-len", str(made.context), "--max-num-seqs", str(made.batch)]
    flags += ["--max-num-batched-tokens", str(made.max_num_batched_tokens)]
    if report.engine.budget.typed:
        flags += ["--kv-cache-memory-bytes", str(int(made.kv_cache_memory_gib * GIB))]
    else:
        flags += ["--gpu-memory-utilization", f"{made.gpu_memory_utilization:g}"]
    if made.async_scheduling == "off":
        flags += ["--no-async-scheduling"]
    if made.block_size:
        flags += ["--block-size", str(made.block_size)]
    if made.prefix_caching == "off":
        flags += ["--no-enable-prefix-caching"]
    if made.hybrid_kv_manager == "off":
        flags += ["--disable-hybrid-kv-cache-manager"]
    return flags, _unflagged(made, "dispatch_dtype")


def _sglang(report: Report) -> tuple[list[str], list[str]]:
    """SGLang counts attention replicas of a model with experts inside its tp group; replicas that
    share nothing are whole engines (dp-size)."""
    made = report.scenario
    shared = made.dp > 1 and bool(report.model.moe_ffns)
    flags = ["python", "-m", "sglang.launch_server", "--model-path", MODEL]
    flags += ["--tp-size", str(made.tp * made.dp if shared else made.tp)]
    if made.dp > 1:
        flags += ["--attn-dp-size" if shared else "--dp-size", str(made.dp)]
    if made.pp > 1:
        flags += ["--pp-size", str(made.pp)]
    if made.dcp > 1:
        flags += ["--dcp-size", str(made.dcp), "--dcp-comm-backend", report.backend]
        flags += _either("dcp-replicate-q-proj", report)
    unflagged = ["conv_dtype", "pcp"]
    deepep = made.ep != "off" and made.moe_backend.startswith("deepep")
    if made.ep != "off":
        flags += ["--ep-size", str(made.layout.ep)]
    if deepep:
        mode = made.moe_backend.removeprefix("deepep_")
        mode = {"high_throughput": "normal"}.get(mode, mode)
        flags += ["--moe-a2a-backend", "deepep", "--deepep-mode", mode]
    if deepep and made.dispatch_dtype != "auto":
        flags += ["--deepep-dispatcher-output-dtype", made.dispatch_dtype]
    else:
        unflagged.append("dispatch_dtype")
    if made.kv_dtype in SGLANG_KV:
        flags += ["--kv-cache-dtype", SGLANG_KV[made.kv_dtype]]
    else:
        unflagged.append("kv_dtype")
    if made.state_dtype != "auto" and _has_states(report):
        flags += ["--mamba-ssm-dtype", DTYPES[made.state_dtype]]
    flags += ["--context-length", str(made.context)]
    flags += ["--max-running-requests", str(made.batch * made.dp if shared else made.batch)]
    flags += ["--chunked-prefill-size", str(made.max_num_batched_tokens)]
    if report.engine.budget.typed:
        unflagged.append("kv_cache_memory_gib")
    elif made.mem_fraction_static:
        flags += ["--mem-fraction-static", f"{made.mem_fraction_static:g}"]
    for name in ("swa_full_tokens_ratio", "mamba_full_memory_ratio"):
        if getattr(made, name) != FIELDS[name].default:
            flags += [f"--{name.replace('_', '-')}", f"{getattr(made, name):g}"]
    if made.block_size:
        flags += ["--page-size", str(made.block_size)]
    if made.prefix_caching == "off":
        flags += ["--disable-radix-cache"]
    return flags, _unflagged(made, *unflagged)


def _either(flag: str, report: Report) -> list[str]:
    """What was counted is said, whatever the engine would choose for the model by itself."""
    if not report.model.latent_mixers:
        return []
    return [f"--{flag}" if report.query_replicated else f"--no-{flag}"]


def _has_states(report: Report) -> bool:
    return bool(report.cache.stage.state_per_request.value)


def _unflagged(made: Scenario, *more: str) -> list[str]:
    """Fields set here whose flags depend on more than a scenario says, or that have none."""
    names = (*more, "pp_layers", "speculative_tokens", "sequence_parallel", "weight_format")
    return [name for name in (*names, "query_dtype") if getattr(made, name) != usual(name)]


def usual(name: str) -> object:
    """What a field says when nothing was asked; memory that is typed was."""
    return None if name == "kv_cache_memory_gib" else FIELDS[name].default
