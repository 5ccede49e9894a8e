"""What is known of this machine without running anything on it: ``python -m gpu facts``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
from typing import Any

QUERY = (
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "clocks.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)
LIBRARIES = (
    "torch",
    "triton",
    "sgl-flash-mla",
    "fa3-fwd",
    "flashinfer-python",
)


class UnavailableError(Exception):
    """The benchmark cannot run here: a code and one sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def nvidia_smi() -> list[dict[str, str]]:
    """One dictionary a GPU; empty where there is no driver or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.split(",") for line in answer.stdout.splitlines() if line.strip())
    return [dict(zip(QUERY, map(str.strip, row), strict=False)) for row in rows]


def libraries() -> dict[str, str | None]:
    """Installed versions, None for what is missing; nothing is imported."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def facts() -> dict[str, Any]:
    """Everything for a person who asks why the benchmark does or does not run."""
    found: dict[str, Any] = {"gpus": nvidia_smi(), "libraries": libraries()}
    try:
        device = usable_device()
    except UnavailableError as error:
        return found | {"ready": False, "reason": error.message}
    return found | {"ready": True, "torch_sees": machine(device)}


def usable_device() -> Any:
    """The first CUDA device of torch; raises UnavailableError with one sentence."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            "no_torch", "PyTorch is not installed (requirements-gpu.txt lists it)"
        )
    import torch

    if not torch.backends.cuda.is_built():
        raise UnavailableError("no_cuda", "this PyTorch is built without CUDA")
    try:
        torch.cuda.init()
        return torch.device("cuda", torch.cuda.current_device())
    except (RuntimeError, AssertionError) as error:
        raise UnavailableError("no_cuda", _driver_sentence(str(error))) from None


def machine(device: Any) -> dict[str, Any]:
    """The fields of ``calc.measured.Machine``."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    row = (nvidia_smi() or [{}])[0]
    return {
        "gpu": properties.name,
        "gpus": torch.cuda.device_count(),
        "driver": row.get("driver_version", "unknown"),
        "cuda": torch.version.cuda or "unknown",
        "torch": torch.__version__,
        "triton": libraries()["triton"],
        "processors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "power_limit_w": _number(row.get("power.limit")),
        "clock_mhz": _number(row.get("clocks.max.sm")),
    }


def _driver_sentence(text: str) -> str:
    first = " ".join(text.split())
    if "driver" in first and ("too old" in first or "mismatch" in first):
        return f"the NVIDIA driver and this PyTorch do not match: {first[:200]}"
    return f"CUDA does not start: {first[:240]}"


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
