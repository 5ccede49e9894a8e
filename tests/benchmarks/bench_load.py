"""Many visitors at once: ``python -m tests.benchmarks.bench_load --sessions 50 --seconds 30``.

Each visitor has a scenario of its own and changes its batch again and again, about once a second
as a person does. Every number that is drawn is compared with what the library computes for that
visitor: a number of somebody else's is cross-talk.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from calc.link import encode, query_string
from calc.report import evaluate
from calc.scenario import Scenario
from tests.benchmarks.load import Visitor
from tests.benchmarks.serving import serving
from ui import numbers

MODELS = ("kimi-k3", "deepseek-v3", "llama-3.1-8b", "gemma-3-27b", "gpt-oss-120b", "qwen3-32b")
THINKING = 1.0
"""Seconds between two changes of a visitor, on average."""


@dataclass
class Load:
    """What came of it."""

    durations: list[float]
    first: list[float]
    faults: list[str]
    wrong: list[str]


async def visit(url: str, number: int, until: float, found: Load) -> None:
    """One visitor until the time is over."""
    random = Random(number)  # noqa: S311 - no secret
    context = 1000 * (number + 2)  # no two visitors have the same numbers
    made = Scenario(MODELS[number % len(MODELS)], tp=8, context=context, batch=8)
    async with Visitor(url, query_string(encode(made) | {"lang": "en"})) as visitor:
        found.first.append(await visitor.run())
        while time.monotonic() < until:
            made = replace(made, batch=random.randrange(1, 500))
            found.durations.append(await visitor.change("Batch (requests per replica)", made.batch))
            request, _, sent, _ = evaluate(made).headline()
            expected = [numbers.memory(request), numbers.traffic(sent)]
            shown = [visitor.metrics[0], visitor.metrics[2]] if len(visitor.metrics) > 2 else []
            if shown != expected:
                found.wrong.append(f"visitor {number}: {shown} instead of {expected}")
            await asyncio.sleep(random.uniform(0, 2 * THINKING))
        found.faults += visitor.faults


async def load(url: str, sessions: int, seconds: float) -> Load:
    """All visitors side by side."""
    found = Load([], [], [], [])
    until = time.monotonic() + seconds
    await asyncio.gather(*(visit(url, number, until, found) for number in range(sessions)))
    return found


def resident(process: subprocess.Popen[bytes]) -> float:
    """MiB that a server holds."""
    status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with serving() as (url, process):
        asyncio.run(load(url, 1, 1.0))
        before = resident(process)
        found = asyncio.run(load(url, options.sessions, options.seconds))
        after = resident(process)
    taken = sorted(found.durations)
    print(f"{options.sessions} sessions, {options.seconds:.0f} s: {len(taken)} changes")
    print(f"first run: median {statistics.median(found.first) * 1e3:.0f} ms")
    print(
        f"change to the end of its run: median {statistics.median(taken) * 1e3:.0f} ms, "
        f"95th percentile {taken[int(0.95 * len(taken))] * 1e3:.0f} ms"
    )
    print(f"errors {len(found.faults)}, numbers of somebody else {len(found.wrong)}")
    print(
        f"memory: {before:.0f} MiB before, {after:.0f} MiB after, "
        f"{(after - before) / options.sessions:.2f} MiB a session"
    )


if __name__ == "__main__":
    main()
