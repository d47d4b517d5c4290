"""The page of the architecture: its rooms are those that there are, and its diagram shows the imports of today."""

from __future__ import annotations

import html
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs import sizes_page

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "otel_rl"
RECORDER = LIBRARY / "recorder"
PAGE = ROOT / "docs/explanation/architecture.md"
MOST_ENTRIES = 15


@pytest.fixture(scope="module")
def imports(monkeypatch_module: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of the script that draws the diagram, run in the root of the repository."""
    monkeypatch_module.chdir(ROOT)
    return runpy.run_path(str(ROOT / ".ci/import_graph"))


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    """Return a `monkeypatch` for all tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_no_circle(imports: dict[str, Any]) -> None:
    """No part of the library imports, over others, itself."""
    assert imports["in_circles"](imports["arrows"]()) == set()


def test_a_circle_is_found(imports: dict[str, Any]) -> None:
    """Of a → b → c → a and c → d, three arrows are in a circle."""
    circle = {("a", "b"), ("b", "c"), ("c", "a")}
    assert imports["in_circles"](circle | {("c", "d")}) == circle


def test_the_diagram_is_of_today(imports: dict[str, Any]) -> None:
    """The diagram has the arrows that there are; `.ci/import_graph docs/images/imports.svg` draws it again."""
    drawn = (ROOT / "docs/images/imports.svg").read_text()
    titles = (html.unescape(title) for title in re.findall(r"<title>(.*?)</title>", drawn))
    assert {tuple(title.split("->")) for title in titles if "->" in title} == imports["arrows"]()


def test_the_rooms_are_listed() -> None:
    """Each wing and each room of the recorder is in a table, above those that it may import."""
    wings, rooms = PAGE.read_text().partition("Next to the library")[0].split("| room of the recorder |")
    for table, library, contract in ((wings, LIBRARY, "Imports go down"), (rooms, RECORDER, "Inside the recorder too")):
        listed = re.findall(r"^\| `([\w/]+)` \|", table, re.M)
        folders = {path.parent for path in library.glob("*/__init__.py")}
        folders |= {path.parent for path in library.glob("agent/*/__init__.py")}
        files = {path.stem for path in library.glob("*.py")} - {"__init__", "moved"}
        assert set(listed) == {str(path.relative_to(library)) for path in folders} | files
        assert [name for name in listed if "/" not in name] == _layers(contract)


def _layers(contract: str) -> list[str]:
    """Return the rooms of a contract in pyproject.toml, from top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == contract)
    return [name.strip().removeprefix("otel_rl.") for layer in layers for name in layer.split("|")]


def test_a_room_says_what_it_is_for() -> None:
    """The docstring of each room has two paragraphs: what it is for, and who imports it."""
    for room in (*LIBRARY.glob("*/__init__.py"), *RECORDER.glob("*/__init__.py")):
        docstring = room.read_text().split('"""')[1]
        assert len(docstring.strip().split("\n\n")) >= 2, room
        assert "import" in docstring, room


def test_the_top_of_the_library() -> None:
    """At most fifteen entries lie at the top of the library."""
    entries = [path.name for path in (ROOT / "otel_rl").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_each_mechanism_names_a_test() -> None:
    """A mechanism without a test of its accident has no reason to stay."""
    section = PAGE.read_text().partition("## Mechanisms")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`([\w/*.]+)`", row[3]) or re.findall(r"`(\w+/)`", row[3])
        assert named, row[1]
        assert [name for name in named if not [*(ROOT / "tests").glob(name.rstrip("/"))]] == [], row[1]


def test_the_sizes_are_of_today() -> None:
    """No line of the table is off by more than 5 %; `python -m tests.docs.sizes_page` writes it again."""
    assert sizes_page.differing(sizes_page.written()) == []
