"""The time of a step: where it comes from, and its median over the last steps.

A step takes until its slowest rank has left it, be that rank on another machine or late. One in which a process died
was not done, and has no time.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NS = 1e9
RECENT_STEPS = 20
"""Steps that numbers of the last steps are about; screens write "last 20 steps" next to them."""


class StepRow(NamedTuple):
    """The row of a step that no process died in, as far as its time is concerned."""

    step: int
    attempt: int
    time_unix_nano: int
    seconds: float | None = None  # its `time/step`; `None` if it has none


def times(rows: Sequence[StepRow]) -> list[tuple[int, float]]:
    """Return steps with their wall time in seconds: their `time/step`, if any row has one.

    A trainer that only logs has none. There it is the time since the row before, in the same attempt, divided by the
    number of steps in between, since a trainer may log only every tenth.
    """
    measured = [(row.step, row.seconds) for row in rows if row.seconds is not None]
    if measured:
        return [(step, seconds) for step, seconds in measured if math.isfinite(seconds)]
    return [
        (row.step, (row.time_unix_nano - before.time_unix_nano) / _NS / (row.step - before.step))
        for before, row in pairwise(rows)
        if row.attempt == before.attempt and row.step > before.step
    ]


def slower(first: float | None, second: float | None) -> float | None:
    """Return the time of a step that two rows are of; `None` if neither has one."""
    return max((seconds for seconds in (first, second) if seconds is not None), default=None)


def of_machines(machines: Iterable[Iterable[StepRow]]) -> list[StepRow]:
    """Return the rows of the steps of which each machine has a row; the slowest machine counts."""
    by_step = [{row[:2]: row for row in rows} for rows in machines]
    common = set(by_step[0]).intersection(*by_step[1:]) if by_step else set[tuple[int, int]]()
    steps = []
    for step in sorted(common):
        rows = [of_machine[step] for of_machine in by_step]
        seconds = reduce(slower, (row.seconds for row in rows))
        steps.append(StepRow(*step, max(row.time_unix_nano for row in rows), seconds))
    return steps


def recent(rows: Sequence[StepRow]) -> float | None:
    """Return the median time of the last 20 whole steps in seconds; `None` if nothing says it.

    Args:
        rows: The last rows of the valid history, in the order of steps; one more than 20 is enough.
    """
    last = rows[-RECENT_STEPS - 1 :]
    first = last[-RECENT_STEPS:][0].step if last else 0
    known = [seconds for step, seconds in times(last) if step >= first]
    return median(known) if known else None


def place(last_step: int, total_steps: int) -> int:
    """Return how many of all steps are done; steps begin at 0 or, in some frameworks, at 1."""
    return last_step + (last_step < total_steps)


def left(last_step: int | None, total_steps: int | None, recent_seconds: float | None) -> float | None:
    """Return the seconds that the steps to come take at the time of the last ones; `None` if that is unknown."""
    if last_step is None or total_steps is None or recent_seconds is None:
        return None
    return max(0, total_steps - place(last_step, total_steps)) * recent_seconds
