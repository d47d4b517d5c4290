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

from otel_rl.errors import UNDECODABLE
from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of, readable
from otel_rl.journal.atomic_files import read_json, read_line, write_atomically
from otel_rl.journal.locks import LONG_S, Lock, is_held
from otel_rl.journal.modes import PRIVATE, make_directory, set_mode
from otel_rl.journal.own_files import ForeignError, check_levels, check_own, read_own
from otel_rl.setup import births
from otel_rl.setup.file_systems import is_shared, what_fails
from otel_rl.setup.private_directories import home, make_private

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


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a machine."""

    host: str
    boot: str = ""  # identity of the kernel since the last boot; empty if unknown
    id: str = ""  # identity of the installed system; empty if there is none, as in many containers

    def is_same(self, other: Machine) -> bool:
        """Return whether this is the same machine, possibly after a reboot."""
        return self.boot == other.boot or bool(self.id and self.id == other.id)


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file `local/<host>`, if the part is outside of the run directory."""

    place: str  # the directory of the part, on that machine
    machine: Machine
    is_delivered: bool = False  # whether all of it was delivered when its last agent ended


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run directory; if it is elsewhere, its path may be another directory on another machine."""

    name: str  # in the run directory
    place: Path  # on the machine that it belongs to
    machine: Machine | None = None  # `None` if the part does not say
    is_elsewhere: bool = False  # whether it is outside of the run directory
    is_delivered: bool = False  # as in its `Pointer`

    def may_be_of(self, machine: Machine) -> bool:
        """Return whether it belongs to a machine, or does not say to which one it belongs."""
        return self.machine is None or self.machine.is_same(machine)


def this_machine() -> Machine:
    """Return the identity of this machine."""
    return Machine(
        host=socket.gethostname(),
        boot=read_line(Path("/proc/sys/kernel/random/boot_id")),
        id=read_line(Path("/etc/machine-id")) or read_line(Path("/var/lib/dbus/machine-id")),
    )


def find(run: Path, machine: Machine, kind: str = "") -> Part:
    """Return the part of a machine; if there is none, the part that `make` would create."""
    for name in _names(machine, kind):
        if _is_of(part := read_or_new(run, name), machine):
            return part
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(run / LOCAL))


def make(run: Path, machine: Machine, chosen: str = "", kind: str = "", *, strict: bool = False) -> Part:
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
    with Lock(local, patience=LONG_S):
        part = find(run, machine, kind)
        if part.is_elsewhere:  # created when the file system counted as shared
            return _made(part)
        make_directory(part.place)
        if read_json(part.place / OWNER, Machine) != machine:
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
        found = msgspec.json.decode(read_own(place), type=Pointer)
    except IsADirectoryError:
        return Part(name=name, place=place, machine=read_json(place / OWNER, Machine))
    except ForeignError as error:
        _warnings.warn(str(error))
        return None
    except (OSError, *UNDECODABLE):  # if it is damaged, it is recreated
        return None
    return Part(
        name=name, place=Path(found.place), machine=found.machine, is_elsewhere=True, is_delivered=found.is_delivered
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
    inside = (place / one for one in (JOURNALS, OUTBOX, CURSORS))
    for directory in (run, local, archive, archive / name, place, *inside):
        with contextlib.suppress(FileNotFoundError):
            check_own(directory.resolve())


def _check_link(path: Path) -> None:
    """Make the target of a symbolic link private, or raise if other users can write it."""
    if path.is_symlink():
        make_private(path.parent.resolve() / path.readlink())


def _names(machine: Machine, kind: str) -> Iterator[str]:
    host = (readable(machine.host, _LONGEST_HOST) or "host") + kind
    return (f"{host}.{number}" if number else host for number in (0, *range(2, _MOST_NAMES + 2)))


def _is_of(part: Part, machine: Machine) -> bool:
    """Return whether a part belongs to this machine: it says so, or it is here and no living process uses it."""
    return part.may_be_of(machine) or not (part.is_elsewhere or is_shared(part.place) or is_at_work(part.place))


def _make_elsewhere(run: Path, machine: Machine, chosen: str, kind: str, *, strict: bool) -> Part:
    base = home(chosen, strict=strict)
    if base is None:  # the last resort: locks and mappings may not work, but no other machine has this name
        found_or_new = (read_or_new(run, name) for name in _names(machine, kind))
        here = next(part for part in found_or_new if not part.is_elsewhere and part.may_be_of(machine))
        make_directory(here.place)
        write_atomically(here.place / OWNER, msgspec.json.encode(machine))
        return _made(here)
    with Lock(base, patience=LONG_S):  # on this machine, since the run directory may not support locks
        for name in _names(machine, kind):
            found = read(run, name)
            if found is not None and not (found.is_elsewhere and _is_of(found, machine)):
                continue
            if found is not None and found.place.is_dir():
                make_private(found.place)
                if found.is_delivered:
                    note(run, found, is_delivered=False)
                births.note(run, found.place)
                return _made(found)
            own = Part(name=name, place=births.part_of(run, base, name), machine=machine, is_elsewhere=True)
            note(run, own, is_delivered=False)
            make_private(own.place)
            births.note(run, own.place)
            return _made(own)
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(run / LOCAL))


def _made(part: Part) -> Part:
    make_directory(part.place)
    remake(part.place)
    return part
