"""Delivers the backlog of all machines of a run that can be reached from here, without listening anywhere.

A part can be reached if it is on this machine or in the run directory. The run directory may have a copy of a part of
another machine. The records of machines that send to a head are first moved into the part of the head.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.agent.agent import GoneError
from otel_rl.agent.input.inbox import Inbox
from otel_rl.agent.process import REGISTERED, StartError, run_agent
from otel_rl.delivery import signs, undelivered
from otel_rl.delivery.left_behind import deliver_with
from otel_rl.errors.sinks import log_of
from otel_rl.journal.claim import noted
from otel_rl.journal.locks import Lock, is_held
from otel_rl.journal.modes import make_directory
from otel_rl.setup import agent_start, parts
from otel_rl.setup import directory as directories
from otel_rl.setup.directory import RunDirectory, read_manifest
from otel_rl.setup.parts import LOCAL, Machine
from otel_rl.setup.private_directories import home, private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_rl.delivery.signs import Sign
    from otel_rl.delivery.undelivered import Copy
    from otel_rl.export import Exporter
    from otel_rl.setup.parts import Part

logger = log_of(__name__)
_SPARE_S = 30.0
"""Seconds beyond `idle_timeout` in which an agent that has nothing to do closes its exporters and ends."""
_LOOK_S = 1.0
_TOUCH_S = 15.0
_OWN_MANIFEST = "run.json"


class _Reached(NamedTuple):
    """A part that can be delivered from here, or the copy that stands for it, and the machine that recorded it.

    Attributes:
        directory: The run directory with the part; for a copy, with the place to which it is restored.
        sends: If true, that machine sends to a head.
    """

    name: str
    directory: RunDirectory
    copy: Copy | None
    host: str
    sends: bool


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
                return self._deliver(_Reached(at.host, at, None, at.host, at.own_manifest.exists()))
        heads = [one for one in reached if not one.sends]
        senders = [one for one in reached if one.sends]
        of_head = {head.name: [one for one in senders if _head_of(one, heads) is head] for head in heads}
        for one in senders if not heads else ():
            self._deliver(one)  # to the address of the head, where it may be at work
        for head in heads:
            self._deliver(head, of_head[head.name])
        return self._is_complete

    def _look(self) -> Iterator[_Reached]:
        """Yield the parts that can be reached; report the others."""
        found = {part.name: part for part in parts.everyone(self._run)}
        for name in sorted({*found, *undelivered.names(self._run)}):
            part, copy = found.get(name), undelivered.read(self._run, name)
            if part is not None and self._is_here(part):
                here = directories.with_part(self._run, part)
                host = part.machine.host if part.machine is not None else name
                yield _Reached(name, here, None, host, here.own_manifest.exists())
            elif copy is not None and not copy.is_delivered:
                host = copy.machine.host if copy.machine is not None else name
                yield _Reached(name, self._work_of(copy), copy, host, _OWN_MANIFEST in copy.contents)
            elif copy is None and part is not None and not part.is_delivered:
                self._miss(part)
        yield from self._look_for_gone({*found, *undelivered.names(self._run)})

    def _look_for_gone(self, known: set[str]) -> Iterator[_Reached]:
        """Report removed parts that had a backlog; yield that of this machine, whose agent counts the loss."""
        own = directories.at(self._run)
        for name, journals in sorted(noted(own.attempts).items()):
            if name == own.host and name not in known:
                yield _Reached(name, own, None, self._machine.host, sends=False)
            elif name and name not in known:
                self._fail(f"{self._run / LOCAL / name} was removed, with the content of {len(journals)} journal(s)")

    def _is_here(self, part: Part) -> bool:
        if not part.is_elsewhere:
            return True
        is_own = part.machine is None or part.machine.is_same(self._machine)
        return is_own and part.place.is_dir()

    def _miss(self, part: Part) -> None:
        machine = part.machine or Machine(host=part.name)
        if machine.host == self._machine.host and machine.is_same(self._machine):
            self._fail(f"{part.place} of this machine was removed; its backlog is lost")
            return
        command = deliver_with(RunDirectory(self._run, part.place, part.name))[1]
        self._fail(f"{part.place} is on {machine.host}; run there: {command}")

    def _fail(self, text: str) -> None:
        self._is_complete = False
        self._say(text)

    def _work_of(self, copy: Copy) -> RunDirectory:
        label = hashlib.sha256(os.fsencode(undelivered.place_of(self._run, copy.name))).hexdigest()[:16]
        base = home() or private_directory()
        return RunDirectory(self._run, base / f"{label}.copy", copy.name)

    def _deliver(
        self,
        one: _Reached,
        senders: Sequence[_Reached] = (),
        exporters: Mapping[str, Callable[..., Exporter]] = REGISTERED,
    ) -> bool:
        with self._taken(one) as is_taken:
            if is_taken and self._may_begin(one):
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
                self._deliver(one, exporters={"head": inbox.exporter_of(one.host)})

    def _run_agent(self, one: _Reached, exporters: Mapping[str, Callable[..., Exporter]]) -> None:
        directory = one.directory
        try:
            is_complete = run_agent(
                directory,
                once=True,
                patience=self._patience(one),
                of_copy=one.copy is not None,
                exporters=exporters,
            )
        except BlockingIOError:
            self._fail(f"{self._other(one)} and has not ended; wait for it, or end it by SIGTERM and run this again")
            return
        except (GoneError, StartError) as error:
            self._fail(str(error))
            return
        if not is_complete:
            whose = f"{one.host}: " if one.host != self._machine.host else ""
            self._fail(whose + agent_start.incomplete(agent_start.read_status(directory)))
        if recording := _recording(directory):
            self._fail(f"{recording} is still being recorded; run this again when the training has ended")
        if one.copy is not None and not one.copy.is_last:
            later = f"what {one.host} recorded after its last copy is in {one.copy.place} on {one.host}"
            command = deliver_with(directory)[1]
            self._fail(f"{later}; run there, if it still exists: {command}")

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

    @contextlib.contextmanager
    def _taken(self, one: _Reached) -> Iterator[bool]:
        """Reserve a copy for this process, and restore it; yield whether that worked. A part itself needs neither."""
        if one.copy is None:
            yield True
            return
        place = undelivered.place_of(self._run, one.name)
        alive, taken = signs.alive(place), signs.taken(place)
        if self._is_at_work(alive, one) or not taken.put_first(signs.own_name()):
            if not alive.is_fresh():
                self._fail(f"{taken.who()} delivers the copy of {one.host} now; run this again later")
            yield False
            return
        ended = threading.Event()
        threading.Thread(target=_touch, args=(taken, ended), name="otel-rl-taken", daemon=True).start()
        try:
            yield self._restore(one)
        finally:
            ended.set()
            taken.remove()
            shutil.rmtree(one.directory.local, ignore_errors=True)

    def _restore(self, one: _Reached) -> bool:
        """Restore a part from a copy; return whether that worked."""
        work = one.directory.local
        try:
            shutil.rmtree(work, ignore_errors=True)
            make_directory(work)
            copy = undelivered.read(self._run, one.name)
            if copy is None:
                raise FileNotFoundError(f"{undelivered.place_of(self._run, one.name)} is incomplete now")
            undelivered.restore(self._run, copy, work, manifest=True)
        except OSError as error:
            self._fail(f"the copy of {one.host} cannot be used: {error}")
            return False
        return True

    def _is_at_work(self, alive: Sign, one: _Reached) -> bool:
        """Return whether an agent is alive; wait until the sign of one that was killed expires."""
        if not alive.is_fresh():
            return False
        self._say(f"an agent on {one.host} may still run; waiting at most {signs.FRESH_S + _LOOK_S:.0f} s")
        until = time.monotonic() + signs.FRESH_S + _LOOK_S
        while time.monotonic() < until:
            time.sleep(_LOOK_S)
            if not alive.is_fresh():
                return False
        self._fail(f"{alive.who()} delivers for {one.host}; run this again when the training has ended")
        return True


def _head_of(one: _Reached, heads: list[_Reached]) -> _Reached:
    """Return the part of the head that has received records of a machine before; otherwise the last one."""
    for head in heads:
        names = head.copy.directories if head.copy is not None else _names(head.directory.journals)
        if any(name.endswith(f"@{one.host}") for name in names):
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


def _touch(sign: Sign, ended: threading.Event) -> None:
    while not ended.wait(_TOUCH_S):
        sign.touch()
