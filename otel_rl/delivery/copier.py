"""Copies the backlog of a part into the run directory."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from otel_rl.delivery import undelivered
from otel_rl.delivery.outbox import identity, positions_of
from otel_rl.delivery.outbox_reader import Head, located
from otel_rl.delivery.undelivered import Copy, Extent
from otel_rl.journal.modes import make_directory, open_file
from otel_rl.journal.segments import START, Position, payloads, segment_numbers, segment_path
from otel_rl.setup.parts import CURSORS, JOURNALS, OUTBOX, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OF_JOURNALS = ("released", "end", "owner.json")
_OF_OUTBOX = ("id", "released")


class Copier:
    """Copies the backlog of a part; `machine` is `None` if the part was made from a copy of another machine's part."""

    def __init__(self, run: Path, part: Path, name: str, machine: Machine | None) -> None:
        self._run, self._part, self._name, self._machine = run, part, name, machine
        self._place = undelivered.place_of(run, name)
        before = undelivered.read(run, name)
        self._source = before if machine is None else None
        self._done = {} if before is None or before.outbox != identity(part / OUTBOX) else dict(before.files)

    def copy(
        self,
        needed: Position,
        end: Position,
        checkpoint: bytes,
        waiting: dict[str, int],
        *,
        is_delivered: bool,
        is_last: bool,
    ) -> None:
        """Copy the outbox from `needed` to `end`, and what was not read at the checkpoint; see `Copy` for the rest.

        Raises:
            OSError: It cannot be made now.
        """
        contents: dict[str, bytes] = {}
        for file in self._small_files():
            with contextlib.suppress(OSError):
                contents[file] = (self._part / file).read_bytes()
        wanted = dict(self._of_outbox(needed, end))
        unread = 0
        for file, extent, new in self._of_journals(positions_of(checkpoint)):
            wanted[file] = extent
            unread += new
        for file, extent in wanted.items():
            self._bring(file, extent)
        source = self._source
        copy = Copy(
            name=self._name,
            number=undelivered.next_number(self._part),
            outbox=identity(self._part / OUTBOX),
            place=str(self._part) if source is None else source.place,
            waiting=waiting,
            unread=unread,
            is_delivered=is_delivered,
            is_last=is_last if source is None else source.is_last,
            files=wanted,
            contents=contents,
            directories=[path.name for path in _journals(self._part)],
            machine=self._machine if source is None else source.machine,
        )
        undelivered.write(self._run, copy)
        for file in self._done.keys() - wanted.keys():
            with contextlib.suppress(OSError):
                (self._place / file).unlink()
        self._done = wanted

    def remove(self) -> None:
        """Remove the copy: everything is delivered."""
        self._done = {}
        undelivered.remove(self._run, self._name)

    def _small_files(self) -> Iterator[str]:
        yield from undelivered.SMALL_FILES
        yield from (f"{OUTBOX}/{name}" for name in _OF_OUTBOX)
        yield from (f"{CURSORS}/{path.name}" for path in (self._part / CURSORS).glob("*.json"))
        for journal in _journals(self._part):
            yield from (f"{JOURNALS}/{journal.name}/{name}" for name in _OF_JOURNALS)

    def _of_outbox(self, needed: Position, end: Position) -> Iterator[tuple[str, Extent]]:
        """Yield the outbox from the last intact batch before `needed` on, which has the number of items before it."""
        outbox = self._part / OUTBOX
        first, before = Position(needed.segment, 0), START
        for batch in located(outbox, Head, Position(max(0, needed.segment - 1), 0)):
            if batch.end > needed:
                break
            first = before if before.segment == batch.end.segment else Position(batch.end.segment, 0)
            before = batch.end
        for number in segment_numbers(outbox):
            if first.segment <= number <= end.segment:
                size = end.offset if number == end.segment else segment_path(outbox, number).stat().st_size
                start = first.offset if number == first.segment else 0
                yield f"{OUTBOX}/{segment_path(outbox, number).name}", Extent(start, size)

    def _of_journals(self, positions: dict[str, Position]) -> Iterator[tuple[str, Extent, int]]:
        """Yield the unread parts of the journals, and the number of unread bytes.

        A journal of another machine is copied completely, because its records are counted.
        """
        for journal in _journals(self._part):
            read_to = positions.get(journal.name, START)
            for folder, first in ((journal, START if "@" in journal.name else read_to), (journal / "early", START)):
                for number in segment_numbers(folder):
                    if number < first.segment:
                        continue
                    start = first.offset if number == first.segment else 0
                    behind = max((offset for _, offset in payloads(folder, number)), default=0)
                    if behind > start:
                        known = read_to.offset if number == read_to.segment else 0
                        new = 0 if number < read_to.segment else behind - max(start, known)
                        file = segment_path(folder, number).relative_to(self._part)
                        yield str(file), Extent(start, behind), max(0, new)

    def _bring(self, file: str, extent: Extent) -> None:
        """Copy the bytes of a file that are not in the copy yet; the content of a part's files never changes."""
        target = self._place / file
        done = self._done.get(file)
        is_there = done is not None and target.exists() and target.stat().st_size >= done.end
        first = done.end if done and is_there and done.first <= extent.first <= done.end else extent.first
        make_directory(target.parent)
        fd = open_file(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW)
        try:
            with (self._part / file).open("rb") as source:
                source.seek(first)
                while first < extent.end and (block := source.read(min(undelivered.BLOCK_BYTES, extent.end - first))):
                    first += os.pwrite(fd, block, first)
            if first < extent.end:
                raise FileNotFoundError(f"{file} is shorter than it was")
            os.fsync(fd)
        finally:
            os.close(fd)


def _journals(part: Path) -> list[Path]:
    try:
        return sorted(path for path in (part / JOURNALS).iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError:
        return []
