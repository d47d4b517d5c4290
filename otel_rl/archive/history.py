"""The valid history of a run, from the rows of all attempts in `rows.jsonl`.

from otel_rl.archive.history import read

for row in read("runs/grpo/5f2c"):
    print(row.step, row.values["loss"])
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.convert.strict_json import SPELLED
from otel_rl.errors import UNDECODABLE
from otel_rl.errors.sinks import log_of
from otel_rl.export import Row

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

logger = log_of(__name__)
_FILE = "rows.jsonl"


def read(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yield one row for each step of a run, in the order of the steps.

    A run that resumes from a checkpoint repeats steps. The last attempt wins: from the first step of an attempt on,
    the rows of all earlier attempts are void. A row that a killed process left behind has `partial` set, if no later
    attempt has repeated its step.

    Late rows are merged into the row of their step. They add names, and never replace a value that left in time: a row
    does not say how many ranks a mean has. So the value is the mean of the ranks that reported in time; `late` is set.

    An incomplete last line is skipped; its writer completes or truncates it. Other lines that are not rows are skipped
    too, and logged in one warning with their number.

    Args:
        path: A run directory, or its `rows.jsonl`.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    place = Path(path)
    with (place / _FILE if place.is_dir() else place).open("rb") as file:
        found = _index(file)
        firsts: dict[int, int] = {}
        for attempt, first, late, *_ in found:
            if not late:
                firsts[attempt] = min(first, firsts.get(attempt, first))
        parts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        void_from = _void_from(firsts, {attempt for attempt, *_ in found})
        for attempt, _, _, step, part, offset in found:
            if step < void_from[attempt]:
                parts[step].append((attempt, part, offset))
        for step in sorted(parts):
            yield _merged([_row_at(file, offset) for *_, offset in sorted(parts[step])])


def _index(file: IO[bytes]) -> list[tuple[int, int, bool, int, int, int]]:
    """Return attempt, first step, lateness, step, part and file offset of each row."""
    found: list[tuple[int, int, bool, int, int, int]] = []
    damaged = offset = 0
    for line in file:
        try:
            if line.endswith(b"\n"):
                row = _row(line)
                first = row.step if row.begins is None else row.begins
                found.append((row.attempt, first, row.late, row.step, row.part, offset))
        except (KeyError, TypeError, AttributeError, *UNDECODABLE):
            damaged += 1
        offset += len(line)
    if damaged:
        logger.warning("%s: skipped %d lines that are not rows", file.name, damaged)
    return found


def _void_from(firsts: dict[int, int], attempts: Iterable[int]) -> dict[int, float]:
    """Return for each attempt the first step that a later attempt recorded."""
    void_from: dict[int, float] = {}
    least = float("inf")
    for attempt in sorted({*attempts, *firsts}, reverse=True):
        void_from[attempt] = least
        least = min(least, firsts.get(attempt, least))
    return void_from


def _row_at(file: IO[bytes], offset: int) -> Row:
    file.seek(offset)
    return _row(file.readline())


def _row(line: bytes) -> Row:
    found = json.loads(line)
    values = {name: SPELLED[value] if isinstance(value, str) else value for name, value in found["values"].items()}
    return msgspec.convert({**found, "type": "row", "values": values}, Row)


def _merged(rows: list[Row]) -> Row:
    """Merge the rows of a step, which are ordered by attempt and part."""
    merged = rows[0]
    in_time = {} if merged.late else merged.values
    for row in rows[1:]:
        in_time = in_time if row.late else row.values
        merged = replace(
            merged,
            values={**merged.values, **row.values, **in_time},
            attempt=row.attempt,
            time_unix_nano=max(merged.time_unix_nano, row.time_unix_nano),
            missing_ranks=merged.missing_ranks if row.late else row.missing_ranks,
            late=merged.late or row.late,
            partial=merged.partial or row.partial,
        )
    return replace(merged, part=0)
