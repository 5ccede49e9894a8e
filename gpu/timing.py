"""How a kernel is timed: CUDA graphs, short bursts with idle between, L2 emptied by reading.

Kernels run back to back heat the card until its power limit lowers the clock,
and block medians spread by 10 to 20 %. A few samples after an idle pause show
the kernel itself; ``sustained`` shows what a loaded server sees.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Method:
    """``blocks`` bursts of ``samples`` each, ``idle_s`` of rest before every burst."""

    blocks: int = 5
    samples: int = 6
    idle_s: float = 0.12
    warm_calls: int = 2


SHORT = Method(blocks=3, samples=4)
"""For what is no candidate for the best, or is shown as a rough figure only."""


@dataclass(frozen=True, slots=True)
class Timing:
    """``us`` is the median of block medians, ``min_us`` and ``max_us`` the extreme blocks."""

    us: float
    min_us: float
    max_us: float
    n: int
    graph: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class L2Flush:
    """Reads four times the L2's size; a fill would leave dirty lines to be written back."""

    def __init__(self, device: Any) -> None:
        from gpu.own import read_all, sums_for  # they need Triton; times on a CPU do not

        size = torch.cuda.get_device_properties(device).L2_cache_size
        self.words = torch.randint(0, 9, (max(size, 2**20),), device=device, dtype=torch.int32)
        self.sums = sums_for(self.words)
        self.read = read_all

    def __call__(self) -> None:
        self.read(self.words, self.sums)


class Clock:
    """Times callables on the current device."""

    def __init__(self, method: Method, device: Any) -> None:
        self.method = method
        self.flush = L2Flush(device)

    def time(
        self, call: Callable[[], Any], calls_in_one: int = 1, method: Method | None = None
    ) -> Timing:
        """One call's time. ``calls_in_one``: how often the work is done within a call."""
        method = method or self.method
        replay, graph = captured(call, method.warm_calls)
        medians = [self._block(replay, method) / calls_in_one for _ in range(method.blocks)]
        return Timing(
            statistics.median(medians),
            min(medians),
            max(medians),
            method.blocks * method.samples,
            graph,
        )

    def quick(self, call: Callable[[], Any]) -> float:
        """A rough time, µs, for choosing between settings: the fastest of a few samples.

        Captured too, or starting a kernel from Python would count in short ones.
        """
        replay, _ = captured(call, warm_calls=1)
        replay()
        return min(self._samples(replay, 1) for _ in range(4))

    def sustained(self, call: Callable[[], Any], seconds: float) -> float:
        """Mean time of back-to-back calls over about ``seconds``, after as long a start-up."""
        replay, _ = captured(call)
        once = max(self._samples(replay, 2), 1.0)
        count = max(4, round(seconds * 1e6 / once / 2))
        begin, end = _event(), _event()
        for _ in range(count):
            replay()
        begin.record()
        for _ in range(count):
            replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / count

    def _block(self, replay: Callable[[], Any], method: Method) -> float:
        time.sleep(method.idle_s)
        replay()
        return self._samples(replay, method.samples)

    def _samples(self, replay: Callable[[], Any], count: int) -> float:
        events = [(_event(), _event()) for _ in range(count)]
        for begin, end in events:
            self.flush()
            begin.record()
            replay()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in events)


def captured(call: Callable[[], Any], warm_calls: int = 2) -> tuple[Callable[[], Any], bool]:
    """The call as a CUDA graph's replay; the call itself where it cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_calls):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return call, False
    return graph.replay, True


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)
