"""Stands in for ``python -m gpu run``: behaves as its argument says, without a GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[2] / "gpu" / "recorded" / "h200-kimi-k3.json"


def say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(what: str) -> int:
    say(step=1, of=3, name="machine", value=None)
    if what == "child":  # something of its own that must not outlive a cancelled run
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        say(step=2, of=3, name=str(child.pid), value=None)
    if what in ("hang", "child"):
        time.sleep(60)
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(step=2, of=3, name="deaf", value=None)
        time.sleep(60)
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        return 3
    if what == "oom":
        say(error={"code": "out_of_memory", "message": "too little free memory"})
        return 1
    if what == "noise":
        sys.stdout.write("a library says hello\n[1, 2]\n")
    if what == "bad":
        say(result={"kind": "gpu-benchmark", "version": 1})
        return 0
    say(result=json.loads(RECORDED.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
