"""The entries of a run directory about the attempts of the run.

Its `attempts/` has three kinds of entries:

* `attemptN`: the start that began attempt N. The first process to create it wins.
* `attemptN.MACHINE`: the state of the ranks of attempt N on a machine. Its agent renews it, because other machines do
  not see the locks of its journals.
* `rankR.attemptN.ID`: a journal of attempt N, noted by `otel_rl.recorder.journal.claim`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from otel_rl.recorder.directory import parts
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.files.own_files import read_own
from otel_rl.recorder.journal.claim import Noted, attempt_of, is_journal, is_rank, process_in, read_entry, who_of
from otel_rl.recorder.journal.ending import end_by_exit
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import Finished
from otel_rl.recorder.journal.segments import Position, segment_numbers
from otel_rl.recorder.settings.joining import WORKER
from otel_rl.recorder.settings.launcher import Launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.recorder.directory.directory import RunDirectory

State = Literal["running", "finished", "failed", "unknown"]
_LEASE_S = 20.0
"""Seconds for which a machine counts as running after its agent renewed its entry, which it does every 5 s."""
_WRITTEN_WITHIN_S = 1.0
"""Seconds between the creation of an entry and the arrival of its text, on a network file system."""
_POLL_S = 0.01
_BEGUN = re.compile(r"attempt([0-9]{1,9})")
_MACHINE = re.compile(r"attempt([0-9]{1,9})\.(.+)", re.DOTALL)
_JOURNAL = re.compile(r"([^.].*)\.attempt([0-9]{1,9})(\..*)?", re.DOTALL)  # an earlier version noted no unique id


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start of a process."""

    launch: Launch
    who: str  # label of the process, such as `rank3`
    world_size: int  # number of ranks of the training
    label: str  # project and name of the run, which all ranks of a training have in common
    host: str
    process: str  # pid and start time
    command: str  # digest of the command line, which may contain secrets
    time: float  # seconds of the wall clock

    @property
    def is_rank(self) -> bool:
        """If true, it is a rank, not a process with a role."""
        return is_rank(self.who)

    @property
    def is_worker(self) -> bool:
        """If true, it is a child of a rank."""
        return process_in(self.who)[0] == WORKER

    def has_supervisor(self, host: str, supervisor: str) -> bool:
        """Return whether this process restarts it if it fails, as torchrun does."""
        return bool(supervisor) and (self.host, self.launch.supervisor) == (host, supervisor)

    def noted(self, part: str) -> Noted:
        """Return the entry of a journal of this process, in a part of the run directory."""
        supervisor = self.launch.supervisor
        return Noted(part=part, host=self.host, process=self.process, supervisor=supervisor, command=self.command)


class AttemptSeen(NamedTuple):
    """The newest attempt of a run, as a process that starts sees it."""

    number: int
    begun: Start | None  # the start that began it; `None` if the entry is damaged
    state: State = "unknown"  # of its ranks together; of its processes with a role if it has no ranks
    has_ranks: bool = True
    had_own: bool = False  # whether the rank that starts was in this attempt before


def newest(directory: RunDirectory, who: str) -> AttemptSeen | None:
    """Return the newest attempt, for a start of `who`; `None` if there is none.

    Raises:
        OSError: The directory cannot be read.
    """
    names, journals = _names(directory), journals_here(directory)
    noted = {(match[1], int(match[2])) for match in map(_JOURNAL.fullmatch, names) if match}
    noted |= {(who_of(path.name), attempt_of(path.name)) for path in journals}
    machines = [(match[2], int(match[1])) for match in map(_MACHINE.fullmatch, names) if match]
    number = max((*_begun(names), *(number for _, number in machines), *(number for _, number in noted)), default=None)
    if number is None:
        return None
    members = {name for name, of in noted if of == number}
    has_ranks = any(map(is_rank, members))
    local = [path for path in journals if attempt_of(path.name) == number and is_rank(who_of(path.name)) == has_ranks]
    left = {entry.part for entry in own_entries(directory, who) if attempt_of(entry.journal) == number}  # it moved
    own_parts = {directory.host, *(path.parents[1].name for path in local)}
    leases = [directory.attempts / f"attempt{number}.{name}" for name, of in machines if of == number]
    others = [lease for lease in leases if lease.name.partition(".")[2] not in own_parts | left]
    return AttemptSeen(
        number=number,
        begun=read_start(begun_at(directory, number)),
        state=_state_of(local, others),
        has_ranks=has_ranks,
        had_own=who in members,
    )


def own_entries(directory: RunDirectory, who: str) -> list[Noted]:
    """Return the entries of the journals of a rank, the newest attempt last."""
    names = [name for name in _names(directory) if is_journal(name) and who_of(name) == who]
    entries = (read_entry(directory.attempts / name) for name in sorted(names, key=attempt_of))
    return [entry for entry in entries if entry is not None]


