"""Rows as lines of JSON: the plainest file that still holds every value exactly."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import Row
from otel_rl.strict_json import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

_BLOCK = 1 << 16


class JsonlExporter:
    """Appends a line for each row to a file in the run directory.

    Floats read back bit for bit and integers stay integers. What JSON has no number for is a string:
    `"NaN"`, `"Infinity"`, `"-Infinity"`.

    Args:
        run: The run that is shown.
        path: The file, relative to the run directory; an existing one is continued.
    """

    batch_size = 512

    def __init__(self, run: RunInfo, *, path: str = "rows.jsonl") -> None:
        place = Path(run.directory, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._file, _end_of_last_line(self._file))  # a machine that went down may have torn it

    def export(self, items: Sequence[Item]) -> None:
        """Append the rows among `items`: all of them, or none and an error."""
        lines = "".join(_line(item) for item in items if isinstance(item, Row)).encode()
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._file, before)  # the same rows come again
            raise

    def shutdown(self) -> None:
        """Close the file."""
        os.close(self._file)


def _line(row: Row) -> str:
    line: dict[str, Any] = {"step": row.step, "time_unix_nano": row.time_unix_nano}
    if row.attempt:
        line["attempt"] = row.attempt
    if row.missing_ranks:
        line["missing_ranks"] = row.missing_ranks
    if row.late:
        line["late"] = True
    line["values"] = {name: spelled(value) for name, value in row.values.items()}
    return json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"


def _end_of_last_line(file: int) -> int:
    """Return the size of `file` up to its last newline."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _BLOCK)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
