"""The flags with which an engine is started as a scenario says, for the version of its rules.

Names and values as in vLLM 0.33.0 engine/arg_utils.py and config/{cache,parallel}.py, and in
SGLang 0.5.23 srt/arg_groups/fields/.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from calc.formats import KV_FORMATS
from calc.report import resolved
from calc.scenario import Scenario

MODEL = "MODEL"
"""Stands for the weights' folder or hub id, which a scenario does not know."""

VLLM_KV = {"bf16": "bfloat16"}
SGLANG_KV = {"bf16": "bfloat16", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
KV_FLAGS = {"vllm": {name: VLLM_KV.get(name, name) for name in KV_FORMATS}, "sglang": SGLANG_KV}
"""By engine: the value of its cache dtype flag for each format that it takes."""


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
    """The command of a scenario's engine; raises CalcError for a layout that cannot exist.

    >>> launch_command(Scenario("deepseek-v3", tp=8, ep="on")).text.splitlines()[:2]
    ['vllm serve MODEL \\\\', '  --tensor-parallel-size 8 \\\\']
    """
    backend, replicated = resolved(scenario)
    make: Callable[[Scenario, str, bool], tuple[list[str], list[str]]] = {
        "vllm": _vllm,
        "sglang": _sglang,
    }[scenario.engine]
    command, left_out = make(scenario, backend, replicated)
    rules = scenario.engine_rules
    return Launch(rules.name, rules.version, tuple(command), tuple(left_out))


def _vllm(made: Scenario, backend: str, replicated: bool) -> tuple[list[str], list[str]]:
    flags = ["vllm", "serve", MODEL, "--tensor-parallel-size", str(made.tp)]
    left_out = []
    for name, value in (("pipeline", made.pp), ("data", made.dp), ("prefill-context", made.pcp)):
        if value > 1:
            flags += [f"--{name}-parallel-size", str(value)]
    if made.dcp > 1:
        flags += ["--decode-context-parallel-size", str(made.dcp), "--dcp-comm-backend", backend]
        left_out += ["query_replication"] if made.query_replication == "on" and replicated else []
    if made.ep != "off":
        flags += ["--enable-expert-parallel"]
        if made.moe_backend != "auto":
            flags += ["--all2all-backend", made.moe_backend]
    flags += ["--kv-cache-dtype", KV_FLAGS["vllm"][made.kv_dtype]]
    flags += ["--max-model-len", str(made.context), "--max-num-seqs", str(made.batch)]
    flags += ["--max-num-batched-tokens", str(made.max_num_batched_tokens)]
    flags += ["--gpu-memory-utilization", f"{made.gpu_memory_utilization:g}"]
    if made.block_size:
        flags += ["--block-size", str(made.block_size)]
    if made.prefix_caching == "off":
        flags += ["--no-enable-prefix-caching"]
    if made.hybrid_kv_manager == "off":
        flags += ["--disable-hybrid-kv-cache-manager"]
    return flags, left_out + _unflagged(made)


def _sglang(made: Scenario, backend: str, replicated: bool) -> tuple[list[str], list[str]]:
    """SGLang counts attention replicas inside its tp group."""
    flags = ["python", "-m", "sglang.launch_server", "--model-path", MODEL]
    flags += ["--tp-size", str(made.tp * made.dp)]
    left_out = []
    if made.dp > 1:
        flags += ["--attn-dp-size", str(made.dp)]
    if made.pp > 1:
        flags += ["--pp-size", str(made.pp)]
    if made.dcp > 1:
        flags += ["--dcp-size", str(made.dcp), "--dcp-comm-backend", backend]
        if made.query_replication != "auto":
            no = "" if made.query_replication == "on" else "no-"
            flags += [f"--{no}dcp-replicate-q-proj"]
    if made.ep != "off":
        flags += ["--ep-size", str(made.layout.ep)]
        if made.moe_backend.startswith("deepep"):
            mode = made.moe_backend.removeprefix("deepep_")
            mode = {"high_throughput": "normal"}.get(mode, mode)
            flags += ["--moe-a2a-backend", "deepep", "--deepep-mode", mode]
    if made.kv_dtype in SGLANG_KV:
        flags += ["--kv-cache-dtype", SGLANG_KV[made.kv_dtype]]
    else:
        left_out.append("kv_dtype")
    flags += ["--context-length", str(made.context)]
    flags += ["--max-running-requests", str(made.batch * made.dp)]
    if made.mem_fraction_static:
        flags += ["--mem-fraction-static", f"{made.mem_fraction_static:g}"]
    if made.block_size:
        flags += ["--page-size", str(made.block_size)]
    if made.prefix_caching == "off":
        flags += ["--disable-radix-cache"]
    return flags, left_out + (["pcp"] if made.pcp > 1 else []) + _unflagged(made)


def _unflagged(made: Scenario) -> list[str]:
    """Fields that change a layout, set here, whose flags depend on more than a scenario says."""
    changed = {"pp_layers": "even", "speculative_tokens": 0, "sequence_parallel": "off"}
    return [name for name, usual in changed.items() if getattr(made, name) != usual]
