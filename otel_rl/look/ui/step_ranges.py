"""The values of a run in ranges of steps: lowest, highest, mean and count, read again only where the run has changed.

Which values count follows from the lines of `steps` that the reader holds for valid. So a range is read again when its
lines differ, be it that the run went on, was resumed at an earlier step, or logged a late value. While files are
damaged or missing, all is read again.
"""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.reader.runs import open_run
from otel_rl.look.reader.valid import literal
from otel_rl.look.ui.changes import scanned
from otel_rl.look.ui.plain_ranges import plain_ranges
from otel_rl.look.ui.run_ranges import NameRanges, RunRanges, StepLines, main_names, width_of
from otel_rl.recorder.archive.files import MACHINE_FILE, ROWS_FILE, TAIL
from otel_rl.recorder.archive.tables import ROWS, STEPS
from otel_rl.recorder.directory.parts import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.look.reader.result import Result
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.look.ui.run_ranges import Column

_TRIES = 3
_FOLDERS = tuple(f"{folder}{table.name}" for table in (ROWS, STEPS) for folder in (f"{TAIL}/", ""))
_EXTENT = """
SELECT min(step) AS first, max(step) AS last, min(time_unix_nano) AS ended,
    (SELECT min(started_unix_nano) FROM attempts WHERE started_unix_nano > 0) AS started
FROM steps
"""
_LINES = """
SELECT step // {every} AS bucket, bit_xor(hash(machine, attempt, step, part, late)) AS lines, min(step) AS first,
    max(step) AS last, avg(time_unix_nano - {origin}) FILTER (NOT late) / 1e9 AS seconds
FROM steps GROUP BY bucket ORDER BY bucket
"""
_NAMES = "SELECT name, min(place) AS place, bool_or(measured) AS measured FROM rows WHERE {which} GROUP BY name"
_VALUES = """
SELECT name, step // {every} AS bucket, min(value) FILTER (isfinite(value)) AS low,
    max(value) FILTER (isfinite(value)) AS high, coalesce(sum(value) FILTER (isfinite(value)), 0) AS total,
    count(*) FILTER (isfinite(value)) AS number, count(*) FILTER (NOT isfinite(value)) AS bad,
    coalesce(min(step) FILTER (NOT isfinite(value)), -1) AS bad_at
FROM rows WHERE {names} AND {which} GROUP BY ALL ORDER BY name, bucket
"""


def signature_of(path: Path) -> str:
    """Return a text that differs when the files do that have values of steps."""
    seen = hashlib.blake2b(digest_size=16)
    machines = [machine.path for machine in scanned(f"{path}/{ARCHIVE}")]
    folders = [f"{machine}/{folder}" for machine in machines for folder in _FOLDERS]
    listed = [entry for folder in folders for entry in scanned(folder)]
    paths = [entry.path for entry in listed] or [f"{path}/{ROWS_FILE}", f"{path}/{MACHINE_FILE}"]
    for file in paths:
        try:
            status = os.stat(file, follow_symlinks=False)  # noqa: PTH116 - thousands, of texts
        except OSError:  # it was removed meanwhile
            continue
        seen.update(f"{file} {status.st_ino} {status.st_size} {status.st_ctime_ns}\n".encode(errors="surrogateescape"))
    return seen.hexdigest()


def read_ranges(path: Path, names: Iterable[str] = (), known: RunRanges | None = None) -> RunRanges:
    """Return the values of a run.

    Args:
        path: The run directory.
        names: Names whose values are wanted, besides those that are known and the first main metrics.
        known: What was read before.
    """
    wanted = [*dict.fromkeys((*(known.values if known else ()), *names))]
    signature = signature_of(path)
    if known is not None and known.signature == signature and len(wanted) == len(known.values):
        return known
    if (plain := plain_ranges(path, signature, wanted, known)) is not None:
        return plain
    if known is not None and known.history is not None:  # its lines have no numbers to be compared with
        known = None
    run = open_run(path)
    for _ in range(_TRIES):
        holes = run.holes_of(ROWS.name, STEPS.name)
        ranges = _read(run, signature, wanted, known, has_holes=bool(holes))
        if run.holes_of(ROWS.name, STEPS.name) == holes:
            break
    return ranges


