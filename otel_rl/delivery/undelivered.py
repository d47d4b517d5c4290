"""Copies of what is not delivered, in the run directory: `undelivered/<host>/`.

The part of a machine may lie where others cannot see it, or where the end of a job removes it. What its exporters have
not got is copied into the run directory then: the end of the outbox, the cursors, and the records that were not read.

A copy is complete or not there: its index, written last and in one step, says which bytes of which files belong to it.
It has a number. The part keeps the number of the last copy that it made. A copy with a larger one was delivered
elsewhere meanwhile: the part then goes on from the copy, and never sends again what another machine has sent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from otel_rl.delivery.outbox import identity
from otel_rl.delivery.outbox_reader import Head, located
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.segments import START, Position, payloads, segment_numbers, segment_path
from otel_rl.setup.parts import CURSORS, JOURNALS, OUTBOX, OWNER, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNDELIVERED = "undelivered"
_INDEX, _NUMBER, _ALIVE, _TAKEN = "index", "copied", "alive", "taken"
_CHECKSUM_BYTES = 4
_BLOCK = 1 << 20
_SMALL = ("run.json", OWNER, "agent.json")
_OF_JOURNALS = ("released", "end", "owner.json")
_OF_OUTBOX = ("id", "released")
FRESH_S = 60.0
"""Seconds after which whoever works on a part or on a copy, and says nothing any more, is taken to be dead."""


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a file that belong to a copy; those before the first one are not needed."""

    first: int
    end: int


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """What the index of a copy says.

    Attributes:
        name: The part that it is of.
        number: Which copy of the part it is.
        outbox: Identity of the outbox.
        place: Where the part is, on its machine.
        waiting: How many items each exporter has not got.
        unread: Bytes of journals that no agent has read.
        is_delivered: If true, everything was delivered, and all processes had ended.
        is_last: If true, all processes of the machine had ended: nothing more was recorded.
        files: What is in files, by their path in the part.
        contents: Small files as they are, by their path in the part.
        directories: Journals that there are.
        machine: The machine of the part.
    """

    name: str
    number: int
    outbox: str
    place: str
    waiting: dict[str, int]
    unread: int
    is_delivered: bool
    is_last: bool
    files: dict[str, Extent]
    contents: dict[str, bytes]
    directories: list[str]
    machine: Machine | None = None


class _Positions(msgspec.Struct):
    """Of a checkpoint, how far the journals were read."""

    positions: dict[str, Position] = {}


def place_of(run: Path, name: str) -> Path:
    """Return where the copy of a part is."""
    return run / UNDELIVERED / name


