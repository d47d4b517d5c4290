"""What Python files of this repository import from each other exists, also in files that few tests load."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_ROOTS = {
    "otel_rl": ROOT,
    "otel_rl_exporters": ROOT / "exporters",
    "tests": ROOT,
    "benchmarks": ROOT,
    "dashboards": ROOT,
}
"""The folder that has each package."""
_FILES = sorted(path for name, folder in _ROOTS.items() for path in (folder / name).rglob("*.py"))
_OTHERS = "tests.unit."
"""Tests of NeMo-RL, which its example imports."""


def _is_here(module: str) -> bool:
    return module.partition(".")[0] in _ROOTS and not module.startswith(_OTHERS)


def _file_of(module: str) -> Path | None:
    """Return the file of a module or a package; `None` if there is none."""
    place = _ROOTS[module.partition(".")[0]].joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module that are outside of functions and classes."""
    for statement in body:
        yield statement
        for branch in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _top(getattr(statement, branch, []))
        for handler in getattr(statement, "handlers", []):
            yield from _top(handler.body)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _defined(path: Path) -> set[str]:
    """Return the names that a module has; `*` if a function of it answers for others."""
    names: set[str] = set()
    for statement in _top(_parsed(path).body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add("*" if statement.name == "__getattr__" else statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
        else:
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return names


def _absent(path: Path) -> Iterator[str]:
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if _is_here(alias.name)]
            yield from (module for module in modules if _file_of(module) is None)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if not _is_here(node.module):
                continue
            file = _file_of(node.module)
            if file is None:
                yield node.module
                continue
            for alias in node.names:
                if not {alias.name, "*"} & _defined(file) and _file_of(f"{node.module}.{alias.name}") is None:
                    yield f"{node.module}.{alias.name}"


def test_what_is_imported_exists() -> None:
    """No file names a module, or a name in one, that was renamed or moved."""
    absent = {str(path.relative_to(ROOT)): found for path in _FILES if (found := sorted({*_absent(path)}))}

    assert absent == {}


@pytest.mark.parametrize("line", ["from otel_rl.analysis import Absent", "import otel_rl.absent"])
def test_what_does_not_exist_is_found(line: str, tmp_path: Path) -> None:
    """A name that a module lacks, or a module."""
    file = tmp_path / "file.py"
    file.write_text(f"from otel_rl.analysis import Analysis\nfrom otel_rl.cli import runs\n{line}\n")

    assert [name.rpartition(".")[2].lower() for name in _absent(file)] == ["absent"]
