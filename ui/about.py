"""What the page is, its words, and where the numbers of the chosen model come from."""

from __future__ import annotations

import streamlit as st

from calc.engines import ENGINES
from calc.model import ModelSpec
from ui import numbers, tables
from ui.state import Result
from ui.text import Translator
from ui.views import parts

WORDS = ("rank", "replica", "payload", "sent", "growing", "state", "units", "million")


def draw(t: Translator, result: Result) -> None:
    """The whole view; needs no report, so that it opens for a scenario that cannot be, too."""
    st.markdown(t("about.what"))
    engines = " · ".join(f"{engine.name} {engine.version}" for engine in ENGINES.values())
    st.markdown(t("about.engines", engines=engines))
    st.subheader(t("about.words"), anchor=False)
    st.markdown(
        "\n".join(f"- **{t(f'word.{word}')}** · {t(f'word.{word}.means')}" for word in WORDS)
    )
    if result.scenario is not None:
        _model(t, result.scenario.model_spec)
    parts.not_counted(t, result.report)


def _model(t: Translator, spec: ModelSpec) -> None:
    st.subheader(t("about.layers"), anchor=False)
    layers: dict[tuple[str, ...], int] = {}
    for layer in spec.layers:
        parts_of = tuple(part.kind for part in (*layer.mixers, *layer.ffns)) or ("none",)
        layers[parts_of] = layers.get(parts_of, 0) + layer.count
    rows = [
        {
            t("column.layer"): " + ".join(t(f"kind.{kind}.name") for kind in kinds),
            t("column.layers"): numbers.digits(count),
        }
        for kinds, count in layers.items()
    ]
    tables.draw(rows, t("about.layers"))
    if spec.sources:
        st.subheader(t("about.sources", revision=spec.revision), anchor=False)
        lines = [f"- `{name}` · {source}" for name, source in spec.sources.items()]
        st.markdown("\n".join(lines))
    for doubt in spec.doubts:
        st.caption(t("about.doubt", doubt=doubt))
