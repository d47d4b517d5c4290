"""The steps that a run has recorded since its page was read: each new file of its archive is read once.

Only what comes in order is taken: rows of whole steps of the same attempt, on one machine, each behind the last one. If
anything else is recorded, such as a late value or a resumed run, the tail ends there, until the page is read again. Its
first steps may be those that the page was read with.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import columns_in, from_parquet
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import ROWS, STEPS
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.look.page.steps import StepAxis
    from otel_rl.recorder.archive.files import File
    from otel_rl.recorder.archive.tables import ArchiveTable

_MOST_VALUES = 1_000_000
_UNREADABLE = (OSError, TypeError, ArithmeticError, ValueError, *UNDECODABLE)


class TailSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a tail, from one place on."""

    of: str  # the digest of the steps that are before them
    first: int  # the place in the tail of the first one
    steps: tuple[int, ...]  # their numbers
    ended: tuple[float, ...]  # when their rows were made, in seconds since the origin of the page
    seconds: tuple[float | None, ...]  # their times; `None` where nothing says it
    values: dict[str, tuple[float | str | None, ...]]
    """The values of each name, for each of the steps; `None` without one, and a text if it is not finite."""


class _TailStep(NamedTuple):
    number: int
    time_unix_nano: int
    values: dict[str, float]


class ArchivePlace(NamedTuple):
    """The rows of a run that are in files."""

    machine: Path | None  # the folder of the one machine with rows; `None` if there are several
    rows: int  # how many there are


def place_in(run: Path) -> ArchivePlace:
    """Return how many rows of a run are in files now."""
    archive = run / ARCHIVE
    folders = [archive / name for name in machines(archive)]
    ends = {folder: listed[-1].end for folder in folders if (listed := files.of_table(folder, STEPS.name))}
    return ArchivePlace(*next(iter(ends.items()))) if len(ends) == 1 else ArchivePlace(None, 0)


class RunTail:
    """The steps that a run has recorded since a moment.

    Attributes:
        has_ended: If true, what follows is not in order.

    Args:
        steps: The steps at that moment.
        origin: The time that all times of the page count from, in Unix nanoseconds.
        place: The rows that were in files before it.
    """

    def __init__(self, steps: StepAxis, origin: int, place: ArchivePlace) -> None:
        self._origin, self._machine, self._read = origin, place.machine, place.rows
        self._attempt = int(steps.attempts[-1]) if len(steps.attempts) else 0
        self._last = -1
        self._steps: list[_TailStep] = []
        self._values = 0
        self.has_ended = self._machine is None

    def __len__(self) -> int:
        """Return the number of its steps, of files that are there now."""
        if self._machine is not None and not self.has_ended:
            try:
                self.has_ended = not all(self._take(file) for file in self._fresh(self._machine))
            except _UNREADABLE:  # a file was deleted meanwhile, or is damaged: the reader looks at it
                self.has_ended = True
        return len(self._steps)

    def since(self, first: int, of: str) -> TailSteps:
        """Return the steps from a place on."""
        steps = self._steps[first:]
        names = dict.fromkeys(name for step in steps for name in step.values)
        return TailSteps(
            of=of,
            first=first,
            steps=tuple(step.number for step in steps),
            ended=tuple((step.time_unix_nano - self._origin) / 1e9 for step in steps),
            seconds=tuple(_finite(step.values.get(STEP_TIME)) for step in steps),
            values={name: tuple(_shown(step.values.get(name)) for step in steps) for name in names},
        )

    def _fresh(self, machine: Path) -> list[File]:
        """Return the files with rows that were not read yet, if all of them are there."""
        if place_in(machine.parents[1]).machine is None:
            raise FileNotFoundError("another machine has begun")
        of_values = {file[:2] for file in files.every(machine, ROWS.name)}  # written before their lines of `steps`
        listed = [file for file in files.every(machine, STEPS.name) if file.end > self._read]
        chosen = files.covering(file for file in listed if file[:2] in of_values)
        return chosen if not chosen or chosen[0].first <= self._read else []

    def _take(self, file: File) -> bool:
        """Take the rows of a file; return whether all of them are in order."""
        assert self._machine is not None
        if file.first > self._read:
            return False
        lines = _columns(STEPS, file)
        rows = [dict(zip(lines, line, strict=True)) for line in zip(*lines.values(), strict=True)]
        fresh = {}
        for row in rows[self._read - file.first :]:
            if row["attempt"] != self._attempt or row["part"] or row["late"] or row["partial"]:
                return False
            if row["step"] <= self._last:
                return False
            self._last = row["step"]
            fresh[row["step"]] = _TailStep(row["step"], row["time_unix_nano"], {})
        if fresh:
            values = _columns(ROWS, _of_range(self._machine, file))
            for step, name, value in zip(values["step"], values["name"], values["value"], strict=True):
                if step in fresh:
                    fresh[step].values[name] = value
                    self._values += 1
        self._steps += fresh.values()
        self._read = file.end
        return self._values < _MOST_VALUES


def _columns(table: ArchiveTable, file: File) -> dict[str, Any]:
    return dict(columns_in(table, from_parquet(table, intact.read(file))))


def _of_range(machine: Path, file: File) -> File:
    """Return the file of values with the range of one of `steps`.

    Raises:
        FileNotFoundError: It was deleted.
    """
    for other in files.every(machine, ROWS.name):
        if other[:2] == file[:2]:
            return other
    raise FileNotFoundError(file.path)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _shown(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
