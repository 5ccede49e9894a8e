"""What is fuzzed: readers of text from outside, each with good inputs to start from."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calc.__main__ import main
from calc.chunks import parse_chunks
from calc.errors import CalcError
from calc.hf_config import read_config
from calc.learn.answers import UNITS, read_answer
from calc.link import LinkError, decode_query, encode, pack_spec, query_string, unpack_spec
from calc.logs import read_log
from calc.measured import read_result
from calc.pins import pack_pins, unpack_pins
from calc.presets import CUSTOM, load_preset
from calc.report import evaluate
from calc.reuse_asked import split
from calc.scenario import Scenario
from calc.sweep import read_axis

ROOT = Path(__file__).resolve().parents[2]
NAMED = (CalcError, LinkError)
"""What a refusal may be; anything else that is raised is a fault."""


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` takes any text; ``seeds`` are good ones; ``share`` of all inputs go to it."""

    name: str
    run: Callable[[str], object]
    seeds: Callable[[], list[str]]
    share: float
    seconds: float = 2.0


def _links() -> list[str]:
    lines = (ROOT / "tests/data/links_v1.txt").read_text("utf-8").splitlines()
    asked = {"reuse_missing": "state=3, 7-9", "plan_gpus": 16, "learn_quiz": 7}
    made = query_string(encode(Scenario("kimi-k3", tp=8, dcp=8), (1, 2, 3, 4), asked))
    return [made, *(line.split()[0] for line in lines if line and not line.startswith("#"))]


def _custom(preset: str) -> Any:
    return load_preset(preset).model_copy(update={"id": CUSTOM})


def _specs() -> list[str]:
    return [pack_spec(_custom(name)) for name in ("llama-3.1-8b", "kimi-k3", "jamba-1.5-mini")]


def _pins() -> list[str]:
    return [pack_pins([Scenario("kimi-k3", tp=8), Scenario("deepseek-v3")])]


def _configs() -> list[str]:
    return [
        path.read_text("utf-8") for path in sorted((ROOT / "tests/data/configs").glob("*.json"))
    ]


def _logs() -> list[str]:
    return [
        (
            "INFO [core.py] vLLM v0.33.0\n"
            "INFO [gpu_worker.py] Available KV cache memory: 44.63 GiB\n"
            "INFO [kv_cache_utils.py] GPU KV cache size: 664,288 tokens\n"
            "INFO [kv_cache_utils.py] Maximum concurrency for 131,072 tokens per request: 5.07x\n"
        ),
        (
            "[2026-07-01 10:00:00 TP0] Load weight end. avail mem=60.25 GB, mem usage=17.80 GB.\n"
            "[2026-07-01 10:00:01 TP0] KV Cache is allocated. #tokens: 432000, K size: 26.40 GB\n"
            "[2026-07-01 10:00:02 TP0] max_total_num_tokens=432000, chunked_prefill_size=8192\n"
        ),
    ]


def _results() -> list[str]:
    return [path.read_text("utf-8") for path in sorted((ROOT / "gpu/recorded").glob("*.json"))]


def _evaluated_link(text: str) -> object:
    return evaluate(decode_query(text).scenario).headline()


def _answer(text: str) -> object:
    unit, _, rest = text.partition("|")
    return read_answer(rest, unit if unit in UNITS else "B")


def _missing(text: str) -> object:
    return [parse_chunks(chunks, group) for group, chunks in split(text).items()]


def _command(text: str) -> object:
    """The command line in this process; a usage error of argparse is a refusal too."""
    words = [word for word in text.split("\x00") if not word.startswith(("--config", "--other"))]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = main(words)
        except SystemExit as left:
            status = int(left.code or 0)
    assert status in (0, 2)
    return status


def _commands() -> list[str]:
    lines = (
        "evaluate --preset kimi-k3 --tp 8 --dcp 8 --batch 64 --json",
        "reuse --preset gemma-3-27b --prefix 5000 --missing window=3",
        "sweep --preset deepseek-v3 --axis context=1000:5000:1000 --axis tp=1,2",
        "export --preset deepseek-v3 --format csv",
        "quiz --seed 7 --topic kv",
        "timing --collective all_reduce --bytes 1000",
    )
    return ["\x00".join(shlex.split(line)) for line in lines]


TARGETS = (
    Target("answer", _answer, lambda: ["B|68.6 KiB", "tokens|128Ki", "%|19 %", "×|53.3x"], 0.34),
    Target("link", decode_query, _links, 0.25),
    Target("axis", read_axis, lambda: ["tp=1,2,4", "context=1:99:3", "batch=1:64:x2"], 0.13),
    Target("missing", _missing, lambda: ["window=0-3,7;state=2", "growing=1"], 0.13),
    Target("spec", unpack_spec, _specs, 0.05),
    Target("pins", unpack_pins, _pins, 0.05),
    Target("log", read_log, _logs, 0.02),
    Target("config", read_config, _configs, 0.014),
    Target("evaluated link", _evaluated_link, _links, 0.01),
    Target("result", read_result, _results, 0.004),
    Target("command", _command, _commands, 0.002, seconds=20.0),
)
"""Shares sum to one."""


@cache
def seeds(name: str) -> tuple[str, ...]:
    """The good inputs of a target."""
    return tuple(next(one for one in TARGETS if one.name == name).seeds())


def outcome(target: Target, text: str) -> str:
    """``result`` or ``refused``; anything else that happens is raised."""
    try:
        target.run(text)
    except NAMED:
        return "refused"
    return "result"
