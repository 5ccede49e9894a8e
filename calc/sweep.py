"""Sweeps: one output over ranges of one or two inputs.

Context and batch are computed as arrays, by the formulas that compute a single
number; every other input is looped over. ``read`` and ``over_grid`` of an
output say the same thing, for one report and for arrays.

>>> from calc.scenario import Scenario
>>> made = sweep_over(Scenario("deepseek-v3"), "request_bytes", [steps("context", 1, 3)])
>>> made.values.tolist()
[70272, 140544, 210816]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calc.capacity import stage_request_bytes
from calc.errors import CalcError, shown
from calc.fields import WholeField
from calc.plan_inputs import OTHERS, STATE_INTERVAL, SWEPT, WIDTHS
from calc.presets import CUSTOM
from calc.report import Report, evaluate
from calc.scenario import FIELDS, Scenario
from calc.sweep_outputs import OUTPUTS, Grid, Output
from calc.units import Number
from calc.whatif import Change, changed

MAX_POINTS = 4_000_000
"""Points of a sweep."""
MAX_LOOPED = 4096
"""Points that are computed one by one, because no array formula covers them."""
SAFE = 2**62
"""Up to here 64-bit integers are exact; beyond, Python's own are used."""

BOUNDING = ("prefill_tokens", "shared_prefix")


@dataclass(frozen=True, slots=True)
class Axis:
    """An input and the values it takes, in order; build it with ``listed`` or ``steps``."""

    name: str
    values: Sequence[Any]

    @property
    def text(self) -> str:
        """The values as ``read_axis`` reads them behind the sign.

        >>> Axis("context", range(10, 31, 10)).text, Axis("tp", (1, 2, 8)).text
        ('10:30:10', '1,2,8')
        """
        if isinstance(self.values, range) and len(self.values) > 1:
            return f"{self.values[0]}:{self.values[-1]}:{self.values.step}"
        return ",".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Sweep:
    """``values`` has one axis an input; None where a scenario cannot be (``faults`` says why)."""

    scenario: Scenario
    output: Output
    axes: tuple[Axis, ...]
    values: np.ndarray[Any, Any]
    faults: dict[tuple[int, ...], CalcError] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """(input, ..., output) of every point."""
        for index, value in zip(
            np.ndindex(*self.values.shape), self.values.ravel().tolist(), strict=True
        ):
            yield (*(a.values[at] for a, at in zip(self.axes, index, strict=True)), value)


def listed(name: str, values: Sequence[Any]) -> Axis:
    """An axis of given values, each checked against its field's bounds."""
    rule = _rule(name)
    if not values:
        raise CalcError("sweep_empty", name)
    return Axis(name, tuple(rule.check(value) for value in values))


def steps(name: str, first: int, last: int, step: int = 1) -> Axis:
    """Whole numbers from ``first`` to ``last``, equally far apart."""
    _whole(name, first, last, step, least_step=1)
    made = range(first, last + 1, step)
    _bounded(name, made)
    return Axis(name, made)


def times_apart(name: str, first: int, last: int, factor: int = 2) -> Axis:
    """Whole numbers from ``first`` to ``last``, each ``factor`` times the one before."""
    _whole(name, first, last, factor, least_step=2)
    if first < 1:  # nothing times zero is anything else
        raise CalcError("out_of_range", name, given=first, minimum=1, maximum=last)
    most = int(math.log(last / first, factor) + 2)
    made = [value for at in range(most) if (value := first * factor**at) <= last]
    return listed(name, made)


def read_axis(text: str) -> Axis:
    """An axis as it is typed: a list, a range or a range of multiples.

    >>> read_axis("tp=1,2,4").values, read_axis("context=10:30:10").values
    ((1, 2, 4), range(10, 31, 10))
    >>> read_axis("batch=1:64:x4").values
    (1, 4, 16, 64)
    """
    name, equals, given = text.partition("=")
    rule = _rule(name)
    if not equals or not given.strip():
        raise CalcError("sweep_empty", name)
    found = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})(?::(x?)([0-9]{1,20}))?", given, re.ASCII)
    if found is None:
        return listed(name, [rule.parse(word) for word in given.split(",")])
    first, last, step = int(found[1]), int(found[2]), int(found[4] or 1)
    return times_apart(name, first, last, step) if found[3] else steps(name, first, last, step)


