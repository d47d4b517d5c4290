"""The part of a run directory that belongs to one machine: its place and its owner.

Machines may share a run directory. Each has a part of its own, `local/<host>`. On a file system that this machine alone
mounts it is a directory. Elsewhere it is a file that says where on this machine the part is: a lock or a mapping on a
network file system may not hold, and one that hangs must not hang a trainer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory import births
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of, readable
from otel_rl.recorder.files.atomic_files import read_json, read_line, write_atomically
from otel_rl.recorder.files.file_systems import is_shared, what_fails
from otel_rl.recorder.files.locks import LONG_S, Lock, is_held
from otel_rl.recorder.files.modes import PRIVATE, make_directory, set_mode
from otel_rl.recorder.files.own_files import ForeignError, check_levels, check_own, read_own
from otel_rl.recorder.files.private_directories import home, make_private

if TYPE_CHECKING:
    from collections.abc import Iterator

_warnings = Occasional(log_of("otel_rl"))
LOCAL, ARCHIVE = "local", "archive"
SENDER = ".sender"
OWNER = "machine.json"
JOURNALS, OUTBOX, CURSORS = "journals", "outbox", "cursors"
_LONGEST_HOST = 64
_MOST_NAMES = 100
"""Number of names that are tried, since machines with the same name may have used some."""


class MachineId(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a machine."""

    host: str
    boot: str = ""  # identity of the kernel since the last boot; empty if unknown
    id: str = ""  # identity of the installed system; empty if there is none, as in many containers

    def is_same(self, other: MachineId) -> bool:
        """Return whether this is the same machine, possibly after a reboot."""
        return self.boot == other.boot or bool(self.id and self.id == other.id)


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file `local/<host>`, if the part is outside of the run directory."""

    place: str  # the directory of the part, on that machine
    machine: MachineId
    is_delivered: bool = False  # whether all of it was delivered when its last agent ended


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run directory; if it is elsewhere, its path may be another directory on another machine."""

    name: str  # in the run directory
    place: Path  # on the machine that it belongs to
    machine: MachineId | None = None  # `None` if the part does not say
    is_elsewhere: bool = False  # whether it is outside of the run directory
    is_delivered: bool = False  # as in its `Pointer`

    def may_be_of(self, machine: MachineId) -> bool:
        """Return whether it belongs to a machine, or does not say to which one it belongs."""
        return self.machine is None or self.machine.is_same(machine)


def this_machine() -> MachineId:
    """Return the identity of this machine."""
    return MachineId(
        host=socket.gethostname(),
        boot=read_line(Path("/proc/sys/kernel/random/boot_id")),
        id=read_line(Path("/etc/machine-id")) or read_line(Path("/var/lib/dbus/machine-id")),
    )


def find(run: Path, machine: MachineId, kind: str = "") -> Part:
    """Return the part of a machine; if there is none, the part that `make` would create."""
    for name in _names(machine, kind):
        if _is_of(part := read_or_new(run, name), machine):
            return part
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(run / LOCAL))


def make(run: Path, machine: MachineId, chosen: str = "", kind: str = "", *, strict: bool = False) -> Part:
    """Create the part of this machine, or its missing directories.

    Args:
        run: The run directory.
        machine: This machine.
        chosen: Directory of the part if the run directory is shared; empty for one that outlives the job.
        kind: `SENDER` if the machine sends to a head; in the next attempt it may be the head itself.
        strict: If true, raise if another user made the directory that would be used.

    Raises:
        OSError: It cannot be created or written, or another user can write it.
    """
    local = run / LOCAL
    _check_link(local)
    make_directory(local, PRIVATE.directory)
    check_own(local.resolve())
    set_mode(local.resolve(), PRIVATE.directory)  # also with `share`: who can read a directory can lock it
    is_in_use = any((path / JOURNALS).is_dir() for path in local.iterdir())
    if is_shared(local) or (not is_in_use and what_fails(local)):
        return _make_elsewhere(run, machine, chosen, kind, strict=strict)
    # Ranks start at the same moment: one of them makes the part, and the others find it (faults/test_identity.py).
    with Lock(local, patience=LONG_S):
        part = find(run, machine, kind)
        if part.is_elsewhere:  # created when the file system counted as shared
            return _made(part)
        make_directory(part.place)
        if read_json(part.place / OWNER, MachineId) != machine:
            write_atomically(part.place / OWNER, msgspec.json.encode(machine))
    return _made(part)


def remake(part: Path) -> None:
    """Recreate the directories of a part that somebody removed.

    Raises:
        OSError: It cannot be created or written.
    """
    for name in (JOURNALS, OUTBOX, CURSORS):
        make_directory(part / name)


def remake_pointer(run: Path, name: str, place: Path) -> None:
    """Write again where a part is that this machine has elsewhere, after the run directory was removed.

    Raises:
        OSError: It cannot be written.
    """
    make_directory(run / LOCAL, PRIVATE.directory)
    if births.restore(run, place) and read(run, name) is None:
        note(run, Part(name=name, place=place, machine=this_machine(), is_elsewhere=True), is_delivered=False)


