"""The table of concepts in the page of the architecture; `python -m tests.docs.concepts_page` writes it.

A concept has one function. The table lists the modules that call it, and the views that print its result, as the source
has them: a module calls a function that it imports, and prints a result whose field it reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "otel_rl"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- concepts: python -m tests.docs.concepts_page -->\n", "<!-- end of concepts -->\n"
VIEWS = ("look/terminal", "look/page", "look/ui", "look/mcp", "look/verbs", "cli")
"""The rooms that print, and compute none of the concepts."""


class Concept(NamedTuple):
    """One of the facts that several screens show."""

    name: str  # in words
    functions: tuple[str, ...]  # its functions, as `room.module.name` below the library
    read: str  # how a view reads the result, as a regular expression


_RUN = r"\b(?:summary|present|run|progress)\."
_FACTS = "recorder.facts"
CONCEPTS = (
    Concept("state of a run", (f"{_FACTS}.standing.standing",), _RUN + "state"),
    Concept("how a process ended", (f"{_FACTS}.processes.how_it_ended",), _RUN + "reason"),
    Concept("how a run went, in a sentence", (f"{_FACTS}.outcome.outcome_sentence",), r"\.sentence\b"),
    Concept("time of a step", (f"{_FACTS}.step_time.times",), r"\bstep_seconds\("),
    Concept("time of the last steps", (f"{_FACTS}.step_time.recent",), r"\.recent_step_seconds\b"),
    Concept("change of the time of a step", ("look.insight.shifts.shifts",), r"\.step_seconds_before\b"),
    Concept(
        "own time of a phase, and shares",
        (f"{_FACTS}.own_time.own_times", f"{_FACTS}.own_time.ProcessTime", f"{_FACTS}.own_time.closed"),
        r"\.(?:recent_)?shares\b|\bown_ns\b",
    ),
    Concept("delay of a rank", (f"{_FACTS}.delay.delays", "look.insight.delays.delays"), r"\bdelays\("),
    Concept("goodput", (f"{_FACTS}.goodput.goodput", f"{_FACTS}.goodput.counts_as"), r"\bgoodput\b"),
    Concept("order of findings", (f"{_FACTS}.order.precedence",), r"\.findings\b"),
)


def page(text: str) -> str:
    """Return the page with the table, between its two comments."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + table() + END + rest.partition(END)[2]


def table() -> str:
    """Return the table."""
    rows = [
        (concept.name, *map(_codes, (concept.functions, computing(concept), printing(concept)))) for concept in CONCEPTS
    ]
    head = ("concept", "its function", "who computes it", "who prints it"), ("---",) * 4
    return "".join(f"| {' | '.join(row)} |\n" for row in (*head, *rows))


def computing(concept: Concept) -> list[str]:
    """Return the modules that import a function of a concept, apart from views that only print what it returns."""
    return [
        name
        for name, source in _modules().items()
        if any(_imports(source, one) for one in concept.functions) and not re.match("look/(?:page|mcp|verbs)", name)
    ]


def printing(concept: Concept) -> list[str]:
    """Return the views that read the result of a concept."""
    return [name for name, source in _modules().items() if name.startswith(VIEWS) and re.search(concept.read, source)]


def exists(function: str) -> bool:
    """Return whether the library has a function."""
    module, _, name = function.rpartition(".")
    path = LIBRARY / f"{module.replace('.', '/')}.py"
    return path.exists() and name in {
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@cache
def _modules() -> dict[str, str]:
    """Return the sources of the library by their paths without an end."""
    return {str(path.relative_to(LIBRARY).with_suffix("")): path.read_text() for path in sorted(LIBRARY.rglob("*.py"))}


def _imports(source: str, function: str) -> bool:
    """Return whether a module imports a function, or its module and uses it from there."""
    module, _, name = f"otel_rl.{function}".rpartition(".")
    for whole, known_as in _imported(source):
        if whole == f"{module}.{name}" or (whole == module and re.search(rf"\b{known_as}\.{name}\b", source)):
            return True
    return False


@cache
def _imported(source: str) -> list[tuple[str, str]]:
    """Return what a module imports from others, with the names that it has there."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return [(f"{node.module}.{alias.name}", alias.asname or alias.name) for node in nodes for alias in node.names]


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.removeprefix('recorder.')}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