def _read(
    run: RunReader, signature: str, wanted: Sequence[str], known: RunRanges | None, *, has_holes: bool
) -> RunRanges:
    first, last, origin = _extent(run)
    every = width_of(first, last)
    steps = StepLines(*_columns(run.sql(_LINES.format(every=every, origin=origin)), StepLines._fields))
    if known is None or known.has_holes or has_holes or (known.every, known.origin) != (every, origin):
        names = _names(run)
        values = _values(run, [*dict.fromkeys((*wanted, *main_names(names)))], every)
        return RunRanges(signature, every, origin, steps, names, has_holes, values)
    old = [name for name in wanted if name in known.values]
    names, values = known.names, {name: known.values[name] for name in old}
    if (changed := _changed(known.steps, steps)) is not None:
        which = f"step BETWEEN {changed[0] * every} AND {(changed[1] + 1) * every - 1}"
        has_grown = not len(known.steps.bucket) or changed[0] >= known.steps.bucket[-1]
        names = tuple(dict.fromkeys((*known.names, *_names(run, which)))) if has_grown else _names(run)
        fresh = _values(run, old, every, which)
        values = {name: _replaced(values[name], fresh[name], changed) for name in old}
    values |= _values(run, [name for name in wanted if name not in values], every)
    return RunRanges(signature, every, origin, steps, names, has_holes, values)


def _extent(run: RunReader) -> tuple[int, int, int]:
    """Return the first and the last step, and when the run began."""
    found = run.sql(_EXTENT)
    first, last, ended, started = (
        None if np.ma.is_masked(found[name][0]) else int(found[name][0])
        for name in ("first", "last", "ended", "started")
    )
    if first is None or last is None or ended is None:
        return 0, -1, 0
    return first, last, min(started or ended, ended)


def _names(run: RunReader, which: str = "true") -> tuple[str, ...]:
    found = run.sql(_NAMES.format(which=which))
    order = zip(found["measured"].tolist(), found["place"].tolist(), found["name"].tolist(), strict=True)
    return tuple(name for *_, name in sorted(order))


def _values(run: RunReader, names: Sequence[str], every: int, which: str = "true") -> dict[str, NameRanges]:
    """Return the values of names; one that has none has no ranges."""
    if not names:
        return {}
    found = run.sql(_VALUES.format(every=every, names=f"name IN ({', '.join(map(literal, names))})", which=which))
    columns = _columns(found, NameRanges._fields)
    owners = found["name"]
    begins = [0, *(1 + np.flatnonzero(owners[1:] != owners[:-1])).tolist(), len(owners)]
    parts = {owners[begin]: slice(begin, end) for begin, end in pairwise(begins) if begin < end}
    return {name: NameRanges(*(column[parts.get(name, slice(0))] for column in columns)) for name in names}


def _columns(found: Result, names: Iterable[str]) -> list[Column]:
    """Return columns whose missing values are NaN."""
    columns = (found[name] for name in names)
    return [column.filled(np.nan) if isinstance(column, np.ma.MaskedArray) else column for column in columns]


def _changed(before: StepLines, now: StepLines) -> tuple[int, int] | None:
    """Return the first and the last range whose lines differ; `None` if there is none."""
    lines = dict(zip(before.bucket.tolist(), before.lines.tolist(), strict=True))
    of_now = dict(zip(now.bucket.tolist(), now.lines.tolist(), strict=True))
    changed = [at for at in lines.keys() | of_now.keys() if lines.get(at) != of_now.get(at)]
    return (min(changed), max(changed)) if changed else None


def _replaced(before: NameRanges, fresh: NameRanges, changed: tuple[int, int]) -> NameRanges:
    """Return values with those of some ranges renewed."""
    first, end = np.searchsorted(before.bucket, (changed[0], changed[1] + 1))
    return NameRanges(*(np.concatenate((old[:first], new, old[end:])) for old, new in zip(before, fresh, strict=True)))
