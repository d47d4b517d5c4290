"""The values of a run with a plain history, in ranges of steps: each of its files is read once, without a query.

A history is plain if one machine recorded it in one attempt, each step once and behind the last one, with nothing late.
All its values are valid then. In any other history, and when files are damaged or missing, the reader decides which
values are valid.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from arro3.core import DataType, dictionary_dictionary, dictionary_indices

from otel_rl.look.reader.snapshot import FileKey, file_key, listed_of
from otel_rl.look.ui.run_ranges import Column, NameRanges, PlainHistory, RunRanges, StepLines, main_names, width_of
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import batches_in, columns_in, from_parquet, largest_of
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import ATTEMPTS, ROWS, STEPS
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.files import File

_LINES = 1 << 20
"""Lines of a file that are read at once, usually all."""
_REPEATED = DataType.dictionary(DataType.int32(), DataType.string())
_COLUMNS = ("attempt", "step", "part", "time_unix_nano", "value", "measured", "late", "place")
_FOLDS = (np.fmin.reduceat, np.fmax.reduceat, *[np.add.reduceat] * 3, np.minimum.reduceat)
"""How the columns of ranges, behind their numbers, become those of wider ones."""
_NEVER = np.iinfo(np.int64).max
_NONE: Column = np.empty(0, int)
_NO_STEPS, _NO_VALUES = StepLines(*[_NONE] * 5), NameRanges(*[_NONE] * 7)
_UNREADABLE = (OSError, ValueError, ArithmeticError, *UNDECODABLE)


class _NotPlainError(ValueError):
    """A history of which the reader says what is valid."""


class _FileRows(NamedTuple):
    """The lines of a file of values."""

    names: tuple[str, ...]
    owner: Column  # of each line, the place of its name
    columns: dict[str, Column]  # the other columns
    steps: Column  # the step of each row, in order
    times: Column  # the time of each row


def plain_ranges(path: Path, signature: str, wanted: Sequence[str], known: RunRanges | None) -> RunRanges | None:
    """Return the values of a run; `None` if its history is not plain.

    Args:
        path: The run directory.
        signature: That of its files.
        wanted: The names whose values are wanted. The first main metrics are read with them.
        known: What was read before. If it has all names, only files that are new since then are read.
    """
    try:
        chosen = _files(path)
        first, last = _rows_in(chosen[0]), _rows_in(chosen[-1])
        every = width_of(int(first.steps[0]), int(last.steps[-1]))
        origin = min([*_starts(path), int(first.times.min())])
        is_known = known is not None and known.history is not None and {*wanted} <= known.values.keys()
        if known is None or not is_known or (known.every, known.origin) != (every, origin):
            values = dict.fromkeys((*wanted, *main_names(first.names)), _NO_VALUES)
            history = PlainHistory(attempt=int(first.columns["attempt"][0]))
            known = RunRanges("", every, origin, _NO_STEPS, (), False, values, history)
        read = _PlainReading(known)
        for file in chosen:
            read.take(file, first if file is chosen[0] else last if file is chosen[-1] else None)
    except _UNREADABLE:  # damaged, deleted meanwhile, or not plain
        return None
    return read.ranges(signature, chosen[-1].end)


class _PlainReading:
    """The ranges of a plain history, to which one file after the other is added."""

    def __init__(self, known: RunRanges) -> None:
        self._known, self._history = known, known.history or PlainHistory()
        self._files = set[FileKey]()
        self._reached = int(known.steps.last[-1]) if len(known.steps.last) else -1
        self._steps, self._fresh = [known.steps], dict[str, tuple[bool, int]]()
        self._ids = {name: at for at, name in enumerate(known.values)}
        owner = np.repeat(np.arange(len(self._ids)), [len(values.bucket) for values in known.values.values()])
        columns = zip(*(known.values or {"": _NO_VALUES}).values(), strict=True)
        self._values = [(owner, NameRanges(*map(np.concatenate, columns)))]

    def take(self, file: File, rows: _FileRows | None) -> None:
        """Add the rows of a file that are not known yet."""
        key = file_key(file)
        self._files.add(key)
        if key in self._history.files or file.end <= self._history.items:
            return
        rows = rows or _rows_in(file)
        at = np.searchsorted(rows.steps, self._reached, "right")
        steps, times = rows.steps[at:], rows.times[at:]
        is_next = len(steps) == file.end - max(file.first, self._history.items)
        is_next = is_next and times.min() >= self._known.origin
        if not is_next or (rows.columns["attempt"] != self._history.attempt).any():
            raise _NotPlainError(file.path)
        seconds = (times - self._known.origin) / 1e9
        self._steps.append(StepLines(steps // self._known.every, np.ones(len(steps), int), steps, steps, seconds))
        self._values.append(_folded(*self._single(rows)))
        self._reached = int(steps[-1])
        for name, (measured, place) in _order(rows):
            before = self._fresh.get(name, (False, place))
            self._fresh[name] = before[0] or measured, min(before[1], place)

    def ranges(self, signature: str, items: int) -> RunRanges:
        """Return all that was added."""
        owners, values = zip(*self._values, strict=True)
        owner, whole = _folded(np.concatenate(owners), NameRanges(*map(np.concatenate, zip(*values, strict=True))))
        ends = np.searchsorted(owner, np.arange(len(self._ids) + 1)).tolist()
        fresh = sorted(self._fresh, key=lambda name: (self._fresh[name], name))
        return self._known._replace(
            signature=signature,
            steps=_folded_steps(StepLines(*map(np.concatenate, zip(*self._steps, strict=True)))),
            names=tuple(dict.fromkeys((*self._known.names, *fresh))),
            values={
                name: NameRanges(*(column[ends[at] : ends[at + 1]] for column in whole))
                for name, at in self._ids.items()
            },
            history=self._history._replace(items=items, files=frozenset(self._files)),
        )

    def _single(self, rows: _FileRows) -> tuple[Column, NameRanges]:
        """Return the wanted values of rows, each as a range of its own."""
        owner = np.array([self._ids.get(name, -1) for name in rows.names])[rows.owner]
        wanted = np.flatnonzero((owner >= 0) & (rows.columns["step"] > self._reached))
        step, value = rows.columns["step"][wanted], rows.columns["value"][wanted]
        is_good = np.isfinite(value)
        edge = np.where(is_good, value, np.nan)
        number, bad_at = is_good.astype(int), np.where(is_good, _NEVER, step)
        total = np.where(is_good, value, 0.0)
        return owner[wanted], NameRanges(step // self._known.every, edge, edge, total, number, 1 - number, bad_at)


def _folded(owner: Column, values: NameRanges) -> tuple[Column, NameRanges]:
    """Return values in the order of owners and ranges, with those of the same owner and range together."""
    if not len(owner):
        return owner, values
    place = owner * (values.bucket.max() + 1) + values.bucket
    order = np.argsort(place, kind="stable")
    begins = np.flatnonzero(np.diff(place[order], prepend=-1))
    owner, (bucket, *columns) = owner[order], (column[order] for column in values)
    columns[-1] = np.where(columns[-1] < 0, _NEVER, columns[-1])
    *whole, bad_at = (fold(column, begins) for fold, column in zip(_FOLDS, columns, strict=True))
    return owner[begins], NameRanges(*[bucket[begins], *whole, np.where(bad_at == _NEVER, -1, bad_at)])


def _folded_steps(steps: StepLines) -> StepLines:
    """Return the lines of steps with those of the same range together."""
    begins = np.flatnonzero(np.diff(steps.bucket, prepend=-1))
    lines = np.add.reduceat(steps.lines, begins)
    seconds = np.add.reduceat(steps.seconds * steps.lines, begins) / lines
    return StepLines(steps.bucket[begins], lines, steps.first[begins], np.maximum.reduceat(steps.last, begins), seconds)


def _files(path: Path) -> list[File]:
    """Return the files that have all values of a run from its start on.

    Raises:
        _NotPlainError: Some are missing, there are none, or several machines have rows.
    """
    folders = [path / ARCHIVE / name for name in machines(path / ARCHIVE)]
    lines = {folder: listed for folder in folders if (listed := files.every(folder, STEPS.name))}
    if len(lines) != 1:
        raise _NotPlainError(path)
    ((folder, listed),) = lines.items()
    chosen = files.covering(listed_of(folder, ROWS))
    is_whole = chosen and chosen[0].first == 0 and chosen[-1].end == max(file.end for file in listed)
    if not is_whole or any(one.end != other.first for one, other in pairwise(chosen)):
        raise _NotPlainError(path)
    return chosen


def _rows_in(file: File) -> _FileRows:
    """Return the lines of a file.

    Raises:
        DamagedError: It is not what was written.
        ValueError: It is not a file of values, or its rows are not plain.
    """
    (batch,) = batches_in(ROWS, intact.read(file), _LINES)
    columns: dict[str, Column] = {name: batch.column(name).to_numpy() for name in _COLUMNS}
    for column in ROWS.columns:
        if not column.can_be_null and batch.column(column.name).null_count:
            raise _NotPlainError(file.path)
        if column.kind == "int64" and np.abs(columns[column.name]).max() > largest_of(column):
            raise _NotPlainError(file.path)
    steps, first = np.unique(columns["step"], return_index=True)
    is_plain = len(steps) == file.end - file.first and steps[0] >= 0
    if not is_plain or columns["part"].any() or columns["late"].any():
        raise _NotPlainError(file.path)
    names = batch.column("name").cast(_REPEATED)
    owner = dictionary_indices(names).to_numpy()
    return _FileRows(
        tuple(dictionary_dictionary(names).to_pylist()), owner, columns, steps, columns["time_unix_nano"][first]
    )


def _order(rows: _FileRows) -> Iterator[tuple[str, tuple[bool, int]]]:
    """Yield names, each with whether otel-rl measured it, and its place in a row."""
    first = np.full(len(rows.names), _NEVER)
    np.minimum.at(first, rows.owner, rows.columns["place"])
    measured = np.bincount(rows.owner, rows.columns["measured"], len(rows.names)) > 0
    return zip(rows.names, zip(measured.tolist(), first.tolist(), strict=True), strict=True)


def _starts(path: Path) -> list[int]:
    """Return when processes of a run have started."""
    folders = [path / ARCHIVE / name for name in machines(path / ARCHIVE)]
    listed = [file for folder in folders for file in files.of_table(folder, ATTEMPTS.name)]
    lines = [columns_in(ATTEMPTS, from_parquet(ATTEMPTS, intact.read(file))) for file in listed]
    return [start for columns in lines for start in columns["started_unix_nano"] if start > 0]
