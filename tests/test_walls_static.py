"""The walls as the source shows them: the recorder and its tests name no wing, and a class name has one home."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "otel_rl"
WINGS = tuple(sorted({path.parent.name for path in LIBRARY.glob("*/__init__.py")} - {"recorder", "semconv"}))
_OF_WINGS = re.compile(rf"otel_rl[./](?:{'|'.join(WINGS)})\b|\.open_runs?\(|otel_rl\.report\(")
_IMPORTED = re.compile(r"^\s*from (tests[\w.]*) import ([\w, ]+)|^\s*import (tests[\w.]+)", re.M)

ALIKE = {
    "OtelRlCallback": "users write it with the module of their framework",
    "Event Message Span Table": "`testing` shows a trainer's tests what `export` gives to exporters",
    "Trajectory": "exporters get as an item what a trainer recorded by the object of this name",
}
"""Names of several classes, with the reason."""


def test_the_recorder_names_no_wing() -> None:
    """Neither by an import, inside functions included, nor in a text: what joins a wing is an entry point."""
    files = [*(LIBRARY / "recorder").rglob("*.py"), *LIBRARY.glob("[!_m]*.py"), *(ROOT / "exporters").rglob("*.py")]
    named = {str(path.relative_to(ROOT)): found for path in files if (found := _OF_WINGS.findall(path.read_text()))}

    assert len(files) > 200
    assert named == {}


def test_the_tests_of_the_recorder_name_no_wing() -> None:
    """Nor does what they import of other tests."""
    reached: set[Path] = set()
    ahead = {*(ROOT / "tests" / "recorder").rglob("*.py"), ROOT / "tests" / "conftest.py"}
    while ahead:
        reached |= ahead
        ahead = {module for path in ahead for module in _imported(path)} - reached
    named = {str(path.relative_to(ROOT)): found for path in reached if (found := _OF_WINGS.findall(path.read_text()))}

    assert len(reached) > 100
    assert named == {}


def _imported(test: Path) -> set[Path]:
    """Return the files of other tests that a test imports."""
    found = set()
    for package, names, module in _IMPORTED.findall(test.read_text()):
        for name in (module or package, *(f"{package}.{name.strip()}" for name in names.split(","))):
            found.add(ROOT / f"{name.replace('.', '/')}.py")
    return {path for path in found if path.exists()}


def test_a_class_has_its_name_alone() -> None:
    """A search for a name finds its home."""
    homes = defaultdict(list)
    for path in (*LIBRARY.rglob("*.py"), *(ROOT / "exporters").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(ROOT)))

    several = {name: places for name, places in homes.items() if len(places) > 1}
    assert several.keys() == {name for names in ALIKE for name in names.split()}, several
