"""The meaning of a field stands behind the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.snippets import ROOT

_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


def repeated(path: Path) -> Iterator[str]:
    """Yield the fields that the docstring of their class lists again."""
    for kind in ast.walk(ast.parse(path.read_text())):
        if isinstance(kind, ast.ClassDef):
            listed = _ENTRY.findall((ast.get_docstring(kind) or "").partition("Attributes:\n")[2])
            declared = {field.target.id for field in kind.body if _is_field(field)}  # type: ignore[attr-defined]
            yield from (f"{path.name}: {kind.name}.{name}" for name in listed if name in declared)


def _is_field(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def test_no_docstring_repeats_the_fields_of_its_class() -> None:
    """Both would have to be changed together."""
    files = [path for folder in ("otel_rl", "exporters") for path in sorted((ROOT / folder).rglob("*.py"))]

    assert [found for path in files for found in repeated(path)] == []
