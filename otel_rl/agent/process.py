"""The agent as a process: holds its lock, runs the loop, says how it is, and ends when all is done."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections import Counter
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from otel_rl.agent.hardware.poller import Poller
from otel_rl.agent.input.follow import RECORDS_AT_ONCE, UNFINISHED, Follower, forwarded
from otel_rl.agent.input.remote import give_up_missing
from otel_rl.agent.losses import Losses
from otel_rl.agent.output.display import Display
from otel_rl.agent.output.measurements import Measurements
from otel_rl.agent.output.otel_metrics import Instruments
from otel_rl.agent.output.targets import Target, sweep
from otel_rl.agent.recovery import mend
from otel_rl.agent.recovery.rebuild import Rebuilder
from otel_rl.agent.recovery.release import Release, cut_off, leave, vanished
from otel_rl.agent.recovery.rescue import Rescue, is_elsewhere
from otel_rl.agent.steps.forensics import write_reports
from otel_rl.agent.steps.pipeline import Pipeline
from otel_rl.agent.steps.state import Checkpoint
from otel_rl.delivery import plugins, undelivered
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.left_behind import deliver_with, left_behind
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.outbox_reader import count_before
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.errors import SettingsError, stop_signals
from otel_rl.export import READER_ENTRY_POINT_GROUP
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.claim import noted, remove_abandoned, settle
from otel_rl.journal.locks import Lock
from otel_rl.journal.record_events import Revived
from otel_rl.journal.records import encodable_value
from otel_rl.journal.segments import START, Position
from otel_rl.setup import directory as directories
from otel_rl.setup import parts
from otel_rl.setup.agent_start import (
    DIRECTORY,
    MACHINE,
    AgentStatus,
    incomplete,
    note_delivered,
)
from otel_rl.setup.directory import FULL, Manifest, RunDirectory, unwritable
from otel_rl.setup.head import TOKEN_VARIABLE
from otel_rl.setup.otel_environment import log_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from otel_rl.agent.input.follow import Found
    from otel_rl.agent.input.receiver import Receiver
    from otel_rl.export import Exporter, Item, RunInfo

Made = TypeVar("Made")
logger = logging.getLogger(__name__)
_POLL_S = 0.05
_READ_AT_ONCE = 500
_MOST_DESCRIPTORS = 65_536
_CLOSE_WITHIN_S = 30.0
_MOST_FAILURES = 20
_RELEASE_EVERY_S = 5.0
_UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
_HELD_PAUSES = 10
"""A checkpoint goes with what is saved: for spans that are held back alone it takes a tenth of the time at most."""
_LINGER_S = 2.0
"""Seconds for the processes of a job that is told to end: what they record until then is in the last copy."""
_REGISTERED: Mapping[str, Callable[..., Exporter]] = MappingProxyType({})


class StartError(RuntimeError):
    """The agent cannot begin."""


class GoneError(RuntimeError):
    """The files of the agent are not where they were."""


class Agent:
    """Reads the journals of one run on this machine until there is nothing left to do.

    Args:
        directory: The run directory.
        once: Deliver what is there and end, rather than wait for more.
        of_copy: If true, the part was made of a copy of what another machine has not delivered.
        exporters: Factories that are used in place of those that are registered, by name.
    """

    _stopped_at = 0.0
    _unreachable = ""

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        *,
        once: bool = False,
        of_copy: bool = False,
        exporters: Mapping[str, Callable[..., Exporter]] = _REGISTERED,
    ) -> None:
        self.stopped = threading.Event()
        self._directory = directory
        self._manifest = manifest
        self._once = once
        self._of_copy = of_copy
        self._warnings: list[str] = []
        run = manifest.run(directory)
        self._readers = self._open_readers(run)
        how = manifest.agent
        self._sends = any(name == "head" for name, _ in manifest.exporters)
        self._target = self._announced()
        self._encode = msgspec.msgpack.Encoder().encode
        self._outbox = Outbox(directory.outbox, manifest.journal_limit, rebuilds=True)
        self._rebuilder = Rebuilder(directory, manifest, self._outbox)
        self._release = Release(self._outbox, directory.cursors, directory.journals)
        self._released_at = 0.0
        saved = self._outbox.checkpoint
        self._quarantine = Quarantine(directory.quarantine)
        checkpoint: Checkpoint | None = None
        with self._quarantine.guard("reading of the checkpoint", str(directory.outbox), saved):
            checkpoint = msgspec.msgpack.decode(saved, type=Checkpoint) if saved else None
        self._losses = Losses({} if checkpoint is None else checkpoint.lost)
        positions = {} if checkpoint is None else checkpoint.positions
        expected = dict.fromkeys(noted(directory.attempts).get(directory.host, ()) if once else (), START)
        self._follower = Follower(directory.journals, expected | positions, final=self._sends)
        self._cut_off = cut_off(directory.journals, positions) + vanished(directory, self._outbox)
        self._pipeline = Pipeline(manifest, None if checkpoint is None else checkpoint.state, self._quarantine)
        self._reducer, self._traces = self._pipeline.reducer, self._pipeline.traces
        self._receiver: Receiver | None = None
        self._never_came = 0
        if manifest.receives and once:
            self._never_came = give_up_missing(directory.journals, manifest.journal_limit)
        elif manifest.receives:
            self._listen(manifest.receives)
        self._restore_held(checkpoint)
        self._instruments = Instruments(
            run, [reader.reader for reader in self._readers.values()], self._pipeline.vocabulary
        )
        self._sampler = Poller(how.hardware.interval, io=how.hardware.pcie)
        self._measurements = Measurements(
            self._sampler,
            self._instruments,
            self._reducer.forensics,
            self._pipeline.vocabulary,
            how.hardware.flush_interval,
        )
        self._display = Display(self._instruments, self._pipeline, directory, self._quarantine, sends=self._sends)
        self._save_held_at = 0
        self._finished = self._finished_before()
        self._exporters = [
            ExporterThread(
                name, exporters.get(name) or plugins.find_exporter(name), options, run, self._outbox, directory.cursors
            )
            for name, options in manifest.exporters
        ]
        self._rescue = Rescue(directory, self._outbox, self._needed, self._waiting, of_copy=of_copy)
        self._last_progress = time.monotonic()
        self._progress: object = None
        self._said = AgentStatus()
        self._unsaved: list[Item] = []
        self._disk_failed = False
        self._failed_in_a_row = 0
        self._measures_no_more = self._is_noted = False

    def _restore_held(self, checkpoint: Checkpoint | None) -> None:
        """Take the spans back that an earlier agent held back."""
        if checkpoint is not None and checkpoint.held_since is not None:
            for place, batch in self._outbox.since(checkpoint.held_since):
                self._traces.rollouts.restore(batch.held, batch.settled.items(), place, time.time_ns())

    def _finished_before(self) -> dict[str, Position]:
        """Leave out the journals that an earlier agent read to their end; return those of which nothing is open."""
        finished: dict[str, Position] = {}
        for name, journal in self._reducer.state.journals.items():
            if journal.over:
                self._follower.ignore(name, journal.outcome, journal.exit_code)
                if not self._reducer.has_open(name):
                    finished[name] = self._outbox.end
        return finished

    def run(self, lock: Lock) -> bool:
        """Work until done; return whether everything was delivered and nothing was lost.

        Raises:
            GoneError: The outbox that the lock protects was removed, replaced or moved.
        """
        for exporter in self._exporters:
            exporter.start()
        self._rescue.start()
        with contextlib.suppress(OSError):
            for warning in () if self._once else left_behind(self._directory, os.environ):
                logger.warning("%s", warning)
                self._warnings.append(warning)
        if is_elsewhere(self._directory) and not self._once:
            logger.info("the journals of this machine, %s, are in %s", parts.this_machine().host, self._directory.local)
        if self._manifest.agent.hardware.enabled and not self._once:
            self._sampler.start()
        self._say("ready")
        while True:
            worked = self._try_to_work()
            self._note_delivery()
            self._say("ready")
            if not lock.is_in_place:
                self._target.close()
                raise GoneError(_what_became_of(self._directory, lock.moved_to()))
            if not worked and self._may_end() and (delivered := self._end_unless_needed()) is not None:
                return delivered
            if not worked:
                self.stopped.wait(_POLL_S)

    def _try_to_work(self) -> bool:
        """Work; if that fails, tell so only after several times in a row that there was nothing to do."""
        try:
            worked = self._work()
        except Exception as error:
            self._quarantine.put("work", "agent", None, error)
            self._failed_in_a_row += 1
            self.stopped.wait(_POLL_S)
            return self._failed_in_a_row < _MOST_FAILURES
        self._failed_in_a_row = 0
        return worked

    def _work(self) -> bool:
        """Move what is new from the journals to the outbox; tell whether there was anything."""
        now = time.time_ns()
        guard = self._quarantine.guard
        found: list[Found] = []
        is_all = False
        with guard("reading of journals", str(self._directory.journals)):
            self._follower.look()
            if self._receiver is not None:
                self._follower.wake(self._receiver.take_grown())
            if not self._unsaved:
                found = self._follower.read(_READ_AT_ONCE, now)
                is_all = _is_all(found)
        for name in {name for name, record in found if isinstance(record, Revived)}:
            self._finished.pop(name, None)
        steady = time.monotonic_ns()
        items = self._reducer.feed(found, steady)
        if self._receiver is not None and not self._unsaved:
            items += self._receiver.take_items()
        if is_all:  # else a row that waits may still get what was not read
            items += self._reducer.tick(steady)
        is_over = self._reducer.is_finished and not self._follower.alive
        near_end = self.stopped.is_set() or is_over
        if self._receiver is not None:
            self._receiver.tend(is_over=is_over, now=time.monotonic())
        measured: list[Item] = []
        with guard("measuring", "this machine"):
            measured = self._measured(items, now)
        recorded = forwarded(found, self._reducer.state.forwarded) if self._sends else []
        made = [*recorded, *items, *measured]
        self._unsaved += self._pipeline.leaving(made, self._outbox.end, now, near_end=near_end)
        over = [name for name in self._reducer.state.journals if self._is_news(name)]
        held = self._traces.rollouts.fresh and (near_end or now > self._save_held_at)
        if (self._unsaved or held or over or self._losses.is_news) and self._save():
            self._finished |= dict.fromkeys(over, self._outbox.end)
        if self._receiver is not None and not self._unsaved and not self._traces.rollouts.fresh:
            self._receiver.saved()
        self._display.show(items, now)
        self._show_delivery()
        with guard("writing of reports", "oom"):
            write_reports(self._directory.path, items)
        with guard("repair of the outbox", str(self._directory.outbox)):
            self._rebuilder.look()
        if time.monotonic() - self._released_at > _RELEASE_EVERY_S:
            self._release_what_is_delivered()
        self._note_losses()
        return bool(found or items)

    def _measured(self, items: list[Item], now: int) -> list[Item]:
        """Return what was measured of this machine; when its processes are over, what is left, and then nothing."""
        alive = self._follower.alive_here
        if not alive and self._measures_no_more:
            self._sampler.take()
            return []
        self._measures_no_more = not alive
        return self._measurements.take(self._reducer.state.journals, items, now, all_of_it=not alive)

    def _save(self) -> bool:
        """Put what was made into the outbox; tell whether that worked. On a full disk it is tried again."""
        began = time.time_ns()
        rollouts, lost = self._traces.rollouts, self._losses.lost
        checkpoint = Checkpoint(self._follower.positions, self._reducer.state, rollouts.since, lost)
        try:
            try:
                self._outbox.append(self._unsaved, self._encode(checkpoint), rollouts.fresh, rollouts.settled)
            except (ValueError, OverflowError, TypeError):  # one number or text, of which all others are not to be lost
                mend.append(self._outbox, self._unsaved, checkpoint, rollouts, self._quarantine)
            rollouts.saved()
        except OSError as error:
            if not self._disk_failed:
                logger.warning("the outbox cannot be written, nothing more is read until it can: %s", error)
            self._disk_failed = True
            return False
        self._losses.saved(lost)
        self._unsaved, self._disk_failed = [], False
        now = time.time_ns()
        self._save_held_at = now + _HELD_PAUSES * (now - began)
        return True

    def _is_news(self, name: str) -> bool:
        over = self._reducer.state.journals[name].over
        return over and name not in self._finished and not self._reducer.has_open(name)

    def _show_delivery(self) -> None:
        others = {  # no loss of the run: chosen so, never recorded, or of other programs
            "not_sampled": self._traces.left_out,
            UNFINISHED: self._follower.losses()[UNFINISHED],
            "refused_by_receiver": 0 if self._receiver is None else self._receiver.refusals.records,
        }
        self._display.show_delivery(self._exporters, self._delivering, self._losses.lost | others)

    def _release_what_is_delivered(self) -> None:
        self._released_at = time.monotonic()
        with self._quarantine.guard("removal of what is delivered", str(self._directory.outbox)):
            self._release.look([d.cursor for d in self._exporters], self._traces.rollouts.since)

    def _needed(self) -> Position:
        """Return the place in the outbox up to which nobody needs anything."""
        needed = self._release.needed([d.cursor for d in self._exporters])
        held_since = self._traces.rollouts.since
        return needed if held_since is None else min(needed, held_since)

    def _note_losses(self) -> None:
        of_journals = self._follower.losses()
        of_journals["torn_bytes"] -= of_journals.pop(UNFINISHED)
        self._losses.note(
            of_journals
            | {
                "refused_by_exporter": sum(one.refused for one in self._delivering.values()),
                "journals_missing": len(self._follower.missing)
                or int(self._once and self._follower.found_nothing and not self._reducer.state.journals),
                "outbox_retention": self._rebuilder.retained,
                "outbox_damaged": self._rebuilder.damaged + self._outbox.unreadable + self._cut_off,
                "quarantined": self._quarantine.count,
                "name_limit": self._pipeline.trackers.dropped,
                "lost_between_machines": self._never_came if self._receiver is None else self._receiver.lost,
            }
        )

    def _may_end(self) -> bool:
        now = time.monotonic()
        if self.stopped.is_set():
            self._stopped_at = self._stopped_at or now
            return not self._rescue.is_needed or not self._follower.alive_here or now > self._stopped_at + _LINGER_S
        if self._receiver is not None and not self._receiver.is_quiet(now):
            return False
        delivered = all(exporter.has_everything for exporter in self._exporters)
        if delivered and not self._unsaved and (self._once or (self._reducer.is_finished and not self._follower.alive)):
            return True
        taken = [exporter.taken for exporter in self._exporters]
        progress = (self._follower.positions, taken, self._rebuilder.answered)
        if progress != self._progress or (self._follower.alive_here and not self._once):
            self._progress, self._last_progress = progress, now
        return now - self._last_progress > self._manifest.idle_timeout

    def _end_unless_needed(self) -> bool | None:
        """End, unless a process attaches to this agent meanwhile; return what `_end` returns, or `None`."""
        try:
            starting = Lock(self._directory.start_lock)
        except BlockingIOError:
            return None
        with starting:
            if self.stopped.is_set() or self._once or not self._follower.look():
                return self._end()
        return None

    def _end(self) -> bool:
        if self._receiver is not None:
            self._receiver.close()  # what comes now stays with its sender
        complete = [exporter for exporter in self._exporters if exporter.has_everything]
        if self.stopped.is_set() and len(complete) < len(self._exporters):
            self._rescue.hurry()
        for exporter in self._exporters:
            if exporter in complete:
                exporter.close_when_done()
            else:
                exporter.stop()
        deadline = time.monotonic() + _CLOSE_WITHIN_S
        for exporter in complete:
            exporter.join(max(0.0, deadline - time.monotonic()))
        self._sampler.stop()
        self._instruments.shutdown(timeout_s=5)
        for reader in self._readers.values():
            reader.shutdown()
        self._target.close()
        self._release_what_is_delivered()
        self._outbox.close()
        self._follower.give_back()
        self._note_losses()
        delivered = all(one.has_everything and not one.is_alive() for one in self._exporters)
        is_complete = delivered and self._reducer.is_finished and not self._follower.alive
        if delivered:
            self._settle()
        if is_complete:  # noted before it is said: the trainer then ends, and its job ends the agent
            self._rescue.end(is_complete=True, is_last=not self._follower.alive_here)
            if not self._of_copy:
                note_delivered(self._directory)
        self._say("ended")
        with contextlib.suppress(OSError):
            leave(self._directory.left, self._said.waiting, self._follower.positions)
        if not is_complete:
            self._rescue.end(is_complete=False, is_last=not self._follower.alive_here)
        if self._said.waiting:
            logger.warning("%s; deliver it on %s with: %s", incomplete(self._said), *deliver_with(self._directory))
        return delivered and not self._losses.lost

    def _note_delivery(self) -> None:
        """Note once that all was delivered, before the trainer hears of it: its job may end then, and the agent too."""
        done = bool(self._reducer.state.journals) and self._reducer.is_finished and not self._unsaved
        done = done and all(exporter.has_everything for exporter in self._exporters)
        if done and not self._is_noted:
            self._settle()
            if not self._of_copy:
                note_delivered(self._directory)
        self._is_noted = done

    def _settle(self) -> None:
        """Note for when the journals are gone that every exporter has what they held."""
        over = [name for name, journal in self._reducer.state.journals.items() if journal.over and journal.is_rank]
        with contextlib.suppress(OSError):
            settle(self._directory.attempts, over)

    def _listen(self, address: str) -> None:
        self._receiver = self._allowed(lambda: self._open_receiver(address))
        if self._receiver is None:
            self._unreachable = self._warnings[-1]

    def _open_receiver(self, address: str) -> Receiver:
        from otel_rl.agent.input.receiver import Receiver  # the HTTP server, which few agents need
        from otel_rl.otlp.bridge.others import to_collector

        used = {
            "METRICS": "otlp" in dict(self._manifest.readers),
            "LOGS": "otlp_logs" in dict(self._manifest.exporters),
        }
        ways = to_collector([signal for signal, is_used in used.items() if is_used], own=[address])
        token = os.environ.get(TOKEN_VARIABLE, "")
        where = self._directory.journals
        return Receiver(address, self._manifest.id, where, self._manifest.journal_limit, token, ways)

    def _open_readers(self, run: RunInfo) -> dict[str, Any]:
        readers = {}
        for name, options in self._manifest.readers:
            if self._once and name == "prometheus":
                continue
            make = partial(plugins.find(READER_ENTRY_POINT_GROUP, name), run)
            reader = self._allowed(partial(make, **options))
            if reader is None and name == "prometheus":
                for other in (options | {"port": 0}, {"port": 0}):
                    with contextlib.suppress(OSError):
                        reader = make(**other)
                        self._warnings[-1] += f"; metrics are at {reader.address} instead"
                        break
            if reader is not None:
                readers[name] = reader
        return readers

    def _announced(self) -> Target:
        """Return the file by which Prometheus finds this agent; with `once`, remove that of one that was killed."""
        path = self._directory.targets(socket.gethostname())
        run_id, engines = self._manifest.id, self._manifest.agent.hardware.engines
        target = Target(path, run_id, self._address, engines, sweeps=not self._sends)
        if self._once:
            with contextlib.suppress(OSError):
                path.unlink()
            sweep(path.parent, now=time.time())
        else:
            target.start()
        return target

    def _allowed(self, make: Callable[[], Made]) -> Made | None:
        """Return what needs a port or a file of the machine; where that is not to be had, warn and go on without.

        Raises:
            OSError: The run is strict.
            SettingsError: An option is wrong.
        """
        try:
            return make()
        except OSError as error:
            if self._manifest.agent.strict:
                raise
            if (warning := str(error)) not in self._warnings:
                logger.warning("%s", warning)
                self._warnings.append(warning)
            return None
        except (ValueError, TypeError) as error:
            raise SettingsError(str(error)) from error

    @property
    def _delivering(self) -> dict[str, Any]:
        """All that delivers, by name: exporters, and readers that push."""
        pushing = {f"{name}_metrics": one for name, one in self._readers.items() if hasattr(one, "causes")}
        return {d.label: d for d in self._exporters} | pushing

    @property
    def _address(self) -> str | None:
        return next((reader.address for reader in self._readers.values() if reader.address), None)

    def _waiting(self) -> dict[str, int]:
        """Return how many items each exporter has not got."""
        path, count = self._outbox.path, self._outbox.count
        left = {d.label: count - count_before(path, d.delivered) for d in self._exporters if not d.has_everything}
        return {name: items for name, items in left.items() if items}

    def _say(self, state: str) -> None:
        """Write the status file, if it would say something new."""
        # Where the end is near, what is finished is told when the backends are closed: some write only then.
        near = self._reducer.is_finished and not self._follower.alive
        tell_finished = state == "ended" or not near
        delivered = {d.label: START if state == "ended" and d.is_alive() else d.delivered for d in self._exporters}
        self._note_losses()  # what is refused is counted before it counts as delivered
        said = self._delivering.items()
        status = AgentStatus(
            pid=os.getpid(),
            state=state,
            prometheus=self._address,
            warnings=self._warnings,
            unreachable=self._unreachable,
            finished=dict(self._finished) if tell_finished else self._said.finished,
            given_up=self._follower.given_up,
            delivered=delivered,
            failures={name: one.failures for name, one in said if one.failures},
            last_error={name: encodable_value(one.last_error) for name, one in said if one.last_error},
            lost=self._losses.lost,
            waiting=self._waiting() if state == "ended" else {},
        )
        if status != self._said or not self._directory.status.exists():  # who starts an agent removes it
            with contextlib.suppress(OSError):  # a full disk: said again when it says something else
                write_atomically(self._directory.status, msgspec.json.encode(status))
                self._said = status


def _cause(error: Exception) -> str:
    """Return what keeps the agent from starting: the directory, the machine, or the settings."""
    if isinstance(error, OSError):
        return DIRECTORY if error.errno in _UNWRITABLE else MACHINE
    return "" if isinstance(error, (SettingsError, ImportError)) else MACHINE


def _what_became_of(directory: RunDirectory, place: Path | None) -> str:
    outbox = directory.outbox
    where = outbox if place is None else directories.above(place / outbox.name).path
    if place is None or outbox.exists() or not where.exists():
        return f"{outbox} was removed or replaced; the next agent makes it again"
    return (
        f"{directory.path} was moved to {where}; a trainer that lives starts an agent there, "
        f"otherwise run: otel-rl agent {where} --once"
    )


def _is_all(found: Sequence[Found]) -> bool:
    """Tell whether no journal has more than was read of it."""
    of_journal = Counter(one.journal for one in found)
    return len(found) <= RECORDS_AT_ONCE and max(of_journal.values(), default=0) < _READ_AT_ONCE


def log_to_stderr() -> None:
    """Log to standard error; the SDK's exporters are kept quiet, since a backend says itself what fails."""
    logging.basicConfig(level=log_level(os.environ), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)


