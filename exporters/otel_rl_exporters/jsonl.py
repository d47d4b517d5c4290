"""Rows as lines of JSON, with every value exact."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.export import MACHINE_AXES, Ended, Identities, Machine, Row, identity
from otel_rl.recorder.convert.strict_json import spelled
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl_exporters.in_place import Appended, append

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.export import Identity, Item, RunInfo

_BLOCK = 1 << 16
_ROW = re.compile(rb'\{"step":(-?\d+),"time_unix_nano":(-?\d+)(?:,"attempt":(\d+))?(?:,"part":(\d+))?')
_HEADS = [b'{"%b":' % name.encode() for name in ("step", *MACHINE_AXES)]
"""How each line begins."""
_MACHINE = re.compile(rb'\{"(?:%b)":(-?\d+),"time_unix_nano":(-?\d+)' % "|".join(MACHINE_AXES).encode())


class JsonlExporter:
    """Appends a line for each row to a file in the run directory, and one for each measurement of a machine to another.

    Floats read back bit for bit, and integers stay integers. Non-finite numbers are strings: `"NaN"`, `"Infinity"`,
    `"-Infinity"`. A row has its `attempt`, because a resumed run may record a step again: the highest attempt is the
    valid one. `part` counts the later rows of a step. `partial` marks a step in which a process died.

    `run.end.json` says how an attempt ended. It is removed when the next attempt begins.

    If a file is removed, replaced or truncated during the run, it is written again from the outbox.

    Args:
        run: The run.
        path: The file of rows, relative to the run directory; an existing file is continued, also one of another
            program.
        machine_path: The file of hardware measurements, likewise.
    """

    batch_size = 512
    shows_end = True

    def __init__(self, run: RunInfo, *, path: str = "rows.jsonl", machine_path: str = "machine.jsonl") -> None:
        self._end = Path(run.directory, "run.end.json")
        self._ended = -1  # the attempt that it is of
        places = Path(run.directory, path), Path(run.directory, machine_path)
        self._rows, self._machine = self._files = [_open(place) for place in places]
        self._held = Identities(identity for place in places for identity in _identities(place))

    def holds(self, item: Item) -> bool:
        """Return whether the item had a line when the exporter was built."""
        return isinstance(item, Row | Machine) and (*identity(item), item.time_unix_nano) in self._held

    def export(self, items: Sequence[Item]) -> None:
        """Append the rows and measurements among `items`. If one write fails, undo all of them and raise."""
        rows = "".join(_line(item) for item in items if isinstance(item, Row)).encode()
        machine = "".join(_machine_line(item) for item in items if isinstance(item, Machine)).encode()
        append([(self._rows, rows), (self._machine, machine)])
        for item in items:
            # After the rows: a reader that sees the end must find all of them.
            self._show_end(item)

    def shutdown(self) -> None:
        """Close the files.

        Raises:
            Gone: One of them was removed, replaced or truncated.
        """
        try:
            for file in self._files:
                file.check()
        finally:
            for file in self._files:
                file.close()

    def _show_end(self, item: Item) -> None:
        if isinstance(item, Ended):
            self._ended = item.attempt
            write_atomically(self._end, msgspec.json.format(msgspec.json.encode(item)))
        elif isinstance(item, Row) and 0 <= self._ended < item.attempt:
            self._ended = -1
            self._end.unlink(missing_ok=True)


def _open(place: Path) -> Appended:
    opened = Appended(place, os.O_RDWR)
    _mend_last_line(opened.file)
    opened.wrote()
    return opened


def _identities(place: Path) -> Iterator[Identity]:
    """Yield identity and time of the rows and measurements in a file, from the beginnings of its lines."""
    with place.open("rb") as lines:
        for line in lines:
            if match := _ROW.match(line):
                step, time, attempt, part = (int(group or 0) for group in match.groups())
                yield ("row", attempt, step, part, time)
            elif match := _MACHINE.match(line):
                step, time = map(int, match.groups())
                yield ("machine", step, time, time)


def _line(row: Row) -> str:
    line: dict[str, Any] = {"step": row.step, "time_unix_nano": row.time_unix_nano, "attempt": row.attempt}
    optional = {"part": row.part, "partial": row.partial, "missing_ranks": row.missing_ranks, "late": row.late}
    line |= {name: value for name, value in optional.items() if value}
    if row.begins is not None:
        line["begins"] = row.begins
    return _json(line, row)


def _machine_line(machine: Machine) -> str:
    return _json({machine.axis: machine.step, "time_unix_nano": machine.time_unix_nano}, machine)


def _json(line: dict[str, Any], item: Row | Machine) -> str:
    values = {name: spelled(value) for name, value in item.values.items()}
    return json.dumps({**line, "values": values}, allow_nan=False, separators=(",", ":")) + "\n"


def _mend_last_line(file: int) -> None:
    """Cut off a line that a crash of the machine has torn; end one that is whole, or of another program."""
    end = _end_of_last_line(file)
    rest = os.pread(file, os.fstat(file).st_size - end, end).rstrip(b"\0")
    if _is_object(rest) or not any(head.startswith(rest[: len(head)]) for head in _HEADS):
        os.ftruncate(file, end + len(rest))
        os.write(file, b"\n")
    else:
        os.ftruncate(file, end)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


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
