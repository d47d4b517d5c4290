"""Numbers in texts go through `facts/wording` and `numbers.js`: no view formats a number with decimals itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VIEWS = ("look", "cli", "autopsy", "analyses")
ASSETS = ROOT / "otel_rl" / "look" / "page" / "assets"
_DECIMALS = re.compile(r"[.\d+,]*[fgeEG%]$")
_OF_JAVASCRIPT = re.compile(r"toFixed|toLocaleString|toExponential|toPrecision|NumberFormat")
OTHERS = {
    "look/page/reasons.py": "coordinates of a drawing",
    "look/page/comparison.py": "coordinates of a drawing",
    "look/page/samples.py": "values of the page's data, which its script formats",
    "look/insight/compare/gates.py": "a limit, as it is given on the command line",
    "analyses/weights/__init__.py": "attributes of an event, whose digits tell values apart",
    "analyses/weights/comparison.py": "values of tensors, whose digits tell them apart",
    "canvas.js": "the place of a tick on an axis",
    "runs.js": "coordinates of a drawing",
}
"""Files whose decimals are not a number that a person reads, with the reason."""


def _formatted(path: Path) -> Iterator[int]:
    """Yield the lines in which an f-string formats decimals, or rounds."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FormattedValue):
            continue
        spec = "".join(part.value for part in getattr(node.format_spec, "values", ()) if isinstance(part, ast.Constant))
        calls = (call.func for call in ast.walk(node.value) if isinstance(call, ast.Call))
        if _DECIMALS.match(spec) or any(isinstance(name, ast.Name) and name.id == "round" for name in calls):
            yield node.lineno


@pytest.mark.parametrize("room", VIEWS)
def test_python_formats_decimals_in_one_place(room: str) -> None:
    """In texts of screens, pages, answers and verdicts."""
    directory = ROOT / "otel_rl" / room
    found = {
        f"{path.relative_to(ROOT / 'otel_rl')}:{line}"
        for path in directory.rglob("*.py")
        if str(path.relative_to(ROOT / "otel_rl")) not in OTHERS
        for line in _formatted(path)
    }

    assert len([*directory.rglob("*.py")]) > 10
    assert found == set()


def test_javascript_formats_decimals_in_one_place() -> None:
    """In the page, timeline included."""
    scripts = {path.name: path.read_text() for path in ASSETS.glob("*.js") if not path.name.startswith("uplot")}
    found = {name for name, text in scripts.items() if _OF_JAVASCRIPT.search(text)}

    assert len(scripts) > 20
    assert found - OTHERS.keys() == {"numbers.js"}
