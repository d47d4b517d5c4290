"""Files with trajectories in ATIF 1 as a run: those that `atif` writes, and those of Harbor and others.

A file that is not such a trajectory is refused, and the others are read. Texts are cut, and secrets redacted, as those
that a trainer records.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from itertools import chain
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.export import Ended
from otel_rl.look.export.atif_items import Trial, decoded, items_of
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE, LOCAL
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.errors.texts import encodable_text
from otel_rl.recorder.files.atomic_files import read_shown_json, write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.files.own_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_BYTES = 64 << 20
"""Bytes of a trajectory as JSON: 4 MiB of messages, which a trainer records at most, take up to 40 MiB."""
_AT_ONCE = 16 << 20
"""Bytes of JSON whose messages are in memory."""
_NO_LIMIT = 1 << 60
_MARK, _NAME = b"ATIF-v", "trajectory"
"""A trajectory has one of them in its text or in its name; other files of Harbor are JSON too."""


class AtifRead(NamedTuple):
    """The number of trajectories that were read, and for each that was not why."""

    trajectories: int
    refused: list[str]


def read(source: Path, place: Path) -> AtifRead:
    """Write the trajectories of a file, or of the files in a directory, into the archive of a new run.

    The run has the id, the project and the name of the run that they were exported from; otherwise the name of the
    source, and the agent's as the project. Without any trajectory there is no run.

    Raises:
        FileExistsError: There is a run at the place.
        OSError: The source is not there, or a file cannot be written.
    """
    source.stat()
    if (place / ARCHIVE).exists() or (place / LOCAL).exists():
        raise FileExistsError(errno.EEXIST, "there is a run already; give another directory: -o DIR", str(place))
    was_there = place.exists()
    make_directory(place)
    # Of this process alone: a directory that is there already may be somebody else's.
    draft = place / f".{ARCHIVE}.{secrets.token_hex(8)}"
    try:
        reading = _Reading(ArchiveWriter(draft / "local", _NO_LIMIT), source.absolute())
        for name, file, data in _texts(source):
            reading.add(name, file, data)
        if reading.known:
            reading.end()
            write_atomically(place / "run.json", msgspec.json.encode(reading.run))
            # The last step: a run is there as a whole or not at all, also if this process is killed before.
            draft.rename(place / ARCHIVE)
    finally:
        rmtree(draft, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):  # it is not empty
                place.rmdir()
    return AtifRead(len(reading.known), reading.refused)


def _texts(source: Path) -> Iterator[tuple[str, Path, bytes | OSError]]:
    """Yield what may be trajectories, each with its name and its file."""
    is_named = not source.is_dir()
    hidden = list[OSError]()
    paths = (
        [source]
        if is_named
        else [Path(top, name) for top, _, files in os.walk(source, onerror=hidden.append) for name in files]
    )
    yield from ((str(error.filename), source, error) for error in hidden)
    for file in (path for path in sorted(paths) if is_named or path.suffix in (".json", ".jsonl")):
        try:
            for name, data in _parts(file, links=is_named):
                if is_named or _NAME in file.name or _MARK in data:
                    yield name, file, data
        except OSError as error:
            yield str(file), file, error


def _parts(file: Path, *, links: bool) -> Iterator[tuple[str, bytes]]:
    with open_regular(file, links=links) as opened:
        if file.suffix != ".jsonl":
            yield encodable_text(str(file)), _bounded(opened.read(_MOST_BYTES + 1))
            return
        for number, line in enumerate(iter(lambda: opened.readline(_MOST_BYTES + 1), b""), 1):
            if line.strip():
                yield f"{encodable_text(str(file))}:{number}", _bounded(line)


def _bounded(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 20} MiB")
    return data


class _Reading:
    """Trajectories as items of an archive.

    Attributes:
        run: Which run they are of.
        known: For each trajectory that was read, the name of what it was read from.
        refused: Why others were not.
    """

    def __init__(self, writer: ArchiveWriter, source: Path) -> None:
        self._writer = writer
        self._name = encodable_text(source.name if source.is_dir() else source.stem)
        self._waiting = self._latest = self._attempt = 0
        self.run: dict[str, str] = {}
        self.known: dict[tuple[int, str, str], str] = {}
        self.refused: list[str] = []

    def add(self, name: str, file: Path, data: bytes | OSError) -> None:
        """Add what was read of a file, with the trajectories of its subagents, or say why not."""
        try:
            if isinstance(data, OSError):
                raise data
            top = file.parent.parent
            trial = read_shown_json(top / "result.json", Trial, top) if file.parent.name == "agent" else None
            document = decoded(data)
            items = [*items_of(document, trial, name)]
            keys = [(item[0].attempt, item[0].trace_id, item[0].span_id) for item, _ in items]
            if other := next((self.known[key] for key in keys if key in self.known), ""):
                raise ValueError(f"it is the same as {other}")
        except (OSError, OverflowError, *UNDECODABLE) as error:
            self.refused.append(
                one_line(f"{name}: not read as a trajectory in ATIF 1: {getattr(error, 'strerror', '') or error}")
            )
            return
        name_of_run = document.run or self._name
        known_id = document.session_id if document.run else None
        self.run = self.run or {"id": known_id or name_of_run, "project": document.agent.name, "name": name_of_run}
        self.known |= dict.fromkeys(keys, name)
        every = [*chain.from_iterable(messages for messages, _ in items)]
        self._writer.add(*every)
        self._writer.add(*(facts for _, facts in items if facts is not None))
        self._latest = max(self._latest, *(item.time_unix_nano for item in every))
        self._attempt = max(self._attempt, *(item.attempt for item in every))
        self._waiting += len(data)
        if self._waiting > _AT_ONCE:
            self._writer.save(seals=True)
            self._waiting = 0

    def end(self) -> None:
        """Write what is left, and that nothing follows."""
        self._writer.add(Ended(self._latest, self._attempt, "finished"))
        self._writer.save(seals=True)
