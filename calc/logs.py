"""Reads a pasted start-up log of vLLM or SGLang.

A log is untrusted text: it is bounded in size, read once line by line, and each
line only up to a length; patterns are tried only on lines that hold their key
words. Nothing of it is run, and texts taken from it must not be drawn as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from calc.errors import CalcError

MAX_CHARACTERS = 10 * 1024 * 1024
MAX_LINE = 20_000
MAX_VALUES = 64
"""Different values kept of one fact; a log with more says nothing about it."""

Engine = Literal["vllm", "sglang"]

FOREIGN = {
    "llama.cpp": ("llama_model_loader", "llama_kv_cache", "llama_context", "ggml_"),
    "Ollama": ("ollama serve", 'msg="llama runner', "source=routes.go"),
    "TensorRT-LLM": ("[TensorRT-LLM]", "[TRT-LLM]"),
    "LMDeploy": ("lmdeploy - ", "[TM]["),
    "TGI": ("text_generation_launcher", "text_generation_router"),
}
"""Words by which the logs of other tools are known."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One value that a log states, and the line it stands in (from 1)."""

    name: str
    value: float | int | str
    line: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two lines that cannot both be true of one start."""

    name: str
    first: Fact
    second: Fact


@dataclass(slots=True)
class EngineLog:
    """What a log states. ``one`` gives a fact's first value; ``conflicts`` name those with more."""

    engine: Engine
    lines: int
    facts: list[Fact] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)

    def one(self, name: str) -> float | int | str | None:
        """The first value stated, or the least where ranks differ (memory, blocks)."""
        values = [fact.value for fact in self.facts if fact.name == name]
        if not values:
            return None
        if name in LEAST_OF_RANKS:
            return min(value for value in values if not isinstance(value, str))
        return values[0]

    def number(self, name: str) -> float | None:
        """A fact as a number."""
        value = self.one(name)
        return None if value is None or isinstance(value, str) else float(value)

    def whole(self, name: str) -> int | None:
        """A fact as a whole number."""
        value = self.one(name)
        return value if isinstance(value, int) else None

    @property
    def size_line(self) -> Literal["product", "by_group", "either", "unknown"]:
        """Which definition the token line of vLLM uses.

        ``product``: the concurrency times the length it is for. ``by_group``: the
        blocks shared out to the groups. ``either``: the two agree here.
        """
        tokens, length = self.whole("cache_tokens"), self.whole("concurrency_length")
        concurrency = self.number("concurrency")
        if tokens is None or length is None or concurrency is None:
            return "unknown"
        near = abs(tokens - concurrency * length) <= 0.0051 * length + 1
        if self.one("merged_line"):
            return "product"
        return "either" if near else "by_group"


LEAST_OF_RANKS = ("available_gib", "gpu_blocks", "cache_tokens", "pool_tokens", "concurrency")
"""Facts that each rank states for itself; the least binds, and they hardly differ."""
SEVERAL = (
    "version",
    "model",
    "weights_gib",
    "merged_line",
    "state_gib",
    "pool_gib",
    "k_gib",
    "allocated_tokens",
    "slots",
)
"""Facts that a log may state several times (drafts, second pools) without contradicting itself."""
NEAR = 0.1
"""Ranks of one start differ by less than this share; more is a contradiction."""

Rule = tuple[str, str, str, Callable[[str], float | int | str]]