def sweep_over(
    scenario: Scenario,
    output: str,
    axes: Sequence[Axis],
    progress: Callable[[float], None] | None = None,
) -> Sweep:
    """Compute an output at every point of one or two axes; raises CalcError for too many."""
    chosen = _output(output)
    _check(axes)
    names = [axis.name for axis in axes]
    if STATE_INTERVAL.name in names and chosen.at_interval is None:
        able = ", ".join(one.id for one in OUTPUTS.values() if one.at_interval)
        raise CalcError("sweep_interval", STATE_INTERVAL.name, output=output, allowed=able)
    # these two bound the context
    plain = not any(getattr(scenario, name) or name in names for name in BOUNDING)
    free = [name for name in chosen.ignores if plain and name in names]
    arrays = [name for name in names if name in ("context", "batch") and name not in free]
    over_grid = chosen.over_grid
    if over_grid is None or not plain or not _arrays_hold(scenario, axes, arrays):
        over_grid, arrays = None, []
    looped = [axis for axis in axes if axis.name not in (*free, *arrays)]
    _bounded_loop(looped)
    shape = tuple(len(axis.values) for axis in axes)
    faults: dict[tuple[int, ...], CalcError] = {}
    values: np.ndarray[Any, Any] = np.empty(shape, dtype=object)
    grids: dict[bool, Grid] = {}

    def at_once(report: Report) -> Number:
        """All of the grid by the array formula, in integers that are wide enough."""
        assert over_grid is not None
        exact = _in_64_bits(report, axes)
        if exact not in grids:
            grids[exact] = _grid(axes, arrays, scenario, exact)
        return over_grid(report, grids[exact])

    count = math.prod(len(axis.values) for axis in looped)
    for done, index in enumerate(np.ndindex(*(len(axis.values) for axis in looped))):
        place = _place(axes, looped, index)
        try:
            point = _at(looped, index)
            interval = point.pop(STATE_INTERVAL.name, None)
            report = evaluate(_changed(scenario, point))
            if interval is not None and chosen.at_interval:
                found = chosen.at_interval(report, interval)
            else:
                found = at_once(report) if over_grid else chosen.read(report)
        except CalcError as error:
            found = None
            faults[tuple(at if isinstance(at, int) else 0 for at in place)] = error
        if isinstance(found, np.ndarray):  # inputs that do not matter get an axis too
            spread = [len(a.values) if a.name in arrays else 1 for a in axes if a not in looped]
            found = found.reshape(spread) if spread else found.item()
        if count == 1 and isinstance(found, np.ndarray):
            along = [len(a.values) if a.name in arrays else 1 for a in axes]
            values = np.broadcast_to(found.reshape(along), shape)
        else:
            values[place] = found
        if progress is not None:
            progress((done + 1) / count)
    return Sweep(scenario, chosen, tuple(axes), values, faults)


def _check(axes: Sequence[Axis]) -> None:
    names = [axis.name for axis in axes]
    if not 1 <= len(names) <= 2 or len(set(names)) != len(names):
        raise CalcError("sweep_axes", given=len(names))
    points = math.prod(len(axis.values) for axis in axes)
    if points > MAX_POINTS:
        raise CalcError("sweep_too_large", points=points, maximum=MAX_POINTS)


def _bounded_loop(looped: Sequence[Axis]) -> None:
    points = math.prod(len(axis.values) for axis in looped)
    if points > MAX_LOOPED:
        names = ", ".join(axis.name for axis in looped)
        raise CalcError("sweep_looped", points=points, maximum=MAX_LOOPED, names=names)


def _rule(name: str) -> Any:
    if name not in SWEPT:
        raise CalcError("not_a_choice", "sweep", given=shown(name[:40]), allowed=", ".join(SWEPT))
    return FIELDS.get(name) or OTHERS[name]


