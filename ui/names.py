"""Names that come from outside (uploads, links, configs), made harmless before they are shown."""

from __future__ import annotations

import re

from calc.model import ModelSpec
from ui.text import Translator

HARMLESS = re.compile(r"(?!.*www\.)[\w .()+-]{1,80}")
CODE = re.compile(r"[\w.\[\]-]{1,80}")
PLAIN = "Custom"
"""The name of a custom model that nobody named."""


def tidy(text: str, otherwise: str) -> str:
    """A name for a model: letters, digits and a few signs; ``otherwise`` where none is left."""
    kept = re.sub(r"[^\w .()+-]+", " ", text).strip()[:60]
    return kept if HARMLESS.fullmatch(kept) and kept.lower() != "config" else otherwise


def harmless_or(text: str, otherwise: str) -> str:
    """A text that may stand in help or a caption as it is, or other words."""
    return text if re.fullmatch(r"https?://[\w.:-]{1,100}", text, re.ASCII) else otherwise


def code(text: str) -> str:
    """A field's name as code, or a dash."""
    return f"`{text}`" if CODE.fullmatch(text) else "–"


def model(t: Translator, spec: ModelSpec, custom: bool) -> str:
    """How a model is called on the page; a custom one by its name, if that is harmless."""
    if not custom:
        return spec.name
    if spec.name == PLAIN or not HARMLESS.fullmatch(spec.name):
        return t("model.custom")
    return t("model.custom_named", name=spec.name.replace("_", r"\_"))


def kinds(t: Translator, joined: str) -> str:
    """``mla+indexer`` in words."""
    return " + ".join(t.get(f"kind.{kind}.short", "–") for kind in joined.split("+"))
