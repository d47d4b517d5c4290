"""A run in ranges of steps: what is known of its steps, and of the values of each name."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.semconv.main_metrics import MainMetrics, entries

if TYPE_CHECKING:
    from otel_rl.look.reader.snapshot import FileKey

Column = np.ndarray[Any, Any]
FIRST_NAMES = 8
"""Main metrics that are read of a run, and drawn, when no name is asked for."""
_LARGEST = 64
"""Steps of the ranges of a long run."""
_MOST = 2048
"""Ranges of a run whose ranges are shorter: with fewer steps, each has its own."""


class StepLines(NamedTuple):
    """The ranges that have steps, each with what its lines of `steps` are."""

    bucket: Column  # number of the range: its first step divided by the number of its steps
    lines: Column  # a number that differs when the lines do; of a plain history, how many there are
    first: Column  # its first step
    last: Column  # its last step
    seconds: Column  # mean time from the start of the run to the end of its steps; NaN if all its lines are late


class NameRanges(NamedTuple):
    """The values of a name in the ranges that have any."""

    bucket: Column  # number of the range
    low: Column  # lowest finite value; NaN if none is finite
    high: Column  # highest finite value
    total: Column  # sum of the finite values
    number: Column  # how many of them
    bad: Column  # how many values are not finite
    bad_at: Column  # the first step of those; -1 without any


class PlainHistory(NamedTuple):
    """How far a plain history was read."""

    attempt: int = 0  # the one attempt
    items: int = 0  # number of its rows
    files: frozenset[FileKey] = frozenset()  # the files that have them


class RunRanges(NamedTuple):
    """A run in ranges of steps."""

    signature: str  # of the files that it was read from
    every: int  # number of steps of a range
    origin: int  # when the run began, in Unix nanoseconds
    steps: StepLines
    names: tuple[str, ...]  # all its names: those that the trainer logged first, in their order
    has_holes: bool  # whether files are damaged or missing
    values: dict[str, NameRanges]  # its first main metrics, and those names that somebody has asked for
    history: PlainHistory | None = None  # `None` if its history is not plain, or another server has read it

    def by_topic(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the main metrics, by topic."""
        return _by_topic(self.names)


def width_of(first: int, last: int) -> int:
    """Return how many steps a range of a run has whose first and last step are these."""
    return 1 << max(0, min(_LARGEST, -(-(last - first + 1) // _MOST)) - 1).bit_length()


def main_names(names: tuple[str, ...]) -> list[str]:
    """Return the first main metrics among names."""
    return [name for of_topic in _by_topic(names).values() for name in of_topic][:FIRST_NAMES]


@lru_cache(256)
def _by_topic(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the main metrics among names; the runs of a project have the same."""
    topics = MainMetrics(names).by_topic
    return {entry.topic: topics[entry.topic] for entry in entries() if entry.main and entry.topic in topics}