def read_manifest(directory: RunDirectory) -> Manifest:
    """Return what the agent has to know of the run.

    Raises:
        FileNotFoundError: It is no run directory.
        ValueError: The manifest is damaged.
    """
    place = directory.own_manifest if directory.own_manifest.exists() else directory.manifest
    try:
        return msgspec.json.decode(place.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{place} is damaged ({error}); start the run again, or restore the file") from error


def _catch_up(directory: RunDirectory) -> None:
    """Go on from the copy of what was not delivered, if that is newer than the part.

    Raises:
        BlockingIOError: Another machine delivers from it now.
    """
    if not is_elsewhere(directory) or undelivered.read(directory.path, directory.host) is None:
        return
    alive, taken = (sign(directory.path, directory.host) for sign in (undelivered.alive, undelivered.taken))
    alive.put(undelivered.own_name())
    if taken.is_fresh():
        alive.remove()
        raise BlockingIOError(errno.EAGAIN, f"{taken.who()} delivers from its copy", str(directory.local))
    if undelivered.catch_up(directory.path, directory.host, directory.local):
        logger.info("the agent goes on from %s", undelivered.place_of(directory.path, directory.host))


def _raise_descriptor_limit() -> None:
    """Allow as many open files as this process may have: exporters and their connections need theirs too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run_agent(
    run: Path | RunDirectory,
    *,
    once: bool = False,
    patience: float = 1.0,
    of_copy: bool = False,
    exporters: Mapping[str, Callable[..., Exporter]] = _REGISTERED,
) -> bool:
    """Run the agent of a run directory until it is done; return whether everything was delivered and nothing was lost.

    Args:
        run: The run directory; with the part of this machine if it says no other.
        once: Deliver what is there and end, rather than wait for more.
        patience: Seconds to wait for the end of another agent.
        of_copy: If true, the part was made of a copy of what another machine has not delivered.
        exporters: Factories that are used in place of those that are registered, by name.

    Raises:
        FileNotFoundError: It is no run directory.
        BlockingIOError: Another agent has it.
        StartError: An exporter or a listener could not be made.
        ValueError: The manifest is damaged.
    """
    directory = run if isinstance(run, RunDirectory) else directories.at(run)
    manifest = read_manifest(directory)
    try:
        parts.check(directory.path, directory.host)
    except PermissionError as error:
        raise StartError(str(error)) from error
    parts.remake(directory.local)  # a cleaner of temporary files was there
    lock = Lock(directory.agent_lock, patience=patience)
    _raise_descriptor_limit()
    if not of_copy:
        _catch_up(directory)
    remove_abandoned(directory.status.parent, directory.journals, directory.cursors)
    try:
        try:
            agent = Agent(directory, manifest, once=once, of_copy=of_copy, exporters=exporters)
        except Exception as error:
            why = str(error)
            if isinstance(error, OSError) and error.errno in FULL:
                why = str(unwritable(directory.path.parents[1], directory.local, error))
            failed = AgentStatus(pid=os.getpid(), state="failed", error=why, cause=_cause(error))
            with contextlib.suppress(OSError):  # on a full disk
                write_atomically(directory.status, msgspec.json.encode(failed))
            raise StartError(why) from error
        if threading.current_thread() is threading.main_thread():
            stop_signals.set_at((signal.SIGTERM,), agent.stopped)
        return agent.run(lock)
    finally:
        lock.release()
