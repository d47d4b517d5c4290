"""Rows as lines of JSON: the plainest file that still holds every value exactly."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import MACHINE_AXIS, Machine, Row
from otel_rl.strict_json import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

_BLOCK = 1 << 16


class JsonlExporter:
    """Appends a line for each row to a file in the run directory, and one for each measurement of a machine to another.

    Floats read back bit for bit and integers stay integers. What JSON has no number for is a string:
    `"NaN"`, `"Infinity"`, `"-Infinity"`.

    Args:
        run: The run that is shown.
        path: The file of rows, relative to the run directory; an existing one is continued.
        machine_path: The file of measurements, likewise.
    """

    batch_size = 512

    def __init__(self, run: RunInfo, *, path: str = "rows.jsonl", machine_path: str = "machine.jsonl") -> None:
        self._rows = _open(Path(run.directory, path))
        self._machine = _open(Path(run.directory, machine_path))

    def export(self, items: Sequence[Item]) -> None:
        """Append the rows and measurements among `items`: all of them, or none and an error."""
        rows = "".join(_line(item) for item in items if isinstance(item, Row)).encode()
        machine = "".join(_machine_line(item) for item in items if isinstance(item, Machine)).encode()
        before = [(file, os.fstat(file).st_size) for file in (self._rows, self._machine)]
        try:
            for file, lines in ((self._rows, rows), (self._machine, machine)):
                if lines and os.write(file, lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            for file, size in before:
                os.ftruncate(file, size)  # the same items come again
            raise

    def shutdown(self) -> None:
        """Close the files."""
        os.close(self._rows)
        os.close(self._machine)


def _open(place: Path) -> int:
    place.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.ftruncate(file, _end_of_last_line(file))  # a machine that went down may have torn it
    return file


def _line(row: Row) -> str:
    line: dict[str, Any] = {"step": row.step, "time_unix_nano": row.time_unix_nano}
    if row.attempt:
        line["attempt"] = row.attempt
    if row.missing_ranks:
        line["missing_ranks"] = row.missing_ranks
    if row.late:
        line["late"] = True
    line["values"] = {name: spelled(value) for name, value in row.values.items()}
    return _json(line)


def _machine_line(machine: Machine) -> str:
    values = {name: spelled(value) for name, value in machine.values.items()}
    return _json({MACHINE_AXIS: machine.step, "time_unix_nano": machine.time_unix_nano, "values": values})


def _json(line: dict[str, Any]) -> str:
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
