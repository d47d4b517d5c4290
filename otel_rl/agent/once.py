"""Delivers the backlog of all machines of a run that can be reached from here, without listening anywhere.

A part can be reached if it is on this machine or in the run directory. Records of another machine are in its archive.
The records of machines that send to a head are first moved into the part of the head.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.agent import feed
from otel_rl.agent.agent import GoneError
from otel_rl.agent.input import unsent
from otel_rl.agent.input.inbox import Inbox
from otel_rl.agent.process import REGISTERED, StartError, run_agent
from otel_rl.agent.repair.refill import ARCHIVE_EXPORTER, has_everything, progress, refill
from otel_rl.archive import delivered
from otel_rl.archive.now import machines_of
from otel_rl.delivery.left_behind import deliver_with
from otel_rl.errors.sinks import log_of
from otel_rl.journal.claim import noted, settle
from otel_rl.journal.locks import Lock, is_held
from otel_rl.setup import agent_start, parts
from otel_rl.setup import directory as directories
from otel_rl.setup.directory import ATTEMPTS, RunDirectory, read_manifest
from otel_rl.setup.parts import LOCAL, Machine, Part
from otel_rl.setup.private_directories import home, private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_rl.agent.input.unsent import Index
    from otel_rl.export import Exporter

logger = log_of(__name__)
_SPARE_S = 30.0
"""Seconds beyond `idle_timeout` in which an agent that has nothing to do closes its exporters and ends."""


class _Reached(NamedTuple):
    """A part that can be delivered from here, and the machine that recorded it.

    Attributes:
        name: Its name in the run directory.
        directory: The run directory with the part; or with the place in which it is made from the archive.
        host: The machine.
        sends: If true, that machine sends to a head.
        of_archive: The part itself, if it is made from the archive since it is out of reach.
        left: What the machine could not send to the head, if its part is out of reach.
    """

    name: str
    directory: RunDirectory
    host: str
    sends: bool = False
    of_archive: Part | None = None
    left: Index | None = None


class Delivery:
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
            ValueError: The manifest is damaged.
        """
        reached = list(self._look())
        if not reached and self._is_complete:
            at = directories.at(self._run)
            read_manifest(at)  # raises if this is not a run directory
            if not (self._run / LOCAL).is_dir() or not parts.everyone(self._run):
                return self._deliver(_Reached(at.host, at, at.host, at.own_manifest.exists()))
        heads = [one for one in reached if not one.sends and one.of_archive is None]
        senders = [one for one in reached if one.sends]
        of_head = {head.name: [one for one in senders if _head_of(one, heads) is head] for head in heads}
        for one in senders if not heads else ():
            if one.left is None:
                self._deliver(one)  # to the address of the head, where it may be at work
            else:
                self._fail(f"records of {one.host} wait for its head; run this on the machine of the head")
        for head in heads:
            self._deliver(head, of_head[head.name])
        for one in reached:
            if one.of_archive is not None:
                self._feed(one, one.of_archive)
        return self._is_complete

    def _look(self) -> Iterator[_Reached]:
        """Yield the parts that can be reached; report the others."""
        machines = machines_of(self._run)
        found = parts.everyone(self._run)
        archived = set(machines) - {part.name for part in found} - {directories.at(self._run).host}
        found += [Part(name=name, place=self._run / LOCAL / name, is_elsewhere=True) for name in sorted(archived)]
        for part in found:
            host = part.machine.host if part.machine is not None else part.name
            if self._is_here(part):
                here = directories.with_part(self._run, part)
                yield _Reached(part.name, here, host, here.own_manifest.exists())
            elif not part.is_delivered and (left := unsent.index(self._run, part.name)) is not None:
                yield _Reached(part.name, directories.with_part(self._run, part), host, sends=True, left=left)
            elif not part.is_delivered and part.name in machines:
                yield _Reached(part.name, self._work_of(part), host, of_archive=part)
            elif not part.is_delivered:
                self._miss(part)
        yield from self._look_for_gone({part.name for part in found})

    def _look_for_gone(self, known: set[str]) -> Iterator[_Reached]:
        """Report removed parts that had a backlog; yield that of this machine, whose agent counts the loss."""
        own = directories.at(self._run)
        for name, journals in sorted(noted(own.attempts).items()):
            if name == own.host and name not in known:
                yield _Reached(name, own, self._machine.host)
            elif name and name not in known:
                self._fail(f"{self._run / LOCAL / name} was removed, with the content of {len(journals)} journal(s)")

    def _is_here(self, part: Part) -> bool:
        if not part.is_elsewhere:
            return True
        is_own = part.machine is None or part.machine.is_same(self._machine)
        return is_own and part.place.is_dir()

    def _is_own(self, machine: Machine) -> bool:
        """Return whether its files are here: containers of one machine have names, and directories, of their own."""
        return machine.host == self._machine.host and machine.is_same(self._machine)

    def _miss(self, part: Part) -> None:
        machine = part.machine or Machine(host=part.name)
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
        one: _Reached,
        senders: Sequence[_Reached] = (),
        exporters: Mapping[str, Callable[..., Exporter]] = REGISTERED,
    ) -> bool:
        if self._may_begin(one):
            if senders:
                self._bring(one, senders)
            self._run_agent(one, exporters)
        return self._is_complete

    def _bring(self, head: _Reached, senders: Sequence[_Reached]) -> None:
        """Move the records of other machines into the part of the head."""
        parts.remake(head.directory.local)
        limit = read_manifest(head.directory).journal_limit
        with (
            Lock(head.directory.agent_lock, patience=self._patience(head)),
            contextlib.closing(Inbox(head.directory, limit)) as inbox,
        ):
            for one in senders:
                if one.left is None:
                    self._deliver(one, exporters={"head": inbox.exporter_of(one.host)})
                else:
                    self._take_left(one, one.left, inbox)

    def _take_left(self, one: _Reached, left: Index, inbox: Inbox) -> None:
        """Write what a machine has left for the head into the head's part."""
        try:
            inbox.bring(unsent.read(self._run, one.name, left), one.host)
        except OSError as error:
            self._fail(f"what {one.host} has left cannot be used: {error}")
            return
        part = parts.read(self._run, one.name)
        if not left.is_last:
            self._fail(f"processes on {one.host} recorded more; run there: {deliver_with(one.directory)[1]}")
        elif part is not None:
            with contextlib.suppress(OSError):
                parts.note(self._run, part, is_delivered=True)

    def _run_agent(self, one: _Reached, exporters: Mapping[str, Callable[..., Exporter]]) -> bool:
        """Run an agent; return whether it has delivered everything."""
        directory = one.directory
        try:
            is_complete = run_agent(
                directory,
                once=True,
                patience=self._patience(one),
                of_archive=one.of_archive is not None,
                exporters=exporters,
            )
        except BlockingIOError:
            self._fail(f"{self._other(one)} and has not ended; wait for it, or end it by SIGTERM and run this again")
            return False
        except (GoneError, StartError) as error:
            self._fail(str(error))
            return False
        if not is_complete:
            whose = f"{one.host}: " if one.host != self._machine.host else ""
            self._fail(whose + agent_start.incomplete(agent_start.read_status(directory)))
        if recording := _recording(directory):
            self._fail(f"{recording} is still being recorded; run this again when the training has ended")
        return is_complete

    def _may_begin(self, one: _Reached) -> bool:
        """Return whether no agent runs that waits for a training; report one that does."""
        if not agent_start.agent_is_alive(one.directory):
            return True
        if recording := _recording(one.directory):
            self._fail(
                f"{self._other(one)} and delivers what {recording} records; run this again when the training has ended"
            )
            return False
        self._say(f"{self._other(one)}; waiting until it ends, at most {self._patience(one):.0f} s")
        return True

    def _patience(self, one: _Reached) -> float:
        return read_manifest(one.directory).idle_timeout + _SPARE_S

    def _other(self, one: _Reached) -> str:
        pid = agent_start.read_status(one.directory).pid
        return f"another agent{f' (pid {pid})' if pid else ''} runs in {one.directory.path}"

    def _feed(self, one: _Reached, part: Part) -> None:
        """Feed the exporters from the archive of a machine whose part is out of reach."""
        run, name, work = self._run, one.name, one.directory.local
        wait = f"the agent of {one.host} may still run; waiting at most {feed.AT_MOST_S:.0f} s"
        if not feed.has_ended(run, name, lambda: self._say(wait)):
            self._fail(f"the agent of {one.host} runs; run this again when the training has ended")
            return
        if who := feed.is_fed(run, name):
            self._fail(f"{who} delivers from the archive of {one.host} now; run this again later")
            return
        counts = progress(run, name, read_manifest(one.directory)) or {}
        try:
            with feed.Feed(run, name, work, counts) as fed:
                shutil.rmtree(work, ignore_errors=True)
                fed.missing += refill(run, name, work, fed.counts)
                is_complete = self._run_agent(one, {ARCHIVE_EXPORTER: feed.Nothing})
        except OSError as error:
            self._fail(f"the archive of {one.host} cannot be used: {error}")
            return
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if fed.missing:
            self._fail(f"{fed.missing} item(s) are missing in the archive of {one.host}")
        if not has_everything(run, name):
            later = f"what {one.host} recorded after it saved its archive last"
            where = f"in {part.place} on {one.host}" if part.machine is not None else f"on {one.host}"
            if part.machine is not None and self._is_own(part.machine):
                self._fail(f"{part.place} was removed, with {later}")
            else:
                self._fail(f"{later} is {where}; run there, if it still exists: {deliver_with(one.directory)[1]}")
        elif is_complete and not fed.missing:
            with contextlib.suppress(OSError):
                parts.note(run, part, is_delivered=True)
                settle(run / ATTEMPTS, noted(run / ATTEMPTS).get(name, ()))


def _head_of(one: _Reached, heads: list[_Reached]) -> _Reached:
    """Return the part of the head that has received records of a machine before; otherwise the last one."""
    for head in heads:
        if any(name.endswith(f"@{one.host}") for name in _names(head.directory.journals)):
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
