"""The agent as a process: its lock, its signals, its log, its beginning, its end and its exit code."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import signal
import sys
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.agent.loop import Loop
from otel_rl.agent.repair.release import leave
from otel_rl.agent.repair.rescue import catch_up, is_elsewhere
from otel_rl.agent.status import Status
from otel_rl.agent.wiring import Wiring, read_manifest
from otel_rl.delivery.left_behind import deliver_with, left_behind
from otel_rl.errors import SettingsError, redaction, stop_signals
from otel_rl.errors.redaction import redacted
from otel_rl.errors.sinks import OneLine, log_of
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.claim import remove_abandoned
from otel_rl.journal.locks import Lock
from otel_rl.journal.modes import own_process, share_with
from otel_rl.journal.own_files import ForeignError
from otel_rl.setup import directory as directories
from otel_rl.setup import loading, parts, secret_options
from otel_rl.setup.agent_start import DIRECTORY, MACHINE, AgentStatus, incomplete
from otel_rl.setup.directory import FULL, RunDirectory, unwritable
from otel_rl.setup.otel_environment import log_level, only_valid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter

logger = log_of(__name__)
_POLL_S = 0.05
_MOST_DESCRIPTORS = 65_536
_CLOSE_WITHIN_S = 30.0
_MOST_FAILURES = 20
_UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
_LINGER_S = 2.0
"""Time in seconds for the processes of a job that must end: the last copy has their records until then."""
End = Literal["done", "incomplete", "cannot start", "crashed", "not needed"]
"""How an agent ended: the supervisor has an exit code for each."""
REGISTERED: Mapping[str, Callable[..., Exporter]] = MappingProxyType({})


class StartError(RuntimeError):
    """The agent cannot start."""


class GoneError(RuntimeError):
    """The files of the agent are not where they were."""


class Agent:
    """Runs the loop of one agent from its start to its end."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired
        self._status = Status(wired)
        self._loop = Loop(wired, self._status)
        self._stopped_at = 0.0
        self._last_progress = time.monotonic()
        self._progress: object = None
        self._failed_in_a_row = 0

    def run(self, lock: Lock) -> bool:
        """Work until done; return whether everything was delivered and nothing was lost.

        Raises:
            GoneError: The outbox was removed, emptied, replaced or moved.
        """
        wired = self._wired
        self._start()
        while True:
            worked = self._try_a_turn()
            self._status.note_delivery(is_saved=not self._loop.unsaved)
            self._status.say("ready", self._loop.finished)
            if not (lock.is_in_place and wired.outbox.is_in_place):
                wired.target.close()
                raise GoneError(_what_became_of(wired.directory, lock.moved_to()))
            if not worked and self._may_end() and (delivered := self._end_unless_needed()) is not None:
                return delivered
            if not worked:
                wired.stopped.wait(_POLL_S)

    def _start(self) -> None:
        wired, directory = self._wired, self._wired.directory
        for exporter in wired.exporters:
            exporter.start()
        wired.rescue.start()
        if not wired.once:
            with contextlib.suppress(OSError):
                for warning in left_behind(directory, os.environ):
                    logger.warning("%s", warning)
                    wired.warnings.append(warning)
            if is_elsewhere(directory):
                logger.info("the journals of this machine, %s, are in %s", parts.this_machine().host, directory.local)
            if wired.manifest.agent.hardware.enabled:
                wired.poller.start()
            for engine in wired.engines():
                wired.poller.measure(engine)
        self._status.say("ready", self._loop.finished)

    def _try_a_turn(self) -> bool:
        """Take one turn of the loop; return whether there was anything to do. A turn that fails is retried."""
        try:
            worked = self._loop.turn()
        except Exception as error:
            self._wired.quarantine.put("work", "agent", None, error)
            self._failed_in_a_row += 1
            self._wired.stopped.wait(_POLL_S)
            return self._failed_in_a_row < _MOST_FAILURES
        self._failed_in_a_row = 0
        return worked

    def _may_end(self) -> bool:
        wired, now = self._wired, time.monotonic()
        if wired.stopped.is_set():
            self._stopped_at = self._stopped_at or now
            return not wired.rescue.is_needed or not wired.follower.alive_here or now > self._stopped_at + _LINGER_S
        if wired.receiver is not None and not wired.receiver.is_quiet(now):
            return False
        if wired.has_delivered and not self._loop.unsaved and (wired.once or wired.is_over):
            return True
        taken = [exporter.taken for exporter in wired.exporters]
        progress = (wired.follower.positions, taken)
        if progress != self._progress or (wired.follower.alive_here and not wired.once):
            self._progress, self._last_progress = progress, now
        return now - self._last_progress > wired.manifest.idle_timeout

    def _end_unless_needed(self) -> bool | None:
        """End, unless a process attaches to this agent meanwhile; return what `_end` returns, or `None`."""
        wired = self._wired
        try:
            starting = Lock(wired.directory.start_lock)
        except BlockingIOError:
            return None
        with starting:
            if wired.stopped.is_set() or wired.once or not wired.follower.look():
                return self._end()
        return None

    def _end(self) -> bool:
        """Close all parts; return whether everything was delivered and nothing was lost."""
        wired, status = self._wired, self._status
        self._close()
        delivered = wired.has_delivered and not any(exporter.is_alive() for exporter in wired.exporters)
        is_complete, is_last = delivered and wired.is_over, not wired.follower.alive_here
        if delivered:
            status.record_delivery(is_complete=is_complete)
        if is_complete:  # before the status file says so: the trainer then ends, and its job ends the agent
            wired.rescue.end(is_complete=True, is_last=is_last)
        status.say("ended", self._loop.finished)
        with contextlib.suppress(OSError):
            leave(wired.directory.left, status.said.waiting, wired.follower.positions)
        if not is_complete:
            wired.rescue.end(is_complete=False, is_last=is_last)
        if status.said.waiting:
            logger.warning("%s; deliver it on %s with: %s", incomplete(status.said), *deliver_with(wired.directory))
        return delivered and not wired.losses.lost

    def _close(self) -> None:
        wired = self._wired
        if wired.receiver is not None:
            wired.receiver.close()  # a sender keeps what it sends from now on
        complete = [exporter for exporter in wired.exporters if exporter.has_everything]
        if wired.stopped.is_set() and len(complete) < len(wired.exporters):
            wired.rescue.hurry()
        for exporter in wired.exporters:
            if exporter in complete:
                exporter.close_when_done()
            else:
                exporter.stop()
        deadline = time.monotonic() + _CLOSE_WITHIN_S
        for exporter in complete:
            exporter.join(max(0.0, deadline - time.monotonic()))
        wired.poller.stop()
        wired.instruments.shutdown(timeout_s=5)
        for reader in wired.readers.values():
            reader.shutdown()
        wired.target.close()
        self._loop.release()
        wired.outbox.close()
        wired.follower.give_back()
        self._status.count_losses()


