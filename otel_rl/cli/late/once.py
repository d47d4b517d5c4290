"""Delivers the backlog of all machines of a run that can be reached from here, without listening anywhere.

A part can be reached if it is on this machine or in the run directory. Records of another machine are in its archive.
The records of machines that send to a head are first moved into the part of the head.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING

import msgspec

from otel_rl.cli.late import feed
from otel_rl.recorder.agent.agent import GoneError
from otel_rl.recorder.agent.input import unsent
from otel_rl.recorder.agent.input.head import open_inbox
from otel_rl.recorder.agent.input.unsent import Index
from otel_rl.recorder.agent.process import REGISTERED, StartError, run_agent
from otel_rl.recorder.agent.repair.refill import ARCHIVE_EXPORTER, has_everything, progress, refill
from otel_rl.recorder.archive import delivered
from otel_rl.recorder.archive.now import machines_of
from otel_rl.recorder.delivery.left_behind import deliver_with
from otel_rl.recorder.directory import agent_start, parts
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.directory import ATTEMPTS, RunDirectory, read_manifest
from otel_rl.recorder.directory.parts import ARCHIVE, LOCAL, MachineId, Part
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files.locks import Lock, is_held
from otel_rl.recorder.files.private_directories import home, private_directory
from otel_rl.recorder.journal.claim import mark_delivered, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_rl.export import Exporter
    from otel_rl.recorder.agent.input.head import Inbox

logger = log_of(__name__)
_SPARE_S = 30.0
"""Seconds beyond `idle_timeout` in which an agent that has nothing to do closes its exporters and ends."""


class _Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A part that can be delivered from here, and the machine that recorded it."""

    name: str  # its name in the run directory
    directory: RunDirectory  # the run directory with the part
    host: str  # the machine


class _Receiving(_Reached, frozen=True):
    """A part that is here, of a machine that gives its records to trackers; a head is one."""


class _Sending(_Reached, frozen=True):
    """A part that is here, of a machine that sends its records to a head."""


class _Unsent(_Reached, frozen=True, kw_only=True):
    """Records that a machine could not send to its head; the part itself is out of reach."""

    left: Index


class _Archived(_Reached, frozen=True, kw_only=True):
    """The archive of a machine whose part is out of reach; `directory` has a part that is made of it."""

    part: Part