def _whole(name: str, first: int, last: int, step: int, least_step: int) -> None:
    if not isinstance(_rule(name), WholeField):
        raise CalcError("sweep_words", name)
    if first > last:
        raise CalcError("sweep_reversed", name, first=first, last=last)
    if step < least_step:
        raise CalcError("sweep_step", name, given=step, minimum=least_step)


def _bounded(name: str, made: range) -> None:
    points = (made.stop - 1 - made.start) // made.step + 1  # len() cannot say more than 2**63
    if points > MAX_POINTS:  # said first: a range is checked at its ends only
        raise CalcError("sweep_too_large", points=points, maximum=MAX_POINTS)
    rule = _rule(name)
    for value in (made[0], made[-1]):
        rule.check(value)


def _output(name: str) -> Output:
    if name not in OUTPUTS:
        raise CalcError(
            "not_a_choice", "output", given=shown(name[:40]), allowed=", ".join(OUTPUTS)
        )
    return OUTPUTS[name]


def _at(looped: Sequence[Axis], index: tuple[int, ...]) -> dict[str, Any]:
    return {axis.name: axis.values[at] for axis, at in zip(looped, index, strict=True)}


def _place(axes: Sequence[Axis], looped: Sequence[Axis], index: tuple[int, ...]) -> tuple[Any, ...]:
    """Where one turn of the loop belongs in the whole array."""
    found = {axis.name: at for axis, at in zip(looped, index, strict=True)}
    return tuple(found.get(axis.name, slice(None)) for axis in axes)


def _changed(scenario: Scenario, fields: Mapping[str, Any]) -> Scenario:
    widths = {name: value for name, value in fields.items() if name in WIDTHS}
    others = {name: value for name, value in fields.items() if name not in WIDTHS}
    if widths:
        spec = changed(scenario.model_spec, Change(1, scenario.model_spec.layer_count, **widths))
        others |= {"model": CUSTOM, "spec": spec}
    return replace(scenario, **others)


def _arrays_hold(scenario: Scenario, axes: Sequence[Axis], arrays: Sequence[str]) -> bool:
    """Whether one formula holds over the whole grid: at its two corners there is a cache.

    What a scenario says of context and batch can only forbid the short ones.
    """
    if not arrays:
        return True
    ends = {axis.name: (min(axis.values), max(axis.values)) for axis in axes if axis.name in arrays}
    try:
        for corner in (0, 1):
            report = evaluate(
                replace(scenario, **{name: end[corner] for name, end in ends.items()})
            )
            if not all(stage.per_request.value for stage in report.cache.stages):
                return False
    except CalcError:
        return False
    return True


def _grid(axes: Sequence[Axis], arrays: Sequence[str], scenario: Scenario, exact: bool) -> Grid:
    """Context and batch, shaped so that they spread over the array axes in order."""
    order = [axis for axis in axes if axis.name in arrays]
    grid: dict[str, Number] = {"context": scenario.context, "batch": scenario.batch}
    for place, axis in enumerate(order):
        shape = [1] * len(order)
        shape[place] = len(axis.values)
        grid[axis.name] = _array(axis.values, np.int64 if exact else object).reshape(shape)
    whole = np.broadcast_shapes(*(np.shape(value) for value in grid.values()))
    return grid | {"shape": whole}


def _array(values: Sequence[Any], kind: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, range) and kind is np.int64:
        return np.arange(values.start, values.stop, values.step, dtype=kind)
    return np.array(values, dtype=kind)


def _in_64_bits(report: Report, axes: Sequence[Axis]) -> bool:
    """Whether no figure of a grid is beyond what 64-bit integers hold."""
    most = {"context": report.scenario.context, "batch": report.scenario.batch}
    most |= {axis.name: max(axis.values) for axis in axes if axis.name in most}
    held = max(stage_request_bytes(stage, most["context"]) for stage in report.cache.stages)
    return bool(held * most["batch"] < SAFE)
