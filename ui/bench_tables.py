"""A benchmark result as tables. Its texts may be a stranger's: plain text only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calc.calibration import (
    Compared,
    ComparedExchange,
    Fit,
    compared_collective,
    compared_layer,
    fits,
)
from calc.measured import (
    AttentionFacts,
    CollectiveFacts,
    KernelResult,
    LayerFacts,
    Measured,
    SkippedFacts,
    Timing,
)
from ui import numbers
from ui.tables import Row
from ui.text import Translator

Table = list[Row]
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNSAFE = re.compile(r"[^\w .,;'()+/:%×–-]")


def plain(text: str, most: int = 80) -> str:
    """Words from a result without anything that Markdown or a chart would interpret."""
    return UNSAFE.sub("", text)[:most]


def kind_name(t: Translator, kind: str) -> str:
    """A layer kind's short name; what a result calls it where it is none of ours."""
    return t.get(f"kind.{kind}.short", plain(kind))


def title(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]


def tables(t: Translator, measured: Measured, rows: Sequence[Compared]) -> dict[str, Table]:
    """The tables of a result by name; those without rows are empty."""
    return {
        "compared": [_compared(t, row) for row in rows],
        "calibration": [_fit(t, row) for row in fits(measured)],
        "stages": _stages(t, measured),
        "merge": _merge(t, measured),
        "memory": _memory(t, measured),
        "collectives": _collectives(t, measured),
        "layers": _layers(t, measured),
        "skipped": [_skipped(t, part) for part in measured.skipped if part.what != "collectives"],
    }


def _compared(t: Translator, row: Compared) -> Row:
    return {
        t("column.kind"): kind_name(t, row.kind),
        t("gpu.column.measured"): numbers.duration(row.measured_us),
        title(t("gpu.bar.floor")): numbers.duration(row.floor_us),
        title(t("gpu.bar.predicted")): _predicted(row.predicted_us, row.error),
        title(t("gpu.bar.calibrated")): _predicted(row.calibrated_us, row.calibrated_error),
    }


def _predicted(us: float | None, error: float | None) -> str:
    return "–" if us is None or error is None else f"{numbers.duration(us)} ({signed(error)})"


def error_text(error: float) -> str:
    """A small number that no line breaks in.

    >>> error_text(0.00167), error_text(0.883), error_text(0)
    ('1.7×10⁻³', '8.8×10⁻¹', '0')
    """
    if not error:
        return "0"
    digits, _, power = f"{error:.1e}".partition("e")
    return f"{digits}×10{str(int(power)).translate(SUPERSCRIPT)}"


def signed(share: float) -> str:
    """A difference as a share.

    >>> signed(0.0857), signed(-0.0063), signed(0.15)
    ('+8.6 %', '−0.6 %', '+15 %')
    """
    return f"{'−' if share < 0 else '+'}{numbers.percent(abs(share))}"


def _fit(t: Translator, row: Fit) -> Row:
    rates = row.rates
    return {
        t("gpu.column.family"): t(f"gpu.family.{row.family}"),
        t("gpu.column.shapes"): str(row.shapes),
        t("gpu.column.launch"): numbers.duration(rates.launch_us),
        t("gpu.column.ramp"): numbers.duration(rates.ramp_us),
        t("gpu.card.read"): f"{rates.bytes_per_us / 1e6:.2f} TB/s",
        t("gpu.card.gemm"): f"{rates.flops_per_us / 1e6:.0f} TFLOP/s" if row.computes else "–",
        t("gpu.column.fit_error"): f"{numbers.percent(row.median)}, {numbers.percent(row.worst)}",
    }


def backends(t: Translator, kernel: KernelResult) -> Table:
    """What ran on one shape."""
    return [
        {
            t("gpu.column.backend"): plain(row.name),
            t("gpu.column.measured"): numbers.duration(row.timing.us) if row.timing else "–",
            t("gpu.column.fraction"): "–" if row.fraction is None else f"{row.fraction:.2f}",
            t("gpu.column.tile_fraction"): (
                "–" if row.tile_fraction is None else f"{row.tile_fraction:.2f}"
            ),
            t("gpu.column.error"): "–" if row.out_error is None else error_text(row.out_error),
            t("gpu.column.verdict"): (
                t(f"gpu.verdict.{row.verdict}.short")
                if row.verdict
                else t(f"gpu.status.{row.status}", reason=plain(row.reason or "", 300))
            ),
        }
        for row in kernel.backends
        if row.status != "unavailable"
    ]


def unavailable(kernel: KernelResult) -> str:
    """The backends that were not there, each with the reason."""
    return "; ".join(
        f"{plain(row.name)} ({plain(row.reason or '', 200)})"
        for row in kernel.backends
        if row.status == "unavailable"
    )