class LateDelivery:
    """Delivers the backlog of a run, once; `say` prints a message for the user."""

    def __init__(self, run: Path, say: Callable[[str], None]) -> None:
        self._run = run.absolute()
        self._say = say
        self._machine = parts.this_machine()
        self._is_complete = True

    def deliver(self) -> bool:
        """Deliver; return whether the whole run is delivered.

        Raises:
            FileNotFoundError: It is not a run directory.
            StartError: An exporter cannot be built.
            ValueError: The manifest is damaged, or a directory of the run is a link.
        """
        for name in (LOCAL, ARCHIVE, ATTEMPTS):
            if (self._run / name).is_symlink():
                raise ValueError(f"{self._run / name} is a link; it can lead into another run, and is not followed")
        reached = list(self._look())
        if not reached and self._is_complete:
            at = directories.at(self._run)
            read_manifest(at)  # raises if this is not a run directory
            if not (self._run / LOCAL).is_dir() or not parts.everyone(self._run):
                return self._deliver(_here(at, at.host))
        heads = [part for part in reached if isinstance(part, _Receiving)]
        senders = [part for part in reached if isinstance(part, _Sending | _Unsent)]
        of_head = {head.name: [part for part in senders if _head_of(part, heads) is head] for head in heads}
        for sender in senders if not heads else ():
            if isinstance(sender, _Sending):
                self._deliver(sender)  # to the address of the head, where it may be at work
            else:
                self._fail(f"records of {sender.host} wait for its head; run this on the machine of the head")
        for head in heads:
            self._deliver(head, of_head[head.name])
        for part in reached:
            if isinstance(part, _Archived):
                self._feed(part)
        return self._is_complete

    def _look(self) -> Iterator[_Reached]:
        """Yield the parts that can be reached; report the others."""
        machines = machines_of(self._run)
        known = parts.everyone(self._run)
        archived = set(machines) - {part.name for part in known} - {directories.at(self._run).host}
        known += [Part(name=name, place=self._run / LOCAL / name, is_elsewhere=True) for name in sorted(archived)]
        for part in known:
            host = part.machine.host if part.machine is not None else part.name
            if self._is_here(part):
                yield _here(directories.with_part(self._run, part), host)
            elif not part.is_delivered and (left := unsent.index(self._run, part.name)) is not None:
                place = directories.with_part(self._run, part)
                yield _Unsent(name=part.name, directory=place, host=host, left=left)
            elif not part.is_delivered and part.name in machines:
                yield _Archived(name=part.name, directory=self._work_of(part), host=host, part=part)
            elif not part.is_delivered:
                self._miss(part)
        yield from self._look_for_gone({part.name for part in known})

    def _look_for_gone(self, known: set[str]) -> Iterator[_Reached]:
        """Report removed parts that had a backlog; yield that of this machine, whose agent counts the loss."""
        own = directories.at(self._run)
        for name, journals in sorted(noted(own.attempts).items()):
            if name == own.host and name not in known:
                yield _Receiving(name=name, directory=own, host=self._machine.host)
            elif name and name not in known:
                self._fail(f"{self._run / LOCAL / name} was removed, with the content of {len(journals)} journal(s)")

    def _is_here(self, part: Part) -> bool:
        if not part.is_elsewhere:
            return True
        is_own = part.machine is None or part.machine.is_same(self._machine)
        return is_own and part.place.is_dir()

    def _is_own(self, machine: MachineId) -> bool:
        """Return whether its files are here: containers of one machine have names, and directories, of their own."""
        return machine.host == self._machine.host and machine.is_same(self._machine)

    def _miss(self, part: Part) -> None:
        machine = part.machine or MachineId(host=part.name)
        if self._is_own(machine):
            self._fail(f"{part.place} of this machine was removed; its backlog is lost")
            return
        command = deliver_with(RunDirectory(self._run, part.place, part.name))[1]
        self._fail(f"{part.place} is on {machine.host}; run there: {command}")

    def _fail(self, text: str) -> None:
        self._is_complete = False
        self._say(text)

    def _work_of(self, part: Part) -> RunDirectory:
        label = hashlib.sha256(os.fsencode(delivered.place_of(self._run, part.name))).hexdigest()[:16]
        base = home() or private_directory()
        return RunDirectory(self._run, base / f"{label}.archive", part.name)

    def _deliver(
        self,
        reached: _Reached,
        senders: Sequence[_Sending | _Unsent] = (),
        exporters: Mapping[str, Callable[..., Exporter]] = REGISTERED,
    ) -> bool:
        if self._may_begin(reached):
            if senders:
                self._bring(reached, senders)
            self._run_agent(reached, exporters)
        return self._is_complete

    def _bring(self, head: _Reached, senders: Sequence[_Sending | _Unsent]) -> None:
        """Move the records of other machines into the part of the head."""
        parts.remake(head.directory.local)
        limit = read_manifest(head.directory).journal_limit
        with (
            Lock(head.directory.agent_lock, patience=self._patience(head)),
            contextlib.closing(open_inbox(head.directory, limit)) as inbox,
        ):
            for sender in senders:
                if isinstance(sender, _Sending):
                    self._deliver(sender, exporters={"head": inbox.exporter_of(sender.host)})
                else:
                    self._take_left(sender, inbox)

    def _take_left(self, sender: _Unsent, inbox: Inbox) -> None:
        """Write what a machine has left for the head into the head's part."""
        try:
            inbox.bring(unsent.read(self._run, sender.name, sender.left), sender.host)
        except OSError as error:
            self._fail(f"what {sender.host} has left cannot be used: {error}")
            return
        part = parts.read(self._run, sender.name)
        if not sender.left.is_last:
            self._fail(f"processes on {sender.host} recorded more; run there: {deliver_with(sender.directory)[1]}")
        elif part is not None:
            with contextlib.suppress(OSError):
                parts.note(self._run, part, is_delivered=True)

    def _run_agent(self, reached: _Reached, exporters: Mapping[str, Callable[..., Exporter]]) -> bool:
        """Run an agent; return whether it has delivered everything."""
        directory = reached.directory
        try:
            is_complete = run_agent(
                directory,
                once=True,
                patience=self._patience(reached),
                of_archive=isinstance(reached, _Archived),
                exporters=exporters,
            )
        except BlockingIOError:
            self._fail(
                f"{self._other(reached)} and has not ended; wait for it, or end it by SIGTERM and run this again"
            )
            return False
        except (GoneError, StartError) as error:
            self._fail(str(error))
            return False
        if not is_complete:
            whose = f"{reached.host}: " if reached.host != self._machine.host else ""
            self._fail(whose + agent_start.incomplete(agent_start.read_status(directory)))
        if recording := _recording(directory):
            self._fail(f"{recording} is still being recorded; run this again when the training has ended")
        return is_complete

    def _may_begin(self, reached: _Reached) -> bool:
        """Return whether no agent runs that waits for a training; report one that does."""
        if not agent_start.agent_is_alive(reached.directory):
            return True
        if recording := _recording(reached.directory):
            self._fail(
                f"{self._other(reached)} and delivers what {recording} records; "
                "run this again when the training has ended"
            )
            return False
        self._say(f"{self._other(reached)}; waiting until it ends, at most {wording.seconds(self._patience(reached))}")
        return True

    def _patience(self, reached: _Reached) -> float:
        return read_manifest(reached.directory).idle_timeout + _SPARE_S

    def _other(self, reached: _Reached) -> str:
        pid = agent_start.read_status(reached.directory).pid
        return f"another agent{f' (pid {pid})' if pid else ''} runs in {reached.directory.path}"

    def _feed(self, archived: _Archived) -> None:
        """Feed the exporters from the archive of a machine whose part is out of reach."""
        run, name, work, part = self._run, archived.name, archived.directory.local, archived.part
        wait = f"the agent of {archived.host} may still run; waiting at most {wording.seconds(feed.AT_MOST_S)}"
        if not feed.has_ended(run, name, lambda: self._say(wait)):
            self._fail(f"the agent of {archived.host} runs; run this again when the training has ended")
            return
        if who := delivered.feeder(run, name):
            self._fail(f"{who} delivers from the archive of {archived.host} now; run this again later")
            return
        counts = progress(run, name, read_manifest(archived.directory)) or {}
        try:
            with feed.Feed(run, name, work, counts) as fed:
                shutil.rmtree(work, ignore_errors=True)
                fed.missing += refill(run, name, work, fed.counts)
                is_complete = self._run_agent(archived, {ARCHIVE_EXPORTER: feed.Nothing})
        except OSError as error:
            self._fail(f"the archive of {archived.host} cannot be used: {error}")
            return
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if fed.missing:
            self._fail(f"{fed.missing} item(s) are missing in the archive of {archived.host}")
        if not has_everything(run, name):
            later = f"what {archived.host} recorded after it saved its archive last"
            where = f"in {part.place} on {archived.host}" if part.machine is not None else f"on {archived.host}"
            if part.machine is not None and self._is_own(part.machine):
                self._fail(f"{part.place} was removed, with {later}")
            else:
                self._fail(f"{later} is {where}; run there, if it still exists: {deliver_with(archived.directory)[1]}")
        elif is_complete and not fed.missing:
            with contextlib.suppress(OSError):
                parts.note(run, part, is_delivered=True)
                mark_delivered(run / ATTEMPTS, noted(run / ATTEMPTS).get(name, ()))


def _here(directory: RunDirectory, host: str) -> _Receiving | _Sending:
    kind = _Sending if directory.own_manifest.exists() else _Receiving
    return kind(name=directory.host, directory=directory, host=host)


def _head_of(sender: _Reached, heads: list[_Receiving]) -> _Receiving:
    """Return the part of the head that has received records of a machine before; otherwise the last one."""
    for head in heads:
        if any(name.endswith(f"@{sender.host}") for name in _names(head.directory.journals)):
            return head
    return heads[-1]


def _names(journals: Path) -> list[str]:
    try:
        return [path.name for path in journals.iterdir()]
    except OSError:
        return []


def _recording(directory: RunDirectory) -> str:
    """Return the name of a journal whose process is alive; empty if there is none."""
    try:
        return min((path.name for path in directory.journals.iterdir() if is_held(path)), default="")
    except OSError:
        return ""
