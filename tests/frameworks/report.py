"""What a test of a real framework compared: it becomes `results/<framework>.yaml`, and a row of the docs.

`OTEL_RL_FRAMEWORK_RESULTS=tests/frameworks/results` writes the files; without the variable nothing is written.
`OTEL_RL_SOURCES` names the directory of checkouts of frameworks that are on no package index, one folder each.
"""

from __future__ import annotations

import math
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from otel_rl.export import Span
from otel_rl.semconv.dialect import dialect
from tests.processes import items_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Trainers in processes of their own must not get these: an unknown variable of otel-rl is an error.
_SOURCES = Path(os.environ.pop("OTEL_RL_SOURCES", "/nowhere")).absolute()
_RESULTS = os.environ.pop("OTEL_RL_FRAMEWORK_RESULTS", "")


class Result(msgspec.Struct, forbid_unknown_fields=True):
    """What a training of a real framework showed.

    Attributes:
        framework: Its name.
        revision: The version on PyPI or the commit.
        ran: What ran.
        numbers: Numbers that the framework itself wrote.
        equal: How many of them are the same in the rows, in the row of the same step.
        different: How many are not.
        explained: Why those differ, and what is not recorded.
        steps: Steps of the framework that have a row.
        phase_coverage: Share of the time of the steps that is in phases.
        names: Different names of numbers.
        mapped: Names with a canonical metric.
        declared: Names that the dialect leaves as they are, for a reason.
        unknown: The other names.
    """

    framework: str
    revision: str
    ran: str
    numbers: int
    equal: int
    different: int
    explained: str
    steps: int
    phase_coverage: float | None
    names: int
    mapped: int
    declared: int
    unknown: int


def sources(folder: str) -> Path:
    """Return a checkout; without one the test is skipped."""
    found = _SOURCES / folder
    if not found.is_dir():
        pytest.skip(f"no {folder} in OTEL_RL_SOURCES")
    return found


def compared(
    known: str,
    own: Mapping[int, Mapping[str, float]],
    run_dir: Path,
    *,
    same: Callable[[float, float], bool] = lambda one, other: one == other,
    **facts: Any,
) -> Result:
    """Compare what a framework wrote itself, by step, with the rows of a run; write the file if it is asked for.

    Args:
        known: The dialect, which is the name of the file.
        own: The numbers that the framework wrote.
        run_dir: The run directory.
        same: Whether two numbers are the same.
        facts: `framework`, `revision`, `ran` and `explained` of the result.
    """
    rows: dict[Any, Any] = {row["step"]: row["values"] for row in rows_of(run_dir)}
    pairs = [(value, rows.get(step, {}).get(name)) for step, values in own.items() for name, value in values.items()]
    equal = sum(
        there is not None and (same(value, there) or (math.isnan(value) and math.isnan(there)))
        for value, there in pairs
    )
    names = set(chain.from_iterable(own.values()))
    mapped = {name for name in names if dialect(known).read(name) is not None}
    declared = {name for name in names - mapped if dialect(known).passes(name)}
    result = Result(
        numbers=len(pairs),
        equal=equal,
        different=len(pairs) - equal,
        steps=len(own.keys() & rows.keys()),
        phase_coverage=coverage(items_of(run_dir)),
        names=len(names),
        mapped=len(mapped),
        declared=len(declared),
        unknown=len(names - mapped - declared),
        **facts,
    )
    if _RESULTS:
        (Path(_RESULTS) / f"{known}.yaml").write_bytes(msgspec.yaml.encode(result))
    return result


def coverage(items: Iterable[object]) -> float | None:
    """Return the share of the time of the steps that is in their phases, at least once; `None` without steps."""
    spans = [item for item in items if isinstance(item, Span)]
    steps = {span.span_id: span for span in spans if span.name == "rl.loop"}
    total = covered = 0
    for number, step in steps.items():
        total += step.end_unix_nano - step.start_unix_nano
        until = step.start_unix_nano
        phases = [(span.start_unix_nano, span.end_unix_nano) for span in spans if span.parent_id == number]
        for start, end in sorted(phases):
            covered += max(0, end - max(start, until))
            until = max(until, end)
    return round(covered / total, 3) if total else None
