"""The parts of README.md that programs can write: ``python -m tests.readme [--check]``.

A ``console`` block with one ``$ python -m calc`` line holds what that line prints (where a ``json``
block follows, an excerpt of it); the table between ``<!-- presets -->`` marks lists every model.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from calc.presets import load_preset, preset_ids
from calc.report import evaluate
from calc.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"

CONSOLE = re.compile(
    r"```console\n\$ (?P<command>python -m calc [^\n]+)\n(?P<printed>.*?)```", re.S
)
EXCERPT = re.compile(
    r"```console\n\$ (?P<command>python -m calc [^\n]+)\n```\n```json\n(?P<json>.*?)```", re.S
)
PRESETS = re.compile(r"(?<=<!-- presets -->\n).*?(?=<!-- /presets -->)", re.S)


def output_of(command: str) -> str:
    """What a command of the README prints; ``| head -n N`` keeps the first lines."""
    words, _, cut = command.partition(" | head -n ")
    printed = subprocess.run(
        [sys.executable, *shlex.split(words)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = printed.splitlines(keepends=True)
    return "".join(lines[: int(cut)] if cut else lines)


def preset_table() -> str:
    """Every preset with the kinds of its layers and the bytes it keeps."""
    lines = [
        "| id | model | layers | a token | windows, full | states |",
        "|---|---|---|---:|---:|---:|",
    ]
    for preset in preset_ids():
        model = load_preset(preset)
        stage = evaluate(Scenario(preset, context=2**20)).cache.stage
        kept = (stage.growing_per_token, stage.window_per_request, stage.state_per_request)
        sizes = " | ".join(f"{item.value:,} B" if item.value else "" for item in kept)
        lines.append(f"| `{preset}` | {model.name} | {layer_kinds(preset)} | {sizes} |")
    return "\n".join(lines) + "\n"


def layer_kinds(preset: str) -> str:
    """Such as ``69 kda, 24 mla``."""
    counts: dict[str, int] = {}
    for layer in load_preset(preset).layers:
        kinds = " + ".join(layer.kinds)
        counts[kinds] = counts.get(kinds, 0) + layer.count
    return ", ".join(f"{count} {kinds}" for kinds, count in counts.items())


def rewritten(text: str) -> str:
    """The README with all its generated parts made anew."""

    def printed(found: re.Match[str]) -> str:
        if EXCERPT.match(text, found.start()):
            return found[0]
        return f"```console\n$ {found['command']}\n{output_of(found['command'])}```"

    return PRESETS.sub(lambda _: preset_table(), CONSOLE.sub(printed, text))


def main() -> int:
    """Write the README, or only say whether it is current."""
    text = README.read_text(encoding="utf-8")
    current = rewritten(text)
    if "--check" in sys.argv[1:]:
        return int(text != current)
    README.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
