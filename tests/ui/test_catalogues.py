"""Both catalogues are complete, say the same, and hold nothing that is not used."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import calc
from calc.collectives import Collective
from calc.engines import ENGINES
from calc.errors import MESSAGES
from calc.items import FORMULAS, Status
from calc.layers import Growth
from calc.presets import preset_ids
from calc.report import NOT_COUNTED, evaluate
from calc.scenario import FIELDS, Scenario
from ui.custom_fields import KINDS, part_fields
from ui.errors import slug
from ui.text import LANGUAGES, Translator, catalogue

ROOT = Path(__file__).resolve().parents[2]
UI = sorted((ROOT / "ui").rglob("*.py"))

for module in pkgutil.walk_packages(calc.__path__, "calc."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

GIVEN_BY_DATA = [
    "reuse",
    "identity",
    "alt",
    "backend",
    "caution",
    "chart",
    "collective",
    "column",
    "counted",
    "custom",
    "dcp_rule",
    "derived",
    "error",
    "field",
    "formula",
    "gpu",
    "growth",
    "help",
    "item",
    "kind",
    "not_counted",
    "option",
    "part",
    "reason",
    "stage",
    "status",
    "store",
    "symbol",
    "unit",
    "view",
    "word",
    "card",
    "inputs",
    "claim",
    "compare",
    "granularity",
    "hub",
    "config",
    "budget",
    "engine",
    "log",
    "pool",
    "waste",
    "capacity",
    "model",
    "role",
    "whatif",
    "step",
    "learn",
    "proof",
    "proofs",
    "plan",
    "export",
    "derive",
    "story",
    "claims",
    "checked",
    "practice",
]
"""First parts of ids whose last part comes from data."""


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", text))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_catalogue_has_the_same_ids_and_placeholders(lang: str) -> None:
    texts, english = catalogue(lang), catalogue("en")
    assert sorted(texts) == sorted(english)
    differing = [key for key in english if placeholders(texts[key]) != placeholders(english[key])]
    assert not differing


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_text_is_empty_or_carries_an_image_or_emoji(lang: str) -> None:
    for key, text in catalogue(lang).items():
        assert text.strip() or "separator" in key, key
        assert "![" not in text, key
        assert not re.search("[\U0001f300-\U0001faff☀-⛿]", text), key


def used_ids() -> set[str]:
    """Ids written out in the source."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in UI)
    return set(re.findall(r"""["']([a-z_]+(?:\.\w+)*)["']""", source))


def test_every_id_written_in_the_source_has_a_text() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in UI)
    asked = set(re.findall(r"""\bt\(\s*["']([\w.]+)["']""", source))
    assert len(asked) > 60
    assert not asked - set(catalogue("en"))


def test_every_text_is_used() -> None:
    used = used_ids()
    unused = [
        key
        for key in catalogue("en")
        if key not in used
        and key.partition(".")[0] not in GIVEN_BY_DATA
        and not key.startswith("link.corrected.")
    ]
    assert not unused


def wanted() -> set[str]:
    """Ids that the data of ``calc`` asks for."""
    symbols = {name for formula in FORMULAS.values() for name in formula.parameters}
    ids = {f"formula.{name}" for name in FORMULAS}
    ids |= {f"symbol.{name}" for name in symbols}
    ids |= {f"unit.{slug(formula.unit)}" for formula in FORMULAS.values() if slug(formula.unit)}
    ids |= {f"error.{code}" for code in MESSAGES}
    ids |= {f"{what}.{name}" for name in FIELDS for what in ("field", "help")}
    ids |= {f"not_counted.{name}" for name in NOT_COUNTED}
    ids |= {f"collective.{name}" for name in Collective}
    ids |= {f"growth.{name}" for name in Growth}
    ids |= {f"status.{slug(name)}" for name in Status}
    ids |= {f"dcp_rule.{slug(engine.dcp_rule)}" for engine in ENGINES.values()}
    ids |= {f"backend.{name}" for engine in ENGINES.values() for name in engine.backends}
    for kind in KINDS:
        ids |= {f"kind.{kind}.name", f"kind.{kind}.short"}
        ids |= {f"part.{field.name}" for field in part_fields(kind)}
        if kind not in ("dense", "moe"):
            ids |= {f"kind.{kind}.{what}" for what in ("keeps", "prefix", "tp")}
    return ids


def test_everything_that_calc_names_has_its_text() -> None:
    assert not sorted(wanted() - set(catalogue("en")))


@pytest.mark.parametrize("preset", preset_ids())
def test_every_stage_and_store_of_a_preset_has_its_text(preset: str) -> None:
    texts = catalogue("en")
    layouts: tuple[dict[str, Any], ...] = (
        {},
        {"tp": 8, "pp": 2},
        {"tp": 8, "dcp": 8},
        {"tp": 8, "dcp": 8, "engine": "sglang"},
    )
    for layout in (*layouts, {"tp": 8, "dp": 2, "ep": "on", "prefill_tokens": 100}):
        try:
            report = evaluate(Scenario(preset, **layout))
        except ValueError:
            continue
        steps = [report.step] + ([report.prefill] if report.prefill else [])
        for stage in [stage for step in steps for stage in step.stages]:
            assert f"stage.{stage.name}" in texts
            assert f"kind.{stage.kind}.short" in texts
            assert not stage.number or f"stage.{stage.name}.does" in texts
        for part in report.cache.stage.components:
            assert f"store.{part.store.name}" in texts


def test_a_missing_text_shows_its_id_and_does_not_raise() -> None:
    assert Translator("en")("no.such.id", value=1) == "no.such.id"