def _cause(error: Exception) -> str:
    """Return why the agent cannot start: the directory, the machine, or the settings."""
    if isinstance(error, OSError):
        return DIRECTORY if error.errno in _UNWRITABLE else MACHINE
    return "" if isinstance(error, (SettingsError, ImportError)) else MACHINE


def _what_became_of(directory: RunDirectory, place: Path | None) -> str:
    outbox = directory.outbox
    where = outbox if place is None else directories.above(place / outbox.name).path
    if place is None or outbox.exists() or not where.exists():
        return f"{outbox} was removed, emptied or replaced; the next agent makes it again"
    return (
        f"{directory.path} was moved to {where}; a trainer that lives starts an agent there, "
        f"otherwise run: otel-rl agent {where} --once"
    )


def log_to_stderr() -> None:
    """Log to standard error; silence the SDK's exporters, since otel-rl's report their failures."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level(os.environ), handlers=[handler])
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files as far as allowed: exporters and their connections need many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@only_valid(os.environ)
def run_agent(
    run: Path | RunDirectory,
    *,
    once: bool = False,
    patience: float = 1.0,
    of_copy: bool = False,
    exporters: Mapping[str, Callable[..., Exporter]] = REGISTERED,
) -> bool:
    """Run the agent of a run directory until it is done; return whether everything was delivered and nothing was lost.

    Args:
        run: The run directory, by default with the part of this machine.
        once: Deliver what exists and end.
        patience: Seconds to wait for the end of another agent.
        of_copy: If true, the part was made from a copy of the backlog of another machine.
        exporters: Factories that replace the registered ones, by name.

    Raises:
        FileNotFoundError: It is not a run directory.
        ForeignError: Another user made the manifest, or can write it.
        BlockingIOError: Another agent runs there.
        StartError: An exporter or a listener cannot be built.
        ValueError: The manifest is damaged.
    """
    directory = run if isinstance(run, RunDirectory) else directories.at(run)
    manifest = read_manifest(directory)
    share_with(manifest.agent.share)
    redaction.begin(manifest.agent.redact.patterns, manifest.agent.redact.names, os.environ)
    try:
        parts.check(directory.path, directory.host)
    except PermissionError as error:
        raise StartError(str(error)) from error
    parts.remake(directory.local)  # a cleaner of temporary files may have removed it
    lock = Lock(directory.agent_lock, patience=patience)
    _raise_descriptor_limit()
    if not of_copy:
        catch_up(directory)
    remove_abandoned(directory.status.parent, directory.journals, directory.cursors)
    try:
        try:
            manifest = secret_options.with_secrets(manifest, os.environ, _given_options)
            wired = Wiring(directory, manifest, once=once, of_copy=of_copy, exporters=exporters)
        except Exception as error:
            why = redacted(str(error))
            if isinstance(error, OSError) and error.errno in FULL:
                why = str(unwritable(directory.path.parents[1], directory.local, error))
            failed = AgentStatus(pid=os.getpid(), state="failed", error=why, cause=_cause(error))
            with contextlib.suppress(OSError):  # on a full disk
                write_atomically(directory.status, msgspec.json.encode(failed))
            raise StartError(why) from error
        if threading.current_thread() is threading.main_thread():
            stop_signals.set_at((signal.SIGTERM,), wired.stopped)
        return Agent(wired).run(lock)
    finally:
        lock.release()


def _given_options() -> dict[str, object]:
    """Return the options of the exporters in the environment and the settings file of this process."""
    with contextlib.suppress(SettingsError):
        return {spec.name: spec.options for spec in loading.load({}).exporters}
    return {}


def work(directory: RunDirectory) -> End:
    """Run the agent of a run directory as the child of its supervisor; return how it ended."""
    log_to_stderr()
    own_process()
    end: End = "crashed"
    try:
        end = "done" if run_agent(directory) else "incomplete"
    except BlockingIOError:
        logger.info("another agent runs in %s", directory.path)
        end = "not needed"
    except (StartError, FileNotFoundError, ForeignError, ValueError) as error:
        logger.error("the agent cannot start: %s", error)
        end = "cannot start"
    except GoneError as error:
        logger.error("the agent ends: %s", error)
    except Exception:
        logger.exception("the agent failed")
    logging.shutdown()
    sys.stdout.flush()
    return end
