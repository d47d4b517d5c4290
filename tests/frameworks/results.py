"""Compares what otel-rl recorded with what a framework wrote, and keeps the counts in the page of tested frameworks.

`OTEL_RL_FRAMEWORK_RESULTS=1` writes them there. `OTEL_RL_SOURCES` is a directory of checkouts of frameworks that are
not on PyPI. Both variables are removed from the environment: a trainer would refuse them as unknown settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otel_rl.export import Span
from otel_rl.frameworks.drift import sorted_out
from otel_rl.semconv import dialect
from otel_rl.semconv.frameworks import dialects

SOURCES = Path(os.environ.pop("OTEL_RL_SOURCES", "/nowhere"))
_KEEPS = bool(os.environ.pop("OTEL_RL_FRAMEWORK_RESULTS", ""))
_PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "frameworks.md"
Number = tuple[int, str]
"""A step and a name."""
Values = dict[int, dict[str, Any]]
"""Numbers by step and name."""


class Compared(NamedTuple):
    """Numbers that a framework wrote, by whether otel-rl recorded the same."""

    equal: list[Number]
    different: list[Number]

    @property
    def steps(self) -> list[int]:
        """The steps at which the framework wrote."""
        return sorted({step for step, _ in (*self.equal, *self.different)})

    @property
    def names(self) -> set[str]:
        """The names that the framework wrote."""
        return {name for _, name in (*self.equal, *self.different)}


def by_step(pairs: Iterable[tuple[int, Mapping[str, Any]]]) -> Values:
    """Return the values of each step; what comes later replaces what was before."""
    found: Values = {}
    for step, values in pairs:
        found.setdefault(step, {}).update(values)
    return found


def logged(file: Path) -> Values:
    """Return what an example wrote down of what its trainer logged."""
    lines = map(json.loads, file.read_text().splitlines())
    return by_step((line["step"], line["values"]) for line in lines)


def tensorboard(directory: Path) -> Values:
    """Return the numbers in TensorBoard's files directly in a directory; they have single precision."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    own = EventAccumulator(str(directory), {"scalars": 0}).Reload()
    return by_step((one.step, {tag: one.value}) for tag in own.Tags()["scalars"] for one in own.Scalars(tag))


def compared(wrote: Values, rows: Values, *, single: bool = False) -> Compared:
    """Compare each number that a framework wrote, perhaps in single precision, with the row of its step."""
    found = Compared([], [])
    for step, values in wrote.items():
        for name, value in values.items():
            recorded = rows.get(step, {}).get(name)
            is_equal = recorded == value or (recorded == "NaN" and value != value)  # noqa: PLR0124 - as JSON has it
            is_equal |= single and isinstance(recorded, int | float) and np.float32(recorded) == value
            (found.equal if is_equal else found.different).append((step, name))
    return found


def phase_coverage(spans: list[Span]) -> float | None:
    """Return the share of the steps' time during which a phase is open; `None` without steps."""
    steps = [span for span in spans if span.name == "rl.loop"]
    covered = 0
    for step in steps:
        until = step.start_unix_nano
        inside = (span for span in spans if span.trace_id == step.trace_id and span is not step)
        for span in sorted(inside, key=lambda span: span.start_unix_nano):
            end = min(span.end_unix_nano, step.end_unix_nano)
            covered += max(0, end - max(until, span.start_unix_nano))
            until = max(until, end)
    return covered / sum(step.end_unix_nano - step.start_unix_nano for step in steps) if steps else None


def keep(framework: str, revision: str, ran: str, found: Compared, coverage: float | None) -> None:
    """Write the counts into the row of the framework in the table of the page, if somebody asks for them.

    Args:
        framework: Name of the dialect, or the title of a framework without one.
        revision: Version or revision of the framework that ran.
        ran: What ran, and what readers need to know of the comparison.
        found: The numbers.
        coverage: Share of the steps' time in phases; `None` if nothing was timed.
    """
    if not _KEEPS:
        return
    has_dialect = framework in dialects()
    names = sorted_out(found.names if has_dialect else (), framework)
    known = len(names.mapped) + len(names.declared)
    cells = (
        *(dialect.dialect_file(framework).framework["title"] if has_dialect else framework, revision, ran),
        *(len(found.equal) + len(found.different), len(found.equal), len(found.different), len(found.steps)),
        "" if coverage is None else f"{coverage:.0%}",
        *(len(found.names), len(names.mapped), "all" if known == len(found.names) else known),
    )
    row = f"| {' | '.join(map(str, cells))} |\n".replace("|  |", "| |")
    before, line, table = _PAGE.read_text().partition(f"{'|---' * len(cells)}|\n")
    rows = [one for one in table.splitlines(keepends=True) if one.split("|")[1] != row.split("|")[1]]
    _PAGE.write_text(f"{before}{line}{''.join(sorted([*rows, row]))}")