def read(run: Path, name: str) -> Part | None:
    """Return the part with a name; `None` if there is none."""
    place = run / LOCAL / name
    try:
        pointer = msgspec.json.decode(read_own(place), type=Pointer)
    except IsADirectoryError:
        return Part(name=name, place=place, machine=read_json(place / OWNER, MachineId))
    except ForeignError as error:
        _warnings.warn(str(error))
        return None
    except (OSError, *UNDECODABLE):  # if it is damaged, it is recreated
        return None
    return Part(
        name=name,
        place=Path(pointer.place),
        machine=pointer.machine,
        is_elsewhere=True,
        is_delivered=pointer.is_delivered,
    )


def read_or_new(run: Path, name: str) -> Part:
    """Return the part with a name; if there is none, a part of this name in the run directory."""
    return read(run, name) or Part(name=name, place=run / LOCAL / name)


def note(run: Path, part: Part, *, is_delivered: bool) -> None:
    """Note in the run directory the place of a part that is elsewhere, and whether all of it was delivered.

    Raises:
        OSError: It cannot be written.
    """
    if part.is_elsewhere and part.machine is not None:
        pointer = Pointer(place=str(part.place), machine=part.machine, is_delivered=is_delivered)
        write_atomically(run / LOCAL / part.name, msgspec.json.encode(pointer))


def everyone(run: Path) -> list[Part]:
    """Return the parts of all machines, by name."""
    try:
        names = sorted(path.name for path in (run / LOCAL).iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return [part for name in names if (part := read(run, name)) is not None]


def is_at_work(place: Path) -> bool:
    """Return whether a living process uses a part: an agent, its supervisor or a trainer."""
    try:
        journals = [*(place / JOURNALS).iterdir()]
    except OSError:
        journals = []
    for path in (place / OUTBOX, place / CURSORS, *journals):
        with contextlib.suppress(OSError):  # without locks
            if is_held(path):
                return True
    return False


def check(run: Path, name: str) -> None:
    """Check a run directory and a part of it before anything that is in there is believed, or written.

    Raises:
        ForeignError: Another user made them, or can write them.
    """
    check_levels(run)
    local, part = run / LOCAL, read(run, name)
    _check_link(local)
    if part is not None and part.is_elsewhere:
        place = part.place
        if place.exists():
            make_private(place)
    else:
        place = local / name
        _check_link(place)
    archive = run / ARCHIVE
    inside = (place / name for name in (JOURNALS, OUTBOX, CURSORS))
    for directory in (run, local, archive, archive / name, place, *inside):
        with contextlib.suppress(FileNotFoundError):
            check_own(directory.resolve())


def _check_link(path: Path) -> None:
    """Make the target of a symbolic link private, or raise if other users can write it."""
    if path.is_symlink():
        make_private(path.parent.resolve() / path.readlink())


def _names(machine: MachineId, kind: str) -> Iterator[str]:
    host = (readable(machine.host, _LONGEST_HOST) or "host") + kind
    return (f"{host}.{number}" if number else host for number in (0, *range(2, _MOST_NAMES + 2)))


def _is_of(part: Part, machine: MachineId) -> bool:
    """Return whether a part belongs to this machine: it says so, or it is here and no living process uses it."""
    return part.may_be_of(machine) or not (part.is_elsewhere or is_shared(part.place) or is_at_work(part.place))


def _make_elsewhere(run: Path, machine: MachineId, chosen: str, kind: str, *, strict: bool) -> Part:
    base = home(chosen, strict=strict)
    if base is None:  # the last resort: locks and mappings may not work, but no other machine has this name
        found_or_new = (read_or_new(run, name) for name in _names(machine, kind))
        own = next(part for part in found_or_new if not part.is_elsewhere and part.may_be_of(machine))
        make_directory(own.place)
        write_atomically(own.place / OWNER, msgspec.json.encode(machine))
        return _made(own)
    with Lock(base, patience=LONG_S):  # on this machine, since the run directory may not support locks
        for name in _names(machine, kind):
            known = read(run, name)
            if known is not None and not (known.is_elsewhere and _is_of(known, machine)):
                continue
            if known is not None and known.place.is_dir():
                make_private(known.place)
                if known.is_delivered:
                    note(run, known, is_delivered=False)
                births.note(run, known.place)
                return _made(known)
            own = Part(name=name, place=births.part_of(run, base, name), machine=machine, is_elsewhere=True)
            # The pointer comes first: after a crash in between, the next start finds this place again instead of making
            # a second one (recorder/directory/test_directory.py).
            note(run, own, is_delivered=False)
            make_private(own.place)
            births.note(run, own.place)
            return _made(own)
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(run / LOCAL))


def _made(part: Part) -> Part:
    make_directory(part.place)
    remake(part.place)
    return part
