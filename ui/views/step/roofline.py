"""Decode attention of MHA, GQA, MQA and MLA of one width on a GPU's roofline."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from calc.exchange import RooflinePoint
from calc.exchange import roofline as compute
from calc.items import Item
from calc.layers import Attention
from calc.report import Report
from ui import exchange_charts, numbers, tables
from ui.derivation import draw as draw_steps
from ui.text import Translator
from ui.views import parts
from ui.views.step import estimate

KINDS = {"MHA": "MHA", "GQA": "GQA-{groups}", "MQA": "MQA", "MLA": "MLA {rank}+{rope}"}
ONE_BYTE = ("fp8", "int8")


def draw(t: Translator, report: Report) -> None:
    """The whole part."""
    st.markdown(t("step.roofline_what"))
    gpu = estimate.chosen_gpu(t, report)
    if gpu is None:
        return
    used = widths(report)
    bend, points = compute(gpu, **used)
    names = {
        kind: word.format(groups=used["groups"], rank=used["latent"][0], rope=used["latent"][1])
        for kind, word in KINDS.items()
    }
    st.caption(
        t(
            "step.roofline_widths",
            heads=used["heads"],
            width=used["head_dim"],
            tp=used["tp"],
            size=used["element_bytes"],
        )
    )
    parts.chart(
        t,
        "roofline_chart",
        lambda: exchange_charts.roofline(bend, points, names, t),
        t("step.chart_roofline", gpu=gpu.name),
    )
    tables.draw([_row(t, point, names, bend) for point in points], t("step.roofline"))
    st.caption(t("step.roofline_note"))
    items: dict[str, Item] = {"ridge": bend}
    for place, point in enumerate(points):
        items[f"point.{place}"] = point.attainable
    parts.derivations(
        t, "roofline", items, draw_steps, lambda name: _derived_name(t, name, points, names)
    )


def widths(report: Report) -> dict[str, Any]:
    """The arguments of ``calc.exchange.roofline`` that are the chosen model's, where it has them.

    A model without latent attention is compared with a latent of 512 + 64, one with it with
    eight KV heads.
    """
    scenario, model = report.scenario, report.model
    found: dict[str, Any] = {"tp": scenario.tp}
    plain = [mixer for mixer in model.mixers if isinstance(mixer, Attention)]
    if model.latent_mixers:
        latent = model.latent_mixers[0]
        found |= {
            "heads": latent.heads,
            "head_dim": latent.v_dim,
            "latent": (latent.kv_lora_rank, latent.rope_dim),
            "groups": math.gcd(8, latent.heads),
        }
    elif plain:
        found |= {"heads": plain[0].heads, "head_dim": plain[0].k_dim, "groups": plain[0].kv_heads}
        found["latent"] = (512, 64)
    else:
        found |= {"heads": 128, "head_dim": 128, "latent": (512, 64), "groups": 8}
    found["dcp"] = scenario.dcp if scenario.dcp > 1 else scenario.tp
    found["element_bytes"] = 1 if scenario.kv_dtype.startswith(ONE_BYTE) else 2
    return found


def label(point: RooflinePoint, names: dict[str, str]) -> str:
    """Kind and dcp."""
    return f"{names[point.name]} · DCP {point.dcp}"


def _row(t: Translator, point: RooflinePoint, names: dict[str, str], bend: Item) -> tables.Row:
    intensity = float(point.intensity.value)
    bound = intensity > float(bend.value)
    return {
        t("column.kind"): f"**{names[point.name]}**",
        "DCP": str(point.dcp),
        t("column.query_rows"): numbers.digits(point.query_rows),
        t("column.kv_token"): numbers.exact(point.bytes_per_token),
        t("column.intensity"): f"{numbers.significant(intensity)} FLOP/B",
        t("column.of_ridge"): numbers.percent(intensity / float(bend.value)),
        t("column.attainable"): exchange_charts.flop_rate(float(point.attainable.value)),
        t("column.bound"): t("step.arithmetic" if bound else "step.memory"),
    }


def _derived_name(
    t: Translator, name: str, points: tuple[RooflinePoint, ...], names: dict[str, str]
) -> str:
    if name == "ridge":
        return t("formula.ridge")
    return label(points[int(name.partition(".")[2])], names)