def read(run: Path, name: str) -> Copy | None:
    """Return the copy of a part; `None` if there is none that is complete."""
    place = place_of(run, name)
    try:
        raw = (place / _INDEX).read_bytes()
        if crc32(raw[_CHECKSUM_BYTES:]) != int.from_bytes(raw[:_CHECKSUM_BYTES], "big"):
            return None
        copy = msgspec.msgpack.decode(raw[_CHECKSUM_BYTES:], type=Copy)
        if not all(
            map(_is_of_part, (*copy.files, *copy.contents, *(f"{JOURNALS}/{name}" for name in copy.directories)))
        ):
            return None
        if any((place / file).stat().st_size < extent.end for file, extent in copy.files.items()):
            return None
    except (OSError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(copy, name=name)  # it may have been set aside


def names(run: Path) -> list[str]:
    """Return the parts that there are copies of."""
    try:
        return sorted(path.name for path in (run / UNDELIVERED).iterdir() if read(run, path.name) is not None)
    except OSError:
        return []


def number_of(part: Path) -> int:
    """Return the number of the last copy that a part has made, or gone on from; 0 if there is none."""
    try:
        return int((part / _NUMBER).read_text())
    except (OSError, ValueError):
        return 0


class Copier:
    """Copies what is not delivered of a part into the run directory.

    Args:
        run: The run directory.
        part: The part.
        name: What the part is called.
        machine: The machine of the part; `None` if the part was made of a copy, which stays that of another machine.
    """

    def __init__(self, run: Path, part: Path, name: str, machine: Machine | None) -> None:
        self._part, self._name, self._machine = part, name, machine
        self._place = place_of(run, name)
        before = read(run, name)
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
        """Make a copy.

        Args:
            needed: Behind what all exporters have, in the outbox.
            end: Behind the last batch of the outbox.
            checkpoint: Of that batch.
            waiting: How many items each exporter has not got.
            is_delivered: If true, everything was delivered, and all processes had ended.
            is_last: If true, all processes of the machine had ended.

        Raises:
            OSError: It cannot be made now.
        """
        contents = {
            file: content for file in self._small_files() if (content := _content(self._part / file)) is not None
        }
        positions = msgspec.msgpack.decode(checkpoint, type=_Positions).positions if checkpoint else {}
        wanted = dict(self._of_outbox(needed, end))
        unread = 0
        for file, extent, new in self._of_journals(positions):
            wanted[file] = extent
            unread += new
        for file, extent in wanted.items():
            self._bring(file, extent)
        number = number_of(self._part) + 1
        write_atomically(self._part / _NUMBER, str(number).encode())
        source = self._source
        made = Copy(
            name=self._name,
            number=number,
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
        raw = msgspec.msgpack.encode(made)
        write_atomically(self._place / _INDEX, crc32(raw).to_bytes(_CHECKSUM_BYTES, "big") + raw)
        for file in self._done.keys() - wanted.keys():
            with contextlib.suppress(OSError):
                (self._place / file).unlink()
        self._done = wanted

    def remove(self) -> None:
        """Remove the copy: everything is delivered."""
        self._done = {}
        with contextlib.suppress(OSError):
            (self._place / _INDEX).unlink()  # first: what is left then is no copy
        shutil.rmtree(self._place, ignore_errors=True)

    def _small_files(self) -> Iterator[str]:
        yield from _SMALL
        yield from (f"{OUTBOX}/{name}" for name in _OF_OUTBOX)
        yield from (f"{CURSORS}/{path.name}" for path in (self._part / CURSORS).glob("*.json"))
        for journal in _journals(self._part):
            yield from (f"{JOURNALS}/{journal.name}/{name}" for name in _OF_JOURNALS)

    def _of_outbox(self, needed: Position, end: Position) -> Iterator[tuple[str, Extent]]:
        """Yield the outbox from the last intact batch before `needed` on: it tells how many items were before."""
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
                yield _file(OUTBOX, number), Extent(first.offset if number == first.segment else 0, size)

    def _of_journals(self, positions: dict[str, Position]) -> Iterator[tuple[str, Extent, int]]:
        """Yield what was not read of the journals, and how many bytes of it are new.

        Of a journal of another machine everything is needed: its records are counted.
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
                        place = f"{JOURNALS}/{folder.relative_to(self._part / JOURNALS)}"
                        yield _file(place, number), Extent(start, behind), max(0, new)

    def _bring(self, file: str, extent: Extent) -> None:
        """Copy the bytes of a file that are not in the copy yet; what is in the files of a part never changes."""
        target = self._place / file
        done = self._done.get(file)
        is_there = done is not None and target.exists() and target.stat().st_size >= done.end
        first = done.end if done and is_there and done.first <= extent.first <= done.end else extent.first
        target.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            with (self._part / file).open("rb") as source:
                source.seek(first)
                while first < extent.end and (block := source.read(min(_BLOCK, extent.end - first))):
                    first += os.pwrite(fd, block, first)
            if first < extent.end:
                raise FileNotFoundError(f"{file} is shorter than it was")
            os.fsync(fd)
        finally:
            os.close(fd)


def restore(run: Path, copy: Copy, part: Path, *, journals: bool = True, manifest: bool = False) -> None:
    """Bring a copy into a part, so that an agent goes on from there.

    Args:
        run: The run directory.
        copy: The copy.
        part: Where.
        journals: Bring the journals too; the part that the copy was made of has them, and perhaps more.
        manifest: Bring what else describes the part.

    Raises:
        OSError: It cannot be brought.
    """
    place = place_of(run, copy.name)
    for folder in (OUTBOX, CURSORS, JOURNALS):
        (part / folder).mkdir(parents=True, exist_ok=True)
    for old in (*(part / OUTBOX).glob("*.seg"), *(part / CURSORS).glob("*.json")):
        old.unlink()
    for journal in copy.directories if journals else ():
        (part / JOURNALS / journal).mkdir(parents=True, exist_ok=True)
    for file, content in copy.contents.items():
        if file.startswith((OUTBOX, CURSORS)) or (journals if file.startswith(JOURNALS) else manifest):
            (part / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(part / file, content)
    for file, extent in copy.files.items():
        if journals or file.startswith(OUTBOX):
            (part / file).parent.mkdir(parents=True, exist_ok=True)
            with (place / file).open("rb") as source, (part / file).open("wb") as target:
                source.seek(extent.first)
                target.seek(extent.first)
                left = extent.end - extent.first
                while left and (block := source.read(min(_BLOCK, left))):
                    left -= target.write(block)
    write_atomically(part / _NUMBER, str(copy.number).encode())


def catch_up(run: Path, name: str, part: Path) -> bool:
    """Go on from the copy of a part if another machine has delivered from it, or the part itself was removed.

    Return whether that was so.

    Raises:
        OSError: It cannot be read now.
    """
    copy = read(run, name)
    if copy is None:
        return False
    if copy.outbox == identity(part / OUTBOX):
        if copy.number <= number_of(part):
            return False
        restore(run, copy, part, journals=False)
    elif copy.is_delivered:
        return False
    elif segment_numbers(part / OUTBOX):  # of a part that is gone, and whose name another one has taken since
        alive(run, name).remove()
        place_of(run, name).rename(place_of(run, f"{name}.{copy.outbox}"))
        return False
    else:
        restore(run, copy, part)
    return True


class Sign:
    """A file that says who works on a part, or on its copy, and is touched while that is so.

    Locks of one machine may mean nothing to another one. What counts is the clock of the file server.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_fresh(self) -> bool:
        """Tell whether somebody works there, as far as is known."""
        try:
            touched = self.path.stat().st_mtime
            probe = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            probe.write_bytes(b"x")
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError:
            return False
        return now - touched < FRESH_S

    def who(self) -> str:
        """Return who it is, in words."""
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError):
            return "somebody"

    def put(self, who: str) -> None:
        """Say that somebody works there."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(who)

    def put_first(self, who: str) -> bool:
        """Say so if nobody else does; tell whether that is so."""
        if self.path.exists() and not self.is_fresh():
            with contextlib.suppress(OSError):
                self.path.unlink()
        try:
            with self.path.open("x") as file:
                file.write(who)
        except OSError:
            return False
        return True

    def touch(self) -> None:
        """Say that it is still so: write it again, since the time of a write is the file server's."""
        with contextlib.suppress(OSError):
            self.path.write_text(self.path.read_text())

    def remove(self) -> None:
        """Take it away."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def alive(run: Path, name: str) -> Sign:
    """Return the sign of the agent of a part."""
    return Sign(place_of(run, name) / _ALIVE)


def taken(run: Path, name: str) -> Sign:
    """Return the sign of whoever delivers from the copy of a part."""
    return Sign(place_of(run, name) / _TAKEN)


def _journals(part: Path) -> list[Path]:
    try:
        return sorted(path for path in (part / JOURNALS).iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError:
        return []


def _is_of_part(file: str) -> bool:
    """Tell whether a path is that of a file of a part: whoever can write the run directory must not choose others."""
    folder, *rest = file.split("/")
    if not rest:
        return folder in _SMALL
    return folder in (OUTBOX, CURSORS, JOURNALS) and not any(one in ("", ".", "..") or "\0" in one for one in rest)


def _file(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.seg"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def own_name() -> str:
    """Return who this process is, in words."""
    return f"pid {os.getpid()} on {socket.gethostname()}"
