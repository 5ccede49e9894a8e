"""The engines by id."""

from __future__ import annotations

from calc.engines.base import DcpBackend, Engine
from calc.engines.sglang import Sglang
from calc.engines.vllm import Vllm

ENGINES: dict[str, Engine] = {engine.id: engine for engine in (Vllm(), Sglang())}

__all__ = ["ENGINES", "DcpBackend", "Engine"]
