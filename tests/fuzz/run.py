"""Fuzz everything that reads text from outside: ``python -m tests.fuzz.run --inputs 1000000``.

Both results and named refusals are fine. Anything else that is raised, an input that takes too
long, and memory that grows beyond its bound end the run with the input that did it.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, outcome, seeds

MOST_MEMORY = 3 * 2**30


def fuzz(seed: int, inputs: int) -> Counter[tuple[str, str]]:
    """That many inputs over all targets, in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    random = Random(seed)  # noqa: S311 - no secret
    counts: Counter[tuple[str, str]] = Counter()
    for target in TARGETS:
        for _ in range(max(1, round(inputs * target.share))):
            text = mutated(random, seeds(target.name))
            start = time.perf_counter()
            try:
                found = outcome(target, text)
            except BaseException as error:
                raise AssertionError(f"{target.name}: {error!r} from {text[:2000]!r}") from error
            took = time.perf_counter() - start
            assert took < target.seconds, f"{target.name}: {took:.1f} s for {text[:2000]!r}"
            counts[target.name, found] += 1
    return counts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    start = time.perf_counter()
    each = options.inputs // options.processes
    with ProcessPoolExecutor(options.processes) as pool:
        runs = [pool.submit(fuzz, options.seed + at, each) for at in range(options.processes)]
        counts: Counter[tuple[str, str]] = sum((run.result() for run in runs), Counter())
    for (name, found), count in sorted(counts.items()):
        print(f"{name:<16}{found:<9}{count:>10,}")
    print(f"{sum(counts.values()):,} inputs in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
