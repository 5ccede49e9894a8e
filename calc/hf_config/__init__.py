"""A Hugging Face config.json becomes a ModelSpec, by its fields and its model type.

Never by the model's name. What decided each layer's kind is reported; a field
that matters and is missing is an error with its name; one that may affect the
cache and was not understood is a warning, never a guess.
"""

from __future__ import annotations

from calc.hf_config.reader import Finding, Imported, Notice, read_config

__all__ = ["Finding", "Imported", "Notice", "read_config"]
