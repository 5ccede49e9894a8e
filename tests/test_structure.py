"""The shape of the tree: which part may import which, how light calc is, what must not appear."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"app", "calc", "gpu", "tests", "ui"}
STDLIB = set(sys.stdlib_module_names)
HEAVY = {"pandas", "plotly", "streamlit", "torch"}

# Arrows point one way: app -> ui -> calc and gpu -> calc.
MAY_IMPORT = {
    "calc": STDLIB | {"calc", "numpy", "pydantic", "yaml"},
    "gpu": STDLIB | {"calc", "gpu", "numpy", "pydantic", "torch", "triton"},
    "ui": STDLIB
    | {"calc", "ui", "numpy", "pandas", "plotly", "pydantic", "starlette", "streamlit", "yaml"},
    "app.py": STDLIB | {"calc", "ui", "streamlit"},
}


def python_files(part: str = ".") -> list[Path]:
    """Python files below a part of the tree, hidden folders (.venv, caches) left out."""
    top = ROOT / part
    found = [top] if top.is_file() else sorted(top.rglob("*.py"))
    return [
        path
        for path in found
        if not any(name.startswith(".") for name in path.relative_to(ROOT).parts)
    ]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, top-level package) of every import, also of those inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            within = path.relative_to(ROOT).parts[0] if node.level else node.module or ""
            yield node.lineno, within.partition(".")[0]


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_point_one_way(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(part)
        for line, name in imported(path)
        if name not in MAY_IMPORT[part]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_benchmark_imports_torch() -> None:
    users = {
        path.relative_to(ROOT).parts[0]
        for path in python_files()
        for _, name in imported(path)
        if name == "torch"
    }
    assert users <= {"gpu", "tests"}


def test_importing_calc_stays_light() -> None:
    """In a process of its own: every module of calc, and none of the heavy packages comes along."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in python_files("calc")
        if path.name != "__main__.py"
    ]
    code = f"""
import importlib, sys
for name in {["calc", *modules]!r}:
    importlib.import_module(name)
print(*sorted({HEAVY!r} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_no_python_file_is_longer_than_500_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files()
    }
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


STYLED = ROOT / "ui/present.py"


def test_the_style_sheet_is_made_of_constants_alone() -> None:
    (call,) = [node for node in ast.walk(tree(STYLED)) if unsafe(node) == "html"]
    assert isinstance(call, ast.Call)
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    assert names == {"st", "PRINT", "PRESENT", "KEY"}
    assert not [node for node in ast.walk(call) if isinstance(node, ast.JoinedStr)]
    for node in tree(STYLED).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in names:
            assert isinstance(node.value, ast.Constant)


def unsafe(node: ast.AST) -> str | None:
    """What makes a node dangerous on a page that strangers send links to."""
    match node:
        case ast.keyword(arg="unsafe_allow_html"):
            return "unsafe_allow_html"
        case ast.Call(func=ast.Attribute(attr="html" | "iframe" | "write_html")):
            return "html"
        case ast.alias(name=name) | ast.Attribute(attr=name) | ast.ImportFrom(module=str(name)):
            return name if "pickle" in name else None
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
            return "allow_pickle"
    return None


def test_neither_raw_html_nor_pickle_is_used() -> None:
    """Apart from the style sheet of a presentation, which is made of constants (above)."""
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', '?')} {what}"
        for path in python_files()
        for node in ast.walk(tree(path))
        if (what := unsafe(node)) and not (what == "html" and path == STYLED)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import pandas.io.pickle as p",
        "pd.read_pickle(path)",
        "st.markdown(text, unsafe_allow_html=True)",
        "st.html(text)",
        "st.components.v1.iframe(address)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_search_for_unsafe_calls_finds_them(line: str) -> None:
    assert any(unsafe(node) for node in ast.walk(ast.parse(line)))