def begun_attempts(directory: RunDirectory) -> list[int]:
    """Return the numbers of the attempts that have begun.

    Raises:
        OSError: The directory cannot be read.
    """
    return _begun(_names(directory))


def begun_at(directory: RunDirectory, number: int) -> Path:
    """Return the path of the entry of the start that began an attempt."""
    return directory.attempts / f"attempt{number}"


def read_start(path: Path) -> Start | None:
    """Return the start that an entry is about; `None` if there is none, or its writer died before it was complete."""
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while (start := read_json(path, Start)) is None and path.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return start


def renew(directory: RunDirectory) -> None:
    """Note the state of the ranks of this machine, for machines that share the run directory; the agent does so.

    Raises:
        OSError: The run directory cannot be written.
    """
    ranks = [path for path in _listed(directory.journals) if is_rank(who_of(path.name))]
    if not ranks:
        return
    number = max(attempt_of(path.name) for path in ranks)
    journals = [path for path in ranks if attempt_of(path.name) == number]
    if any(map(is_held, journals)):
        renew_lease(directory, number)
    elif _read_state(lease := _lease(directory, number)) in ("running", "unknown"):
        write_atomically(lease, _state_of(journals).encode())


def renew_lease(directory: RunDirectory, number: int) -> None:
    """Note that ranks of an attempt run on this machine.

    Raises:
        OSError: The run directory cannot be written.
    """
    lease = _lease(directory, number)
    if _read_state(lease) == "running":
        os.utime(lease)
    else:
        write_atomically(lease, b"running")


def journals_here(directory: RunDirectory) -> list[Path]:
    """Return the journals of this machine, also those that it recorded under another host name."""
    journals, machine = _listed(directory.journals), parts.this_machine()
    with contextlib.suppress(FileNotFoundError), os.scandir(directory.path / parts.LOCAL) as entries:
        for entry in entries:  # the part of a machine is a directory, or a file if it is elsewhere
            if entry.name != directory.host and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                part = parts.read(directory.path, entry.name)
                if part is not None and part.may_be_of(machine):
                    journals += _listed(part.place / parts.JOURNALS)
    return journals


def has_finished(journal: Path) -> bool:
    """Return whether the process of a journal ended in order, by its exit status or its last record."""
    end = end_by_exit(journal)
    if end is None:
        for raw in _last_records(journal):
            with contextlib.suppress(*UNDECODABLE):
                end = msgspec.msgpack.decode(raw, type=Finished)
    return end is not None and end.outcome == "finished"


def _state_of(journals: Sequence[Path], leases: Sequence[Path] = ()) -> State:
    """Return the state of the processes of some journals, and of those of other machines, together."""
    if any(map(is_held, journals)):
        return "running"
    states = set(map(_state_of_machine, leases))
    if "running" in states:
        return "running"
    by_rank: dict[str, list[Path]] = {}
    for path in journals:
        by_rank.setdefault(who_of(path.name), []).append(path)
    if "failed" in states or not all(any(map(has_finished, starts)) for starts in by_rank.values()):
        return "failed"
    return "unknown" if "unknown" in states or not (states or by_rank) else "finished"


def _state_of_machine(lease: Path) -> State:
    state = _read_state(lease)
    if state != "running":
        return state
    with contextlib.suppress(OSError):
        os.utime(lease.parent)  # the present time by the clock of the file server, which also has that of the lease
        if lease.parent.stat().st_mtime - lease.stat().st_mtime < _LEASE_S:
            return "running"
    return "unknown"


def _read_state(lease: Path) -> State:
    with contextlib.suppress(OSError):
        content = read_own(lease)
        for state in ("running", "finished", "failed"):
            if content == state.encode():
                return state
    return "unknown"


def _lease(directory: RunDirectory, number: int) -> Path:
    return directory.attempts / f"attempt{number}.{directory.host}"


def _begun(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for match in map(_BEGUN.fullmatch, names) if match]


def _names(directory: RunDirectory) -> list[str]:
    try:
        return [path.name for path in directory.attempts.iterdir()]
    except FileNotFoundError:
        return []


def _listed(journals: Path) -> list[Path]:
    try:
        return [path for path in journals.iterdir() if is_journal(path.name)]
    except FileNotFoundError:
        return []


def _last_records(journal: Path) -> list[msgspec.Raw]:
    """Return the last record of a journal as a list; empty if its last two segments have none."""
    last: list[msgspec.Raw] = []
    # The last segment may be empty: a process can be killed between the reservation of a segment and the record for it.
    for number in reversed(segment_numbers(journal)[-2:]):
        reader = Reader(journal, msgspec.Raw, Position(number, 0))
        while records := reader.read():
            last = records[-1:]
        reader.close()
        if last:
            break
    return last
