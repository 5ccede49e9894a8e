"""How fast layouts are ranked and inputs are swept: ``python -m tests.benchmarks.bench_plan``.

Each figure is the median of a few runs in a process of its own, cold caches where it says so.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

from calc.errors import CalcError
from calc.planner import plan
from calc.scenario import Scenario
from calc.sweep import MAX_POINTS, read_axis, steps, sweep_over

RUNS = 5
MODELS = {"deepseek-v3": 64, "kimi-k3": 64}
COLD = """
import time
from calc.planner import plan
from calc.scenario import Scenario
base = Scenario({model!r}, gpu="h200", batch=64, context=131072)
start = time.perf_counter()
found = plan(base, {gpus}, backends=("ag_rs",))
print(time.perf_counter() - start, len(found.rows))
"""


def timed(work: Callable[[], object], runs: int = RUNS) -> float:
    """Median seconds of a few runs."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def cold(model: str, gpus: int) -> tuple[float, int]:
    """Seconds and rows of one plan in a fresh process, imports left out; median of three."""
    script = COLD.format(model=model, gpus=gpus)
    runs = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        ).stdout.split()
        runs.append((float(out[0]), int(out[1])))
    return sorted(runs)[1]


def plans() -> None:
    for model, gpus in MODELS.items():
        base = Scenario(model, gpu="h200", batch=64, context=131072)
        first, rows = cold(model, gpus)
        warm = timed(lambda base=base, gpus=gpus: plan(base, gpus, backends=("ag_rs",)))  # type: ignore[misc]
        print(
            f"{model}: {rows:,} layouts of {gpus} GPUs, one backend and format: "
            f"{first * 1e3:.0f} ms cold, {warm * 1e3:.0f} ms again"
        )
        every: dict[str, tuple[str, ...]] = dict.fromkeys(
            ("engines", "backends", "kv_dtypes", "replications"), ("all",)
        )
        start = time.perf_counter()
        found = plan(base, gpus, **every)  # type: ignore[arg-type]
        print(
            f"{model}: {len(found.rows):,} layouts, all engines, backends, formats and "
            f"replications: {time.perf_counter() - start:.2f} s"
        )


def sweeps() -> None:
    base = Scenario("kimi-k3", tp=8, dcp=8, gpu="h200")
    axes = [steps("context", 1000, 1000 * 1000, 1000), steps("batch", 1, 1000)]
    for output in ("request_bytes", "batch_bytes", "max_requests", "short_bytes"):
        seconds = timed(lambda output=output: sweep_over(base, output, axes), 3)  # type: ignore[misc]
        print(f"sweep of 1,000,000 points, {output}: {seconds * 1e3:.0f} ms")
    tracemalloc.start()
    sweep_over(base, "batch_bytes", axes)
    print(
        f"  most memory held while sweeping: {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB"
    )
    tracemalloc.stop()
    try:
        sweep_over(
            base, "batch_bytes", [read_axis("context=1:100000:1"), read_axis("batch=1:9999")]
        )
    except CalcError as error:
        print(f"  10^9 points are refused: {error} (cap {MAX_POINTS:,})")


if __name__ == "__main__":
    plans()
    sweeps()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"most resident memory: {most:.0f} MiB")
