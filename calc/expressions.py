r"""Reads a formula's one ``return`` expression and draws it.

Three drawings of the same expression: LaTeX with symbols, LaTeX with the
numbers filled in, and a Python line with the numbers filled in (which a test
evaluates again).

"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from calc.items import SUMS, Formula, Item
from calc.symbols import SYMBOLS
from calc.units import (
    Number,
    binomial,
    ceil_div,
    ceil_of,
    chance_untouched,
    exact_div,
    floor_of,
    greater,
    lesser,
    ratio,
    round_up,
    square_root,
)

FUNCTIONS: dict[str, Callable[..., Number]] = {
    "ceil_div": ceil_div,
    "exact_div": exact_div,
    "ratio": ratio,
    "lesser": lesser,
    "greater": greater,
    "round_up": round_up,
    "floor_of": floor_of,
    "ceil_of": ceil_of,
    "binomial": binomial,
    "chance_untouched": chance_untouched,
    "square_root": square_root,
}
"""What a formula may call; the names a filled-in Python line needs."""

SUM, PRODUCT, ATOM = 1, 2, 3  # how tightly an expression binds


@functools.cache
def expression(formula: Formula[Any, Any]) -> ast.expr:
    """The returned expression of a formula; raises if it has any other statement."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(formula.function)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    statements = [
        node
        for node in function.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    if len(statements) != 1 or not isinstance(statements[0], ast.Return):
        raise ValueError(f"formula {formula.name} must be one return expression")
    assert statements[0].value is not None
    return statements[0].value


def number_latex(value: Number) -> str:
    """A number for LaTeX: digits grouped, floats to ten digits."""
    if isinstance(value, np.ndarray):
        return r"\ldots"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace(",", "{,}")
    return f"{float(value):,.10g}".replace(",", "{,}")


def symbolic(formula: Formula[Any, Any]) -> str:
    """The formula in LaTeX with its symbols."""
    if formula in SUMS.values():
        return r"\sum_i x_i"
    return _latex(expression(formula), lambda name: SYMBOLS[name])


def filled(item: Item) -> str:
    """The formula in LaTeX with this item's numbers."""
    values = _values(item)
    if item.formula in SUMS.values():
        return " + ".join(number_latex(value) for value in values.values()) or "0"
    return _latex(expression(item.formula), lambda name: number_latex(values[name]))


def filled_python(item: Item) -> str:
    """The formula as a Python expression with this item's numbers."""
    values = _values(item)
    if item.formula in SUMS.values():
        return " + ".join(repr(value) for value in values.values()) or "0"

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return node if node.id in FUNCTIONS else ast.Constant(values[node.id])

    copy = ast.parse(ast.unparse(expression(item.formula)), mode="eval").body
    return ast.unparse(Fill().visit(copy))


def _values(item: Item) -> dict[str, Number]:
    return {
        name: bound.value if isinstance(bound, Item) else bound
        for name, bound in item.arguments.items()
    }


def _latex(node: ast.expr, leaf: Callable[[str], str]) -> str:
    return _draw(node, leaf)[0]


def _draw(node: ast.expr, leaf: Callable[[str], str]) -> tuple[str, int]:
    """(LaTeX, how tightly it binds)."""

    def inner(child: ast.expr, at_least: int = SUM) -> str:
        text, binds = _draw(child, leaf)
        return text if binds >= at_least else rf"\left({text}\right)"

    match node:
        case ast.Name(id=name):
            return leaf(name), ATOM
        case ast.Constant(value=value):
            return number_latex(value), ATOM
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{inner(left)} + {inner(right)}", SUM
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return f"{inner(left)} - {inner(right, PRODUCT)}", SUM
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return rf"{inner(left, PRODUCT)} \cdot {inner(right, PRODUCT)}", PRODUCT
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return rf"\frac{{{inner(left)}}}{{{inner(right)}}}", ATOM
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return rf"{inner(left, ATOM)}^{{{inner(right)}}}", ATOM
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return rf"\left\lfloor\frac{{{inner(left)}}}{{{inner(right)}}}\right\rfloor", ATOM
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return rf"{inner(left, ATOM)} \bmod {inner(right, ATOM)}", PRODUCT
        case ast.Call(func=ast.Name(id="ceil_div"), args=[top, bottom]):
            return rf"\left\lceil\frac{{{inner(top)}}}{{{inner(bottom)}}}\right\rceil", ATOM
        case ast.Call(func=ast.Name(id="exact_div" | "ratio"), args=[top, bottom]):
            return rf"\frac{{{inner(top)}}}{{{inner(bottom)}}}", ATOM
        case ast.Call(func=ast.Name(id="lesser"), args=[a, b]):
            return rf"\min\left({inner(a)},\, {inner(b)}\right)", ATOM
        case ast.Call(func=ast.Name(id="greater"), args=[a, b]):
            return rf"\max\left({inner(a)},\, {inner(b)}\right)", ATOM
        case ast.Call(func=ast.Name(id="floor_of"), args=[value]):
            return rf"\left\lfloor {inner(value)} \right\rfloor", ATOM
        case ast.Call(func=ast.Name(id="ceil_of"), args=[value]):
            return rf"\left\lceil {inner(value)} \right\rceil", ATOM
        case ast.Call(func=ast.Name(id="round_up"), args=[value, multiple]):
            step = inner(multiple)
            fraction = rf"\left\lceil\frac{{{inner(value)}}}{{{step}}}\right\rceil"
            return rf"{fraction} \cdot {inner(multiple, PRODUCT)}", PRODUCT
        case ast.Call(func=ast.Name(id="square_root"), args=[value]):
            return rf"\sqrt{{{inner(value)}}}", ATOM
        case ast.Call(func=ast.Name(id="binomial"), args=[items, chosen]):
            return rf"\binom{{{inner(items)}}}{{{inner(chosen)}}}", ATOM
        case ast.Call(func=ast.Name(id="chance_untouched"), args=arguments):
            return rf"q_0\left({', '.join(map(inner, arguments))}\right)", ATOM
        case ast.IfExp(test=ast.Compare() as test, body=body, orelse=orelse):
            lines = rf"{inner(body)} & {_condition(test, leaf)}\\ {inner(orelse)} & \text{{else}}"
            return rf"\begin{{cases}}{lines}\end{{cases}}", ATOM
    raise ValueError(f"a formula cannot contain {ast.unparse(node)}")


def _condition(test: ast.Compare, leaf: Callable[[str], str]) -> str:
    signs = {ast.Eq: "=", ast.GtE: r"\ge", ast.Lt: "<", ast.Gt: ">", ast.LtE: r"\le"}
    sign = signs[type(test.ops[0])]
    return f"{_latex(test.left, leaf)} {sign} {_latex(test.comparators[0], leaf)}"
