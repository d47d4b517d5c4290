"""Keeps an archive below its limit: old messages and spans are thinned, everything else stays.

Of the oldest file of messages, those of every eighth trajectory stay. Of the oldest file of spans, the failed ones, the
roots of steps, and the slowest of each name stay; of the others, every eighth trace. A file that was thinned again has
every 64th, and so on. The range in the name of a file says how many lines it had, so that the number of those that were
left out is known; a note in its footer says how often it was
thinned, so that an archive that cannot become smaller is not read again and again.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from itertools import pairwise, product
from typing import TYPE_CHECKING
from zlib import crc32

from arro3.core import Array

from otel_rl import semconv
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import SEALED, from_parquet, to_parquet
from otel_rl.recorder.archive.notes import RUN_NOTE, note_in
from otel_rl.recorder.archive.tables import MESSAGES, SPANS
from otel_rl.recorder.files.atomic_files import disk_usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arro3.core import RecordBatch

    from otel_rl.recorder.archive.tables import ArchiveTable

_SHARE = 8
_SLOWEST = 32
"""Spans of each name in a file that always stay."""
_MOST_PASSES = 4
_NOTE = "otel_rl.thinned"
"""The key of the note in the footer."""


class Thinner:
    """Thins sealed files of a machine, the oldest and fullest files first, until the archive fits its limit."""

    def __init__(self, place: Path, limit_bytes: int, run: str) -> None:
        self._place, self._limit_bytes, self._run = place, limit_bytes, run
        self._passes: dict[Path, int] = {}  # of each file that was looked at
        for table in _CHOSEN:
            self._delete_fuller(table)

    def thin(self) -> None:
        """Thin messages and spans if the archive is larger than its limit.

        Raises:
            OSError: A file cannot be read or written now.
        """
        if disk_usage(self._place) <= self._limit_bytes:  # the common case, found without an object for each file
            return
        sizes = {path: path.stat().st_size for path in self._place.rglob("*.parquet")}
        size = sum(sizes.values())
        for passes, table in product(range(_MOST_PASSES), _CHOSEN):
            for file in files.covering(files.listed(self._place / table.name)):
                if size <= self._limit_bytes:
                    return
                if self._passes_of(file) == passes:
                    size += self._thin(table, file, passes + 1) - sizes.get(file.path, 0)

    def _thin(self, table: ArchiveTable, file: files.File, passes: int) -> int:
        """Thin a file for the so many-th time, and return its size."""
        chosen = _CHOSEN[table]
        try:
            lines = from_parquet(table, intact.read(file))
        except ValueError:  # damaged: the reader names it; the others can still be thinned
            self._passes[file.path] = _MOST_PASSES
            return file.path.stat().st_size
        kept = chosen(lines, _SHARE**passes)
        self._passes[file.path] = passes
        if len(kept) == lines.num_rows:  # the same file would be written, and then deleted
            return file.path.stat().st_size
        rest = lines.take(Array.from_buffer(array("i", kept)))
        while passes < _MOST_PASSES and len(chosen(rest, _SHARE ** (passes + 1))) == len(kept):
            passes += 1  # the next one would change nothing
        data = to_parquet(table, [rest], compression=SEALED, notes={RUN_NOTE: self._run, _NOTE: str(passes)})
        # The thinned file is on disk before the other one goes; of a kill in between, `_delete_fuller` cleans up
        # (recorder/archive/test_thinning.py).
        written = files.write(file.path.parent, file.first, file.end, data)
        self._passes[written] = passes
        file.path.unlink(missing_ok=True)
        return len(data)

    def _passes_of(self, file: files.File) -> int:
        """Return how often a file was thinned; only its footer is read."""
        if file.path not in self._passes:
            note = note_in(file.path, _NOTE)
            self._passes[file.path] = int(note) if note.isdecimal() else 0
        return self._passes[file.path]

    def _delete_fuller(self, table: ArchiveTable) -> None:
        """Delete the file that a thinned one replaces, if the writer was killed before it did."""
        listed = files.listed(self._place / table.name)
        ranges = Counter(file[:2] for file in listed)
        twice = [file for file in listed if ranges[file[:2]] > 1 and intact.is_intact(file)]
        twice.sort(key=lambda file: (file[:2], -self._passes_of(file)))
        for thinned, fuller in pairwise(twice):
            # With equal notes, none replaces the other: somebody has put one of them there.
            if thinned[:2] == fuller[:2] and self._passes_of(thinned) > self._passes_of(fuller):
                fuller.path.unlink(missing_ok=True)


def messages(lines: RecordBatch, share: int) -> list[int]:
    """Return the numbers of the messages that stay, in order: those of one trajectory of `share`, at least of one."""
    drawn = [crc32(trace_id.encode()) % share for trace_id in lines.column("trace_id").to_pylist()]
    least = min(drawn, default=0)
    return [number for number, rest in enumerate(drawn) if rest == least]


def spans(lines: RecordBatch, share: int) -> list[int]:
    """Return the numbers of the spans that stay, in order: one trace of `share`, errors, steps, and the slowest."""
    trace_ids, names, errors, durations = (
        lines.column(name).to_pylist() for name in ("trace_id", "name", "error", "duration_ns")
    )
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    kept: set[int] = set()
    for number, (trace_id, name, error) in enumerate(zip(trace_ids, names, errors, strict=True)):
        by_name[name].append(number)
        if error is not None or name == semconv.SPAN_LOOP or crc32(trace_id.encode()) % share == 0:
            kept.add(number)
    for numbers in by_name.values():
        kept.update(sorted(numbers, key=lambda number: -durations[number])[:_SLOWEST])
    return sorted(kept)


_CHOSEN: dict[ArchiveTable, Callable[[RecordBatch, int], list[int]]] = {MESSAGES: messages, SPANS: spans}
"""Functions that choose the lines that stay, by table; the first table is thinned first."""