def _whole(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _words(text: str) -> str:
    return text[:200]


def _gib(text: str) -> float:
    return float(text.replace(",", ""))


COUNT = r"([0-9][0-9,]{0,18})"
DECIMAL = r"([0-9][0-9,]{0,12}(?:\.[0-9]{1,6})?)"
QUOTED = r"['\"]([^'\"]{1,200})['\"]"

RULES: dict[Engine, tuple[Rule, ...]] = {
    "vllm": (
        ("version", "LLM engine (v", r"LLM engine \(v([0-9A-Za-z.+\-]{1,40})\)", _words),
        (
            "version",
            "vLLM API server version",
            r"API server version:? ([0-9A-Za-z.+\-]{1,40})",
            _words,
        ),
        ("version", " version ", r"version ([0-9]+\.[0-9]+[0-9A-Za-z.+\-]{0,30})", _words),
        ("model", "model=", rf"\bmodel={QUOTED}", _words),
        ("model", "'model'", rf"'model': {QUOTED}", _words),
        ("model", "'model_tag'", rf"'model_tag': {QUOTED}", _words),
        ("dtype", "dtype=", r"\bdtype=(?:torch\.)?(\w{1,20})", _words),
        ("kv_dtype", "kv_cache_dtype", r"kv_cache_dtype['\"]?[=:]\s?['\"]?([\w]{1,24})", _words),
        ("max_model_len", "max_seq_len=", r"\bmax_seq_len=([0-9]{1,12})", _whole),
        ("max_model_len", "max_model_len", r"max_model_len['\"]?[=:]\s?([0-9]{1,12})", _whole),
        ("max_model_len", "max seq len", r"max seq len \(([0-9]{1,12})\)", _whole),
        ("tp", "tensor_parallel_size", r"tensor_parallel_size['\"]?[=:]\s?([0-9]{1,5})", _whole),
        (
            "pp",
            "pipeline_parallel_size",
            r"pipeline_parallel_size['\"]?[=:]\s?([0-9]{1,5})",
            _whole,
        ),
        ("dp", "data_parallel_size", r"data_parallel_size['\"]?[=:]\s?([0-9]{1,5})", _whole),
        (
            "dcp",
            "decode_context_parallel_size",
            r"decode_context_parallel_size['\"]?[=:]\s?([0-9]{1,5})",
            _whole,
        ),
        ("block_size", "block_size", r"(?<![\w])block_size['\"]?[=:]\s?([0-9]{1,7})", _whole),
        (
            "prefix_caching",
            "enable_prefix_caching",
            r"enable_prefix_caching['\"]?[=:]\s?(True|False)",
            _words,
        ),
        (
            "batched_tokens",
            "max_num_batched_tokens",
            r"max_num_batched_tokens['\"]?[= :]{1,2}([0-9]{1,10})",
            _whole,
        ),
        (
            "utilization",
            "gpu_memory_utilization",
            r"gpu_memory_utilization['\"]?[= (:]{1,2}([01]?\.[0-9]{1,6}|1\.0)",
            _gib,
        ),
        (
            "speculative_tokens",
            "num_speculative_tokens",
            r"num_speculative_tokens['\"]?[=:]\s?([0-9]{1,4})",
            _whole,
        ),
        ("speculative_tokens", "num_spec_tokens=", r"num_spec_tokens=([0-9]{1,4})", _whole),
        (
            "weights_gib",
            "odel",
            rf"[Mm]odel (?:loading took|weights take|weights took) {DECIMAL} ?Gi?B",
            _gib,
        ),
        ("weights_gib", "Loading model weights took", rf"weights took {DECIMAL} GB", _gib),
        ("available_gib", "Available KV cache memory", rf"KV cache memory: {DECIMAL} GiB", _gib),
        (
            "available_gib",
            "reserved for KV Cache is",
            rf"reserved for KV Cache is {DECIMAL}GiB",
            _gib,
        ),
        ("available_gib", "kv_cache_size=", rf"kv_cache_size={DECIMAL}GiB", _gib),
        (
            "available_gib",
            "available KV cache memory",
            rf"available KV cache memory \({DECIMAL} GiB\)",
            _gib,
        ),
        ("gpu_blocks", "blocks", rf"(?:# )?(?:GPU|CUDA|cuda|gpu) blocks: {COUNT}", _whole),
        ("cache_tokens", "GPU KV cache size", rf"GPU KV cache size: {COUNT} tokens", _whole),
        ("merged_line", "GPU KV cache size", r"(cache size: [0-9,]{1,20} tokens, Maximum)", _words),
        (
            "concurrency_length",
            "Maximum concurrency for",
            rf"concurrency for {COUNT} tokens",
            _whole,
        ),
        ("concurrency", "Maximum concurrency for", rf"per request: {DECIMAL}x", _gib),
        (
            "attention_block",
            "etting attention block size",
            rf"block size to {COUNT} tokens",
            _whole,
        ),
        ("padding_percent", "adding mamba page size by", rf"page size by {DECIMAL}%", _gib),
        ("padding_layers", "padding layers", rf"Add {COUNT} padding layers", _whole),
        ("needed_gib", "KV cache is needed", rf"{DECIMAL} GiB KV cache is needed", _gib),
        ("estimated_length", "estimated maximum model length", rf"model length is {COUNT}", _whole),
        ("stored_tokens", "stored in KV cache", rf"stored in KV cache \({COUNT}\)", _whole),
    ),
    "sglang": (
        (
            "version",
            "sglang",
            r"sglang[ =_a-z\-]{0,12}v?([0-9]+\.[0-9]+[0-9A-Za-z.+]{0,30})",
            _words,
        ),
        ("model", "model_path=", rf"model_path={QUOTED}", _words),
        ("tp", "tp_size=", r"\btp_size=([0-9]{1,5})", _whole),
        ("pp", "pp_size=", r"\bpp_size=([0-9]{1,5})", _whole),
        ("dp", "dp_size=", r"\bdp_size=([0-9]{1,5})", _whole),
        ("dcp", "dcp_size=", r"\bdcp_size=([0-9]{1,5})", _whole),
        ("page_size", "page_size=", r"\bpage_size=([0-9]{1,6})", _whole),
        ("kv_dtype", "kv_cache_dtype=", r"kv_cache_dtype='?(\w{1,24})", _words),
        ("dtype", "dtype: torch.", r"dtype: torch\.(\w{1,20})", _words),
        ("static_fraction", "mem_fraction_static=", r"mem_fraction_static=(0?\.[0-9]{1,6})", _gib),
        ("max_model_len", "context_len=", r"\bcontext_len=([0-9]{1,12})", _whole),
        ("allocated_tokens", "#tokens:", rf"#tokens: {COUNT}", _whole),
        ("pool_tokens", "max_total_num_tokens=", rf"max_total_num_tokens={COUNT}", _whole),
        ("pool_gib", "KV size:", rf"KV size: {DECIMAL} GB", _gib),
        ("k_gib", "K size:", rf"\bK size: {DECIMAL} GB", _gib),
        ("running", "max_running_requests=", r"max_running_requests=([0-9]{1,8})", _whole),
        ("slots", "max_mamba_cache_size", r"max_mamba_cache_size: ([0-9]{1,9})", _whole),
        ("state_gib", "ssm_state size", rf"ssm_state size: ?{DECIMAL} ?GB", _gib),
        ("window_tokens", "swa size", rf"swa size: {COUNT}", _whole),
        (
            "window_tokens",
            "swa_max_total_num_tokens=",
            rf"swa_max_total_num_tokens={COUNT}",
            _whole,
        ),
    ),
}
COMPILED = {
    engine: tuple(
        (name, key, re.compile(pattern, re.ASCII), read) for name, key, pattern, read in rules
    )
    for engine, rules in RULES.items()
}
OWN_WORDS: dict[Engine, tuple[str, ...]] = {
    "vllm": (
        "GPU KV cache size",
        "Maximum concurrency for",
        "Available KV cache memory",
        "LLM engine (v",
        "GPU blocks:",
        "CUDA blocks:",
        "KV cache is needed",
        "KV cache memory (",
        "attention block size to",
        "stored in KV cache",
    ),
    "sglang": (
        "KV Cache is allocated",
        "max_total_num_tokens=",
        "Mamba Cache is allocated",
        "Memory pool end",
        "mem_fraction_static=",
    ),
}


def read_log(text: str) -> EngineLog:
    """What a pasted log states; raises CalcError for logs of other tools and of a size beyond."""
    if len(text) > MAX_CHARACTERS:
        raise CalcError("log_too_long", "log", length=len(text), maximum=MAX_CHARACTERS)
    engine = _engine(text)
    log = EngineLog(engine, lines=text.count("\n") + 1)
    seen: dict[str, set[float | int | str]] = {}
    for fact in _facts(text, engine):
        values = seen.setdefault(fact.name, set())
        if fact.value not in values and len(values) < MAX_VALUES:
            values.add(fact.value)
            log.facts.append(fact)
    log.conflicts = list(_conflicts(log))
    return log


def _engine(text: str) -> Engine:
    """By the words that only one engine prints; the first of them where both occur."""
    found = {
        name: min((at for word in words if (at := text.find(word)) >= 0), default=-1)
        for name, words in OWN_WORDS.items()
    }
    known = {name: at for name, at in found.items() if at >= 0}
    if known:
        return min(known, key=lambda name: known[name])
    for tool, words in FOREIGN.items():
        if any(word in text for word in words):
            raise CalcError("log_foreign", "log", tool=tool)
    raise CalcError("log_empty", "log")


def _facts(text: str, engine: Engine) -> Iterator[Fact]:
    rules = COMPILED[engine]
    for number, line in enumerate(text.splitlines(), 1):
        line = line[:MAX_LINE]
        for name, key, pattern, read in rules:
            if key in line:
                found = pattern.search(line)
                if found:
                    yield Fact(name, read(found[1]), number)


def _conflicts(log: EngineLog) -> Iterator[Conflict]:
    """Different values where one start has one; ranks may differ a little in what they measure."""
    first: dict[str, Fact] = {}
    for fact in log.facts:
        before = first.setdefault(fact.name, fact)
        if before is fact or fact.name in SEVERAL:
            continue
        if fact.name not in LEAST_OF_RANKS or _far(before.value, fact.value):
            yield Conflict(fact.name, before, fact)
    length, asked = log.whole("concurrency_length"), log.whole("max_model_len")
    if length and asked and length != asked:
        facts = {fact.name: fact for fact in reversed(log.facts)}
        yield Conflict("max_model_len", facts["max_model_len"], facts["concurrency_length"])


def _far(one: float | int | str, other: float | int | str) -> bool:
    """Whether two ranks' figures are further apart than ranks of one start are."""
    if isinstance(one, str) or isinstance(other, str):
        return one != other
    return abs(one - other) > NEAR * max(one, other)
