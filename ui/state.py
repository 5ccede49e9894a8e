"""The link and the session: which scenario the page shows, and how the two agree.

Three moves a run: ``read_link`` puts a link that is new to the session into the
widgets' keys; ``result`` builds the scenario from those keys; ``write_link``
changes the address when it says something else. Widgets are only ever filled
through their keys, and an address that already says the same is left alone, so
that Back and Forward walk through scenarios.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from calc.errors import CalcError
from calc.fields import ChoiceField, NumberField
from calc.link import LinkError, Opened, decode, encode, query_string
from calc.model import ModelSpec
from calc.presets import CUSTOM, load_preset
from calc.report import Report, evaluate
from calc.scenario import FIELDS, Scenario
from calc.view_inputs import EVERY, PAGE, VIEW_INPUTS
from ui import custom_fields, log
from ui.remedy import remedy

START = Scenario("kimi-k3", tp=8, dcp=8, batch=64, context=131072)
LANG, VIEW, PRESENTING = PAGE


@dataclass(frozen=True, slots=True)
class Change:
    """An input that was set to a legal value because another one was changed."""

    field: str
    old: Any
    new: Any
    reason: CalcError


@dataclass(slots=True)
class Notice:
    """What the top of the page says about how its inputs came about."""

    problems: tuple[CalcError, ...] = ()
    opened: Opened | None = None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """What an address says, the language, the view and its inputs included."""

    scenario: Scenario
    lang: str
    view: str
    presenting: str
    asked: Mapping[str, Any]


@dataclass(slots=True)
class Session:
    """What is remembered between runs."""

    address: dict[str, list[str]]
    said: Said
    notice: Notice
    typed: dict[str, Any] = field(default_factory=dict)
    """The inputs at the end of the last run."""


@dataclass(frozen=True, slots=True)
class Result:
    """The scenario that the inputs describe and its report, or why there is none."""

    scenario: Scenario | None
    report: Report | None
    error: CalcError | None


def session() -> Session:
    kept: Session = st.session_state["_session"]
    return kept


def read_link() -> None:
    """Move 1: a first visit, a pasted link, Back and Forward fill the inputs.

    When both the address and the inputs are new, the user was faster than the
    browser told of the address written last: the inputs win.
    """
    address = {key: st.query_params.get_all(key) for key in st.query_params}
    if "_session" not in st.session_state:
        _open(address, first=True)
    elif address != session().address and typed() == session().typed:
        _open(address, first=False)
    # the inputs of views that were never open stay out: every widget looks through all keys
    for asked in VIEW_INPUTS.get(st.session_state["view"], ()):
        st.session_state.setdefault(asked.name, asked.default)


def _open(address: dict[str, list[str]], first: bool) -> None:
    params = dict(address)
    problems: list[CalcError] = []
    lang = _word(params, LANG, _locale(), problems)
    view = _word(params, VIEW, VIEW.default, problems)
    presenting = _word(params, PRESENTING, PRESENTING.default, problems)
    opened, scenario, asked = None, START, {}
    if params and set(params) <= set(EVERY):  # a view with its inputs, of the start scenario
        params |= {key: [text] for key, text in encode(START).items()}
    if params:
        try:
            opened = decode(params)
            scenario, asked = opened.scenario, dict(opened.asked)
        except LinkError as error:
            problems += error.problems
    notice = Notice(tuple(problems), opened if first else None)
    st.session_state["lang"] = lang
    st.session_state["view"] = view
    st.session_state["presenting"] = presenting
    fill(scenario)
    _fill_asked((field.name for field in VIEW_INPUTS.get(view, ())), asked)
    said = Said(scenario, lang, view, presenting, _asked(view))
    st.session_state["_session"] = Session(address, said, notice)
    session().typed = typed()


def _word(
    params: dict[str, list[str]], field: ChoiceField, start: str, problems: list[CalcError]
) -> str:
    """One of the words that stand beside a scenario; a broken one does not hold up the rest."""
    values = params.pop(field.name, [start])
    try:
        if len(values) > 1:
            raise CalcError("link_repeated_key", field.name, times=len(values))
        return field.parse(values[0])
    except CalcError as error:
        problems.append(error)
        return start


def _locale() -> str:
    return "zh" if (st.context.locale or "").lower().startswith("zh") else "en"


def fill(scenario: Scenario) -> None:
    """Put a scenario into the inputs."""
    st.session_state["model"] = scenario.model
    for name, rule in FIELDS.items():
        held = getattr(scenario, name)
        st.session_state[name] = float(held) if isinstance(rule, NumberField) else held
    if scenario.spec is not None:
        custom_fields.write(scenario.spec)


def _fill_asked(names: Iterable[str], asked: Mapping[str, Any]) -> None:
    """Put a link's values of view inputs into their keys; those it does not name are as at first.

    Another view's are left alone, so that Back does not undo what was asked there.
    """
    for name in {*names, *asked}:
        st.session_state[name] = asked.get(name, EVERY[name].default)


def _asked(view: str) -> dict[str, Any]:
    """The inputs of one view as they are now."""
    return {field.name: st.session_state[field.name] for field in VIEW_INPUTS.get(view, ())}


def typed() -> dict[str, Any]:
    """All inputs as they are now; equal before and after a run in which nobody touched them."""
    names = ("lang", "view", "presenting", "model", *FIELDS, *EVERY)
    inputs = {name: st.session_state.get(name) for name in names}
    return inputs | {"custom": custom_fields.data() if inputs["model"] == CUSTOM else None}


def scenario() -> Scenario:
    """The scenario of the inputs; raises CalcError when there is none."""
    model = st.session_state["model"]
    values = {name: st.session_state[name] for name in FIELDS}
    return Scenario(model, spec=custom_fields.read() if model == CUSTOM else None, **values)


def result() -> Result:
    """Move 2: what the inputs describe, computed."""
    made = None
    start = time.perf_counter()
    try:
        made = scenario()
        report = evaluate(made)
    except CalcError as error:
        if made is not None:
            log.computed(made, _milliseconds(start), error.code)
        return Result(made, None, error)
    log.computed(made, _milliseconds(start))
    return Result(made, report, None)


def _milliseconds(start: float) -> float:
    return 1e3 * (time.perf_counter() - start)


def write_link(shown: Result) -> None:
    """Move 3: the address says what the page shows; a broken one stays until an input changes."""
    kept = session()
    kept.typed = typed()
    if shown.scenario is None:
        return
    lang, view = st.session_state["lang"], st.session_state["view"]
    now = Said(shown.scenario, lang, view, st.session_state["presenting"], _asked(view))
    moved = now.scenario != kept.said.scenario
    if now == kept.said or (kept.notice.problems and not moved):
        return
    if moved:
        changes = kept.notice.changes if _explains(kept.notice.changes, now.scenario) else ()
        kept.notice = Notice(changes=changes)
    keys = link_keys(shown)
    kept.address = {key: [text] for key, text in keys.items()}
    kept.said = now
    st.query_params.from_dict(keys)


def _explains(changes: tuple[Change, ...], now: Scenario) -> bool:
    """Whether changes made for the user are still what the inputs say."""
    return bool(changes) and all(getattr(now, change.field) == change.new for change in changes)


def link_keys(shown: Result) -> dict[str, str]:
    """Everything a link says; the headline numbers go along, to be compared when it is opened."""
    assert shown.scenario is not None
    seen = shown.report.headline() if shown.report else ()
    words = {"lang": st.session_state["lang"], "view": st.session_state["view"]}
    if st.session_state["presenting"] == "on":
        words["presenting"] = "on"
    return encode(shown.scenario, seen, _asked(words["view"])) | words


def link(shown: Result) -> str:
    """The address to send to somebody."""
    return f"{(st.context.url or '').rstrip('/')}/?{query_string(link_keys(shown))}"


def reset() -> None:
    """Back to the start scenario (a callback)."""
    session().notice = Notice()
    fill(START)


def settle() -> None:
    """After another model or engine was chosen: what it does not allow is set to what it does."""
    changes: list[Change] = []
    before = {name: st.session_state[name] for name in FIELDS}
    for _ in FIELDS:
        error = result().error
        if error is None:
            session().notice = Notice(changes=tuple(changes))
            return
        fixes = remedy(error, before)
        if fixes is None or fixes[0] in [change.field for change in changes]:
            break
        name, legal = fixes
        changes.append(Change(name, st.session_state[name], legal, error))
        st.session_state[name] = legal
    st.session_state.update(before)


def apply(name: str, legal: Any) -> None:
    """Set one input to a value that a message offers, and others to follow (a callback)."""
    st.session_state[name] = legal
    settle()


def start_from_preset() -> None:
    """Turn the chosen preset into a custom model (a callback)."""
    spec = load_preset(st.session_state["model"])
    custom_fields.write(spec, merge=True)
    st.session_state["_custom_folded"] = False
    st.session_state["model"] = CUSTOM


def use(spec: ModelSpec) -> None:
    """Show a custom model that was read or changed elsewhere (a callback); its editor is folded."""
    custom_fields.write(spec)
    st.session_state["_custom_folded"] = True
    st.session_state["model"] = CUSTOM
    settle()
