"""Views print what the facts and insight have concluded, and have no rule of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.concepts_page import LIBRARY, VIEWS

FORMATS = {
    "wording": "numbers, times and lists as people read them",
    "event_text": "attributes of events as a text",
    "value_range": "the range of an axis",
    "goes_on": "which states are those of a run that goes on",
    "place": "a step as `812 of 1,200`",
    "how_it_ended": "the end of a process in words",
    "ended_badly": "the color of the end of a process",
    "place_in": "where a value is on an axis",
}
"""Names of the facts that views may call, and their purpose; constants and types are data."""
DRAWS = {
    "look/page/measured": "a group of many lines is drawn as its lowest, median and highest one",
    "look/page/comparison": "a line with more points than pixels is drawn through means of neighbors",
    "look/ui/step_ranges": "a range of many steps is drawn at the mean time of their ends",
    "look/ui/seeds": "the band of runs that differ in their seed alone is drawn around their mean",
    "look/mcp/search": "`find` adds up the spans of one name; it says nothing about phases",
}
"""Views that aggregate, of what nobody concludes anything."""
READS = {
    "look/terminal/past": "the last steps of a run without an agent follow from its archive, by the rules of the facts",
}
"""Views that call a rule, and what for."""
_STATISTICS = {
    *("median", "percentile", "quantile", "nanmedian", "nanpercentile", "nanquantile", "mean", "nanmean", "average"),
    *("std", "nanstd", "var", "nanvar", "corrcoef", "polyfit", "histogram"),
}
_AGGREGATE = re.compile(
    r"\b(?:median|quantile\w*|avg|mean|mode|stddev\w*|var_\w+|corr|regr_\w+|approx_\w+|mad)\s*\("
    r"|\bsum\(\s*\w*duration",
    re.I,
)
"""Aggregates that conclude, in SQL: averages of any kind, and sums of durations. `own_ns` is there to be summed up."""


def test_views_compute_nothing() -> None:
    """No statistics, no SQL that sums up times or averages, and of the facts only what formats."""
    found = {name: [*_computes(source)] for name, source in _views() if name not in {*DRAWS, *READS}}

    assert len(found) > 50
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("name", [*DRAWS, *READS])
def test_each_exception_is_one(name: str) -> None:
    """A view that no longer aggregates leaves the list."""
    assert [*_computes((LIBRARY / f"{name}.py").read_text())]


@pytest.mark.parametrize(
    "source",
    [
        "from statistics import median",
        "import numpy as np\nnp.median([1])",
        "run.sql('SELECT avg(value) FROM rows')",
        "run.sql(f'SELECT sum(duration_ns) AS n FROM {spans}')",
        "from otel_rl.recorder.facts.standing import standing",
        "from otel_rl.recorder.facts import step_time",
    ],
)
def test_a_computation_is_found(source: str) -> None:
    """In Python, NumPy and SQL; and a rule that a view applies itself."""
    assert [*_computes(source)]


def _views() -> Iterator[tuple[str, str]]:
    for path in sorted(LIBRARY.rglob("*.py")):
        name = str(path.relative_to(LIBRARY).with_suffix(""))
        if name.startswith(VIEWS):
            yield name, path.read_text()


def _computes(source: str) -> Iterator[str]:
    """Yield what a view computes, with its line."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="statistics") | ast.Import(names=[ast.alias(name="statistics")]):
                yield f"{node.lineno}: statistics"
            case ast.ImportFrom(module=str(module)) if module.startswith("otel_rl.recorder.facts"):
                rules = [alias.name for alias in node.names if alias.name.islower() and alias.name not in FORMATS]
                if rules and module.rpartition(".")[2] not in FORMATS:
                    yield f"{node.lineno}: {module} {' '.join(rules)}"
            case ast.Call(func=ast.Attribute(attr=attribute)) if attribute in _STATISTICS:
                yield f"{node.lineno}: {attribute}"
            case ast.Constant(value=str(text)) if id(node) not in docstrings and (match := _AGGREGATE.search(text)):
                yield f"{node.lineno}: {match[0]}"
