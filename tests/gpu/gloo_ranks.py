"""One of several CPU processes: moves a scenario's collectives through gloo and counts the bytes.

Prints, on rank 0, a JSON list of [name, counted bytes over all ranks, right]. The counter is that
of the loopback interface, so all ranks keep quiet around a reading.
"""

import json
import sys
import time
from pathlib import Path

import torch.distributed as dist

from calc.scenario import Scenario
from gpu.collective_plan import calls_for
from gpu.collectives import Collected, join

SCENARIO = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=8192, dcp_backend="a2a")


def loopback() -> int:
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    return 0


def quiet(seconds: float) -> None:
    dist.barrier()
    time.sleep(seconds)


def counted(collected: Collected) -> int:
    quiet(0.2)
    before = loopback()
    time.sleep(0.4)
    collected.run()
    time.sleep(0.4)
    after = loopback()
    quiet(0.1)
    return after - before


def main() -> None:
    place = join("gloo", sys.argv[1])
    rows = []
    for call in calls_for(SCENARIO, place.ranks):
        if call.payload_bytes > 16 * 2**20:
            continue
        collected = Collected(call, place.rank, place.device)
        right = collected.right()
        rows.append([call.name, counted(collected), right])
    if place.rank == 0:
        sys.stdout.write(json.dumps(rows) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
