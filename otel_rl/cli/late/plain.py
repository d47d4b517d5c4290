"""A run directory without an archive: what `rows.jsonl` and `machine.jsonl` have, as an archive of its own."""

from __future__ import annotations

import json
import struct
import weakref
from itertools import chain
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from otel_rl.export import MACHINE_AXES, Machine, Row, identity
from otel_rl.recorder.archive.files import MACHINE_FILE, ROWS_FILE
from otel_rl.recorder.archive.lines import columns_of
from otel_rl.recorder.archive.tables import STEPS
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.convert.strict_json import SPELLED
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.own_files import ForeignError, open_regular

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

logger = log_of(__name__)
One = TypeVar("One", Row, Machine)
_AT_ONCE = 4096
_LONGEST_LINE = 4 << 20
"""Bytes of a line; a row of 100,000 values has that many."""
_NO_LIMIT = 1 << 60
_reported: dict[Path, int] = {}
"""Lines of each file that a warning has counted; a run that goes on is read again and again."""


class Plain:
    """The archive of a run that has written none, in a temporary directory; made again when the run has gone on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._state: object = None
        self._folder = Path()
        self._delete: Callable[[], object] = list

    def archive(self) -> Path:
        """Return the folder of the archive."""
        state = [_state(self._directory / name) for name in (ROWS_FILE, MACHINE_FILE)]
        if self._state != state:
            made = Path(mkdtemp(prefix="otel-rl-"))
            delete = weakref.finalize(self, rmtree, made, ignore_errors=True)
            writer = ArchiveWriter(made / ARCHIVE / "local", _NO_LIMIT)
            machine = _items(self._directory / MACHINE_FILE, Machine)
            items: Iterator[Row | Machine] = chain(rows(self._directory), machine)
            once = {identity(item): item for item in items}  # a file that was written again can repeat some
            for number, item in enumerate(once.values(), 1):
                writer.add(item)
                if number % _AT_ONCE == 0:
                    writer.save(seals=True)
            writer.save(seals=True)
            self._delete()
            self._state, self._delete, self._folder = state, delete, made / ARCHIVE
        return self._folder


def rows(directory: str | os.PathLike[str]) -> Iterator[Row]:
    """Yield the rows of all attempts in `rows.jsonl`, in the order of the file.

    An incomplete last line is skipped; its writer completes or truncates it. Other lines that are not rows are skipped
    too, and logged in one warning with their number.
    """
    yield from _items(Path(directory, ROWS_FILE), Row)


def _items(file: Path, kind: type[One]) -> Iterator[One]:
    """Yield the items of one kind in a file, and count the other lines."""
    damaged = 0
    try:
        opened = open_regular(file, links=False)
    except FileNotFoundError:
        return
    except (ForeignError, IsADirectoryError):
        if file not in _reported:
            logger.warning("%s is not a regular file; it is left out", file)
            _reported[file] = 0
        return
    with opened:
        for line in iter(lambda: opened.readline(_LONGEST_LINE), b""):
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                damaged += 1  # part of a longer line, which is counted several times
            elif line.endswith(b"\n"):
                try:
                    item = msgspec.convert(_fields(line), kind)
                    _check(item)
                except (KeyError, TypeError, AttributeError, OverflowError, struct.error, *UNDECODABLE):
                    damaged += 1
                else:
                    yield item
    if damaged > _reported.get(file, 0):
        _reported[file] = damaged
        logger.warning("%s: skipped %d lines that are not %ss", file, damaged, kind.__name__.lower())


def _check(item: Row | Machine) -> None:
    """Raise an exception if the item does not fit the columns of its table."""
    numbers = (item.attempt, item.part, item.begins or 0) if isinstance(item, Row) else (0, 0, 0)
    struct.pack("qqiiq", item.step, item.time_unix_nano, *numbers)
    for name, value in item.values.items():
        name.encode()
        float(value)
    if isinstance(item, Row):
        columns_of(STEPS, [item])


def _fields(line: bytes) -> dict[str, Any]:
    fields = json.loads(line)
    values = {name: SPELLED[value] if isinstance(value, str) else value for name, value in fields["values"].items()}
    for axis in MACHINE_AXES:
        if axis in fields:
            return {**fields, "type": "machine", "step": fields[axis], "values": values}
    return {**fields, "type": "row", "values": values}


def _state(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns
