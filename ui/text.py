"""The page's texts: a folder of catalogues a language, looked up by language-neutral ids."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

LANGUAGES = {"en": "EN", "zh": "中文"}
FOLDER = Path(__file__).parent / "locales"


@functools.cache
def catalogue(lang: str) -> dict[str, str]:
    """All texts of a language by id, from all its files."""
    texts: dict[str, str] = {}
    for path in sorted((FOLDER / lang).glob("*.toml")):
        for key, text in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if key in texts:
                raise ValueError(f"{key} stands in {path.name} and in another file of {lang}")
            texts[key] = text
    return texts


class Translator:
    """``t("card.batch.per", budget="80 GiB")`` gives the text of one language.

    An id without a text shows as itself: a missing word must not take the page down, and a test
    finds it.
    """

    def __init__(self, lang: str) -> None:
        self.lang = lang
        self._texts = catalogue(lang)

    def __call__(self, key: str, /, **values: Any) -> str:
        return self._texts.get(key, key).format(**values)

    def get(self, key: str, otherwise: str) -> str:
        """The text of an id that may have none (a name given by data)."""
        return self._texts.get(key, otherwise)