def shape_text(t: Translator, kernel: KernelResult) -> str:
    """A kernel's shape in a few words; the tokens of the scenario where fewer were measured."""
    facts = kernel.facts
    if not isinstance(facts, AttentionFacts):
        words = (facts.heads, facts.key_dim, facts.value_dim)
        return t("gpu.shape.state", batch=facts.batch, size="×".join(map(str, words)))
    shape = t(
        "gpu.shape.attention",
        batch=facts.batch,
        tokens=numbers.digits(facts.tokens),
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        width=facts.k_dim,
    )
    if facts.tokens == facts.wanted_tokens:
        return shape
    return f"{shape} {t('gpu.shape.wanted', tokens=numbers.digits(facts.wanted_tokens))}"


def _stages(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("gpu.column.stage"): t.get(f"stage.{row.name}", plain(row.name)),
            t("gpu.column.measured"): numbers.duration(row.timing.us) if row.timing else "–",
            title(t("gpu.bar.floor")): numbers.duration(row.floor_us) if row.floor_us else "–",
        }
        for row in measured.stages
    ]


def _merge(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("gpu.column.parts"): str(row.parts),
            t("gpu.column.measured"): numbers.duration(row.timing.us),
            title(t("gpu.bar.floor")): numbers.duration(row.floor_us),
            t("gpu.column.error"): error_text(row.merge_error),
            t("gpu.column.plain_mean"): error_text(row.plain_mean_error),
            t("gpu.column.stripes"): (
                "–" if row.stripes_error is None else error_text(row.stripes_error)
            ),
        }
        for row in measured.merge
    ]


def _memory(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("column.kind"): kind_name(t, row.kind),
            t("gpu.column.predicted_bytes"): numbers.exact(row.predicted_bytes),
            t("gpu.column.allocated_bytes"): numbers.exact(row.allocated_bytes),
            t("gpu.column.within"): t("gpu.yes" if row.within else "gpu.no"),
        }
        for row in measured.memory
    ]


def _collectives(t: Translator, measured: Measured) -> Table:
    rows = []
    for row in measured.collectives:
        found = compared_collective(measured, row)
        rows.append(
            {
                t("gpu.column.stage"): stage_name(t, row.name),
                t("gpu.column.collective"): t(f"collective.{row.collective}"),
                t("gpu.column.ranks"): _ranks(t, row),
                t("gpu.column.payload"): numbers.traffic(row.payload_bytes),
                t("gpu.column.measured"): _measured(t, row.timing),
                title(t("gpu.bar.predicted")): _exchange(found),
                t("gpu.column.bus"): (
                    "–" if row.bus_bytes_per_s is None else f"{row.bus_bytes_per_s / 1e9:.1f} GB/s"
                ),
            }
        )
    return rows


def _layers(t: Translator, measured: Measured) -> Table:
    return [
        {
            t("column.kind"): kind_name(t, row.kind),
            t("gpu.column.exchange"): row.exchange,
            t("gpu.column.ranks"): _ranks(t, row),
            t("gpu.column.shape"): f"{row.batch} × {numbers.digits(row.tokens)}",
            t("gpu.column.backend"): plain(row.attention),
            t("gpu.column.measured"): _measured(t, row.timing),
            title(t("gpu.bar.predicted")): _exchange(compared_layer(measured, row)),
            t("gpu.column.loaded"): numbers.duration(row.loaded.us) if row.loaded else "–",
            t("gpu.column.error"): error_text(row.error),
        }
        for row in measured.layers
    ]


def _exchange(found: ComparedExchange | None) -> str:
    return "–" if found is None else _predicted(found.predicted_us, found.error)


def _ranks(t: Translator, row: CollectiveFacts | LayerFacts) -> str:
    ranks = str(row.ranks) if row.nodes == 1 else t("gpu.nodes", ranks=row.ranks, nodes=row.nodes)
    return f"{ranks}, {t('gpu.cpu')}" if row.backend == "gloo" else ranks


def _measured(t: Translator, timing: Timing | None) -> str:
    return numbers.duration(timing.us) if timing else t("gpu.wrong_exchange")


def stage_name(t: Translator, name: str) -> str:
    """A collective's place in the step: the kind of layer, and what is exchanged."""
    kind, _, stage = plain(name).partition(".")
    return f"{t.get(f'kind.{kind}.short', kind)}: {t.get(f'stage.{stage}', stage)}"


def reason(t: Translator, part: SkippedFacts) -> str:
    """Why something was not measured, in the page's language where the code is known."""
    return t.get(f"gpu.skipped.{part.code}", plain(part.reason, 400))


def _skipped(t: Translator, part: SkippedFacts) -> dict[str, str]:
    what = t.get(f"kind.{part.what}.short", t.get(f"gpu.part.{part.what}", plain(part.what)))
    return {t("gpu.column.what"): title(what), t("gpu.column.reason"): reason(t, part)}
