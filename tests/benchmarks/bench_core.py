"""How long the calculation takes; prints figures and asserts nothing.

Run from the project's folder: ``.venv/bin/python -m tests.benchmarks.bench_core``
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from calc.link import decode_query, encode, query_string
from calc.presets import FOLDER, preset_ids, read_preset
from calc.report import evaluate
from calc.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
KIMI_K3 = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131_072)

IMPORTS = {
    "nothing": "pass",
    "numpy and pydantic": "import numpy, pydantic",
    "calc with all that evaluates": "import calc.report, calc.link",
}


def seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """Durations of single calls, after one that is not counted."""
    work()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def in_fresh_process(code: str) -> float:
    """Seconds from starting an interpreter to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return time.perf_counter() - start


def show(what: str, found: list[float]) -> None:
    """One line: median, and the range of the middle nine tenths, in milliseconds."""
    ordered = sorted(found)
    low, high = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
    middle = median(ordered) * 1e3
    print(f"{what:<46}{middle:>10.3f} ms   ({low * 1e3:.3f} to {high * 1e3:.3f}, n={len(found)})")


def main() -> None:
    """All figures."""
    show("evaluate(), Kimi K3, tp=dcp=8", seconds(lambda: evaluate(KIMI_K3), 500))
    big = Scenario(
        "kimi-k3", tp=8, dcp=8, pp=4, batch=64, speculative_tokens=3, prefill_tokens=8192
    )
    show("evaluate(), the same with pp=4, drafts, prefill", seconds(lambda: evaluate(big), 300))
    query = query_string(encode(KIMI_K3))
    show("a link, written", seconds(lambda: query_string(encode(KIMI_K3)), 500))
    show("a link, read", seconds(lambda: decode_query(query), 500))
    paths = [FOLDER / f"{preset}.yaml" for preset in preset_ids()]
    show(
        f"all {len(paths)} presets, read and checked",
        seconds(lambda: [read_preset(path) for path in paths], 5),
    )
    show("the preset of Kimi K3 alone", seconds(lambda: read_preset(FOLDER / "kimi-k3.yaml"), 20))
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for turn in range(10):  # interleaved, so that a busy moment is not one candidate's alone
        for name, code in IMPORTS.items():
            taken = in_fresh_process(code)
            if turn:  # the first run may have to compile and to read the disk
                found[name].append(taken)
    for name, durations in found.items():
        show(f"an interpreter that imports {name}", durations)
    above = median(found["calc with all that evaluates"]) - median(found["numpy and pydantic"])
    print(f"{'calc above numpy and pydantic':<46}{above * 1e3:>10.1f} ms")


if __name__ == "__main__":
    main()
