"""One visitor of the page as a WebSocket client: opens a link, changes an input, reads the numbers.

Speaks Streamlit's own protocol: a BackMsg asks for a run, ForwardMsg deltas draw it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from types import TracebackType

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

RUN_SECONDS = 120


@dataclass
class Visitor:
    """``metrics`` are the numbers in the order in which they were drawn, ``faults`` exceptions."""

    url: str
    query: str
    metrics: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    numbers: dict[str, str] = field(default_factory=dict)
    """Widget ids of number inputs by label."""
    states: dict[str, float] = field(default_factory=dict)

    async def __aenter__(self) -> Visitor:
        address = self.url.replace("http", "ws", 1) + "/_stcore/stream"
        self.socket = await websockets.connect(
            address, subprotocols=[websockets.Subprotocol("streamlit")], max_size=None
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.socket.close()

    async def run(self) -> float:
        """Ask for a run and wait for its end; seconds."""
        asked = BackMsg()
        asked.rerun_script.query_string = self.query
        for name, value in self.states.items():
            state = asked.rerun_script.widget_states.widgets.add()
            state.id, state.double_value = name, value
        start = time.perf_counter()
        await self.socket.send(asked.SerializeToString())
        self.metrics = []
        while True:
            raw = await asyncio.wait_for(self.socket.recv(), RUN_SECONDS)
            message = ForwardMsg()
            message.ParseFromString(raw if isinstance(raw, bytes) else raw.encode())
            if message.WhichOneof("type") == "script_finished":
                return time.perf_counter() - start
            self._read(message)

    def _read(self, message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "page_info_changed":
            self.query = message.page_info_changed.query_string
        if message.WhichOneof("type") != "delta":
            return
        element = message.delta.new_element
        match element.WhichOneof("type"):
            case "metric":
                self.metrics.append(element.metric.body)
            case "exception":
                self.faults.append(element.exception.message)
            case "number_input":
                self.numbers[element.number_input.label] = element.number_input.id

    async def change(self, label: str, value: int) -> float:
        """Type another value into a number input; seconds until the last message of the run."""
        self.states[self.numbers[label]] = value
        return await self.run()
