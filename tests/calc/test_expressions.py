"""The explanation of a number and the number come from one expression, and agree."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import calc
from calc.errors import CalcError
from calc.expressions import FUNCTIONS, expression, filled, filled_python, symbolic
from calc.items import FORMULAS, SUMS, Formula, Item, walk
from calc.presets import preset_ids
from calc.report import Report
from calc.symbols import SYMBOLS
from tests.calc.models import gqa, indexer, layers, mla, model, report

for _module in pkgutil.walk_packages(calc.__path__, "calc."):
    if _module.name != "calc.__main__":
        importlib.import_module(_module.name)  # FORMULAS fills as modules are imported

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"tp": 4, "pp": 3, "dp": 2, "batch": 7, "context": 1_001},
    {"tp": 2, "dcp": 2, "batch": 3},
    {"tp": 2, "dcp": 2, "engine": "sglang", "dcp_backend": "ag_rs", "query_replication": "off"},
    {"tp": 2, "dcp": 2, "engine": "sglang", "dcp_backend": "fi_a2a", "query_replication": "off"},
    {"kv_dtype": "int4_per_token_head"},
    {"kv_dtype": "nvfp4", "state_dtype": "bf16", "conv_dtype": "float32"},
]


def items_in(node: Any) -> Iterator[Item]:
    """Every Item that can be reached from a report, a tuple or a dictionary."""
    if isinstance(node, Item):
        yield from walk(node)
    elif isinstance(node, tuple | list):
        for part in node:
            yield from items_in(part)
    elif isinstance(node, dict):
        yield from items_in(tuple(node.values()))
    elif is_dataclass(node):
        yield from items_in([getattr(node, field.name) for field in fields(node)])
        yield from items_in(getattr(node, "per_step", None))


def different(items: Iterable[Item]) -> list[Item]:
    """One item of each formula and set of numbers: equal ones are drawn equally."""
    found: dict[tuple[Any, ...], Item] = {}
    for item in items:
        values = tuple(
            bound.value if isinstance(bound, Item) else bound for bound in item.arguments.values()
        )
        found.setdefault((item.formula, *values), item)
    return list(found.values())


def reports_of(preset: str) -> Iterator[Report]:
    """The reports of a preset under every layout that it can have."""
    for layout in LAYOUTS:
        try:
            yield report(preset, **layout)
        except CalcError:  # this model's heads or kinds do not allow it
            continue


def evaluated(item: Item) -> Any:
    """The filled-in Python line, computed by Python."""
    return eval(filled_python(item), {"__builtins__": {}}, FUNCTIONS)  # noqa: S307 - our own text


def is_balanced(latex: str) -> bool:
    """Whether braces, left and right delimiters and environments close what they open."""
    bare = re.sub(r"\\[{}]", "", latex)
    depths = [bare[:end].count("{") - bare[:end].count("}") for end in range(len(bare) + 1)]
    return (
        min(depths) == depths[-1] == 0
        and len(re.findall(r"\\left\b", latex)) == len(re.findall(r"\\right\b", latex))
        and latex.count(r"\begin{cases}") == latex.count(r"\end{cases}")
    )


@pytest.mark.parametrize("preset", preset_ids())
def test_every_filled_in_line_evaluates_to_the_value_beside_it(preset: str) -> None:
    found = list(reports_of(preset))
    assert len(found) > 1
    for item in different(items_in(found)):
        assert evaluated(item) == item.value, (item.key, filled_python(item))
        assert is_balanced(filled(item)), filled(item)


def test_items_are_found_wherever_a_report_keeps_them() -> None:
    keys = {item.key for item in items_in(report("kimi-k3", tp=8, dcp=8, batch=2))}
    assert {"mla.row", "kda.conv", "cache.replica", "fit.requests", "mla.o_proj.step"} <= keys


def test_the_lines_of_formats_that_no_preset_has_evaluate_too() -> None:
    sparse = model(layers(2, mla(sparse=True), indexer()))
    dense = model(layers(2, gqa(8, 2)))
    for kv_dtype in ("fp8", "nvfp4_ds_mla", "fp8_ds_mla", "int8_per_token_head"):
        for item in items_in(report(sparse, kv_dtype=kv_dtype)):
            assert evaluated(item) == item.value
    for item in items_in(report(dense, tp=8, dcp=2, kv_dtype="fp8_per_token_head")):
        assert evaluated(item) == item.value


@pytest.mark.parametrize("made", FORMULAS.values(), ids=lambda made: made.name)
def test_a_formula_is_one_expression_with_symbols_words_and_a_source(
    made: Formula[Any, Any],
) -> None:
    assert expression(made) is not None
    assert set(made.parameters) <= set(SYMBOLS)
    assert is_balanced(symbolic(made)), symbolic(made)
    assert made.__doc__
    assert made.__doc__.strip()
    assert made.source.strip()
    assert made.unit.strip()


@pytest.mark.parametrize("made", FORMULAS.values(), ids=lambda made: made.name)
def test_no_formula_draws_two_of_its_parameters_with_the_same_symbol(
    made: Formula[Any, Any],
) -> None:
    symbols = [SYMBOLS[name] for name in made.parameters]
    assert len(set(symbols)) == len(symbols)


def test_a_sum_keeps_every_part_even_where_parts_have_the_same_name() -> None:
    found = report("mimo-v2-flash").cache.stage.per_request
    assert found.formula in SUMS.values()
    assert sum(part.value for part in found.parts()) == found.value


def made_by(function: Any) -> Formula[Any, Any]:
    return Formula(function, "B", "a test", FORMULAS["latent_row_bytes"].status)


def test_signs_and_brackets_are_drawn_as_python_binds_them() -> None:
    def nested(context: int, tp: int, layers: int) -> int:
        return (context - (tp - layers)) * (tp + layers) - context % tp

    made = made_by(nested)
    assert symbolic(made) == (
        r"\left(S - \left(\mathrm{tp} - L\right)\right) \cdot \left(\mathrm{tp} + L\right)"
        r" - S \bmod \mathrm{tp}"
    )
    item = made.item("nested", context=7, tp=5, layers=3)
    assert filled_python(item) == "(7 - (5 - 3)) * (5 + 3) - 7 % 5"
    assert filled(item) == (
        r"\left(7 - \left(5 - 3\right)\right) \cdot \left(5 + 3\right) - 7 \bmod 5"
    )


def test_division_rounding_and_choice_are_drawn_as_what_they_do() -> None:
    mamba2 = FORMULAS["mamba2_groups_held"]
    assert symbolic(mamba2) == (
        r"\begin{cases}G & G \bmod \mathrm{tp} = 0\\ \mathrm{tp} & \text{else}\end{cases}"
    )
    growing = FORMULAS["growing_per_request"]
    assert symbolic(growing) == r"r \cdot L \cdot \left\lceil\frac{S}{\mathrm{dcp}}\right\rceil"
    assert symbolic(FORMULAS["requests_that_fit"]) == r"\left\lfloor\frac{M}{R}\right\rfloor"
    assert symbolic(FORMULAS["window_per_request"]) == r"r \cdot L \cdot \min\left(S,\, w\right)"
    assert symbolic(FORMULAS["logits_bytes"]) == (
        r"B \cdot \left\lceil\frac{V}{64}\right\rceil \cdot 64 \cdot b"
    )


def test_a_formula_of_several_statements_is_refused() -> None:
    def two(tp: int) -> int:
        doubled = tp * 2
        return doubled

    with pytest.raises(ValueError, match="one return expression"):
        expression(made_by(two))


def test_a_formula_with_an_operation_that_has_no_drawing_is_refused() -> None:
    def power(tp: int) -> int:
        return tp << 2

    with pytest.raises(ValueError, match="cannot contain"):
        symbolic(made_by(power))


def test_the_same_formula_takes_arrays_of_contexts() -> None:
    window = FORMULAS["window_per_request"]
    contexts = np.array([1, 128, 1_000])
    found = window.value(row_bytes=2, layers=3, context=contexts, window=128)
    assert found.tolist() == [6, 768, 768]
