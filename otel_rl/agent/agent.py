"""One agent: it builds its parts from the manifest of a run, works in turns, and ends when nobody needs it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.autopsies import Autopsies
from otel_rl.agent.hardware.engines import Engine
from otel_rl.agent.hardware.poller import Poller
from otel_rl.agent.input import unsent
from otel_rl.agent.input.deaths import Deaths
from otel_rl.agent.input.source import Source
from otel_rl.agent.loop import Loop
from otel_rl.agent.losses import Losses
from otel_rl.agent.openings import Openings
from otel_rl.agent.output.display import Display
from otel_rl.agent.output.exporters import Exporters
from otel_rl.agent.output.measurements import Measurements
from otel_rl.agent.output.otel_metrics import OtelMetrics
from otel_rl.agent.output.present import Present
from otel_rl.agent.output.targets import Target, remove, sweep
from otel_rl.agent.output.wait_watch import WaitWatch
from otel_rl.agent.repair.refill import UNLIMITED_BYTES
from otel_rl.agent.repair.release import Release, cut_off
from otel_rl.agent.stalls import Stalls
from otel_rl.agent.status import Status
from otel_rl.agent.steps.forensics import write_reports
from otel_rl.agent.steps.pipeline import Pipeline
from otel_rl.agent.steps.state import Checkpoint, State
from otel_rl.delivery.left_behind import deliver_with, left_behind
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.errors.sinks import log_of
from otel_rl.journal.claim import settle
from otel_rl.journal.locks import Lock
from otel_rl.setup import directory as directories
from otel_rl.setup import parts, said
from otel_rl.setup.agent_start import incomplete, note_delivered
from otel_rl.setup.attempt_entries import renew
from otel_rl.setup.births import Birth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.agent.steps.reduced import Reduced
    from otel_rl.export import Exporter
    from otel_rl.journal.segments import Position
    from otel_rl.setup.directory import Manifest, RunDirectory

logger = log_of(__name__)
_POLL_S = 0.05
_RELEASE_EVERY_S = 5.0
_MOST_FAILURES = 20
_LINGER_S = 2.0
"""Time in seconds for the processes of a job that must end: the archive has their records until then."""


class GoneError(RuntimeError):
    """The files of the agent are not where they were."""


class RemovedError(GoneError):
    """The run directory was removed; another run may be there now."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(f"{directory.path} was removed; what is left of its run is in {directory.local}")


class Agent:
    """Runs the loop of one agent from its start to its end.

    Args:
        once: If true, the agent delivers what exists and ends.
        of_archive: If true, the part was made from the archive of another machine, which sees how far it is.
        missing: Number of items that were lost before, with the archive and the part.
        exporters: Factories that replace the registered ones, by name.

    Attributes:
        stopped: Set when the agent must end.

    Raises:
        OSError: A port or a file cannot be had, and the run is strict; or the directory cannot be written.
        SettingsError: An option of a reader is invalid.
        ImportError: An exporter cannot be imported.
    """

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        *,
        once: bool,
        of_archive: bool,
        missing: int,
        exporters: Mapping[str, Callable[..., Exporter]],
    ) -> None:
        how, run = manifest.agent, manifest.run(directory)
        self._directory, self._manifest, self._once, self._of_archive = directory, manifest, once, of_archive
        self.stopped = threading.Event()
        self._birth = Birth(directory.path, directory.local)
        self._openings = Openings(strict=how.strict)
        self._outbox = Outbox(directory.outbox, UNLIMITED_BYTES if of_archive else manifest.journal_limit)
        self._exporters = Exporters(directory, manifest, self._outbox, self._openings, exporters, once=once)
        self._target = self._open_target()
        self._quarantine = Quarantine(directory.quarantine)
        saved = self._checkpoint()
        losses = self._losses = Losses(saved.lost)
        self._source = Source(directory, manifest, saved.positions, self._openings, once=once, of_archive=of_archive)
        removed = cut_off(directory.journals, saved.positions) + missing
        everything = any(one.everything for one in self._exporters.threads)
        self._pipeline = Pipeline(manifest, saved.state, self._quarantine, everything=everything)
        vocabulary = self._pipeline.vocabulary
        readers = [reader.reader for reader in self._exporters.readers.values()]
        self._instruments = OtelMetrics(run, readers, vocabulary)
        self._poller = Poller(how.hardware.interval, io=how.hardware.pcie)
        forensics, flush_interval = self._pipeline.reducer.forensics, how.hardware.flush_interval
        section = "ray" if manifest.dialect in ("nemo_rl", "skyrl") else "hardware"
        state, stragglers = self._pipeline.reducer.state, self._pipeline.reducer.stragglers
        watch = None if once or of_archive or manifest.sends else WaitWatch(state, stragglers)
        measurements = Measurements(
            *(self._poller, self._instruments, forensics, vocabulary, flush_interval, section), sends=manifest.sends
        )
        stalls = Stalls(self._pipeline, measurements.gauges, how.stalled_after, self._source.heard)
        self._loop = Loop(
            self._source,
            self._pipeline,
            measurements,
            self._outbox,
            losses,
            self._quarantine,
            watch,
            None if once or of_archive or manifest.sends else stalls,
            Deaths(os.environ, self.stopped.is_set),
            Autopsies(directory.path, is_on=how.autopsy and not (once or of_archive)),
            sends=manifest.sends,
        )
        self._display = Display(
            self._instruments,
            self._pipeline,
            directory,
            self._quarantine,
            sends=manifest.sends,
            stalled=lambda: [*stalls.points(), *(watch.points() if watch is not None else ())],
        )
        self._status = Status(
            directory,
            self._source,
            self._pipeline,
            self._exporters,
            self._openings,
            losses,
            self._quarantine,
            removed,
        )
        self._present = Present(
            directory, manifest, self._pipeline, measurements.gauges, watch, stalls.shown, of_archive=of_archive
        )
        self._said = said.Said(directory.events)
        self._release = Release(self._outbox, directory.cursors, directory.journals)
        self._stopped_at = self._released_at = 0.0
        self._last_progress = time.monotonic()
        self._progress: object = None
        self._failed_in_a_row = 0
        self._is_noted = False

    def run(self, lock: Lock) -> bool:
        """Work until done; return whether everything was delivered and nothing was lost.

        Raises:
            GoneError: The outbox was removed, emptied, replaced or moved; or the run directory was removed.
        """
        self._start()
        while True:
            if self._birth.fate():  # before exporters get more, which make the files of a run that are missing
                self._let_go()
                raise RemovedError(self._directory)
            finished = dict(self._loop.finished)  # in this turn, the processes of these journals may prove to be over
            worked = self._try_a_turn()
            self._note_delivery()
            self._say("ready", finished)
            if not (lock.is_in_place and self._outbox.is_in_place):
                self._let_go()
                raise GoneError(_what_became_of(self._directory, lock.moved_to()))
            self._exporters.rest(is_done=not worked and self._is_done)
            if not worked and self._may_end() and (delivered := self._end_unless_needed()) is not None:
                return delivered
            if not worked:
                self.stopped.wait(_POLL_S)

    def _let_go(self) -> None:
        self._target.close()
        for one in self._exporters.threads:  # they must not read the outbox of the next agent
            one.stop()

    def _start(self) -> None:
        self._exporters.start()
        if not self._once:
            with contextlib.suppress(OSError):
                for warning in left_behind(self._directory, os.environ):
                    logger.warning("%s", warning)
                    self._openings.warnings.append(warning)
            if self._directory.is_elsewhere:
                here, place = parts.this_machine().host, self._directory.local
                logger.info("the journals of this machine, %s, are in %s", here, place)
            hardware = self._manifest.agent.hardware
            if hardware.enabled:
                self._poller.start()
            for url in () if self._manifest.sends else hardware.engines:  # those of a run, once
                with contextlib.suppress(ValueError):  # `Target` warns
                    self._poller.measure(Engine(url, self._pipeline.reducer.engines.hear))
        self._say("ready", self._loop.finished)

    def _try_a_turn(self) -> bool:
        """Take one turn of the loop; return whether there was anything to do. A turn that fails is retried."""
        now = time.time_ns()
        try:
            made, worked = self._loop.turn(now, near_end=self.stopped.is_set())
            self._report(made, now)
        except Exception as error:
            self._quarantine.put("work", "agent", None, error)
            self._failed_in_a_row += 1
            self.stopped.wait(_POLL_S)
            return self._failed_in_a_row < _MOST_FAILURES
        self._failed_in_a_row = 0
        return worked

    def _report(self, made: Reduced, now: int) -> None:
        """Update the metrics, write reports, remove what every exporter has, and count what was lost."""
        self._display.show(made, now)
        self._display.show_delivery(self._exporters, self._status.dropped)
        with self._quarantine.guard("keeping of the last steps", "now.json"):
            self._present.add(made.items)
        with self._quarantine.guard("writing of events", "events.json"):
            self._said.add(made.items)
        with self._quarantine.guard("writing of reports", "oom"):
            write_reports(self._directory.path, made.items)
        if time.monotonic() - self._released_at > _RELEASE_EVERY_S:
            self._remove_delivered()
        self._status.count_losses()

    def _remove_delivered(self) -> None:
        """Remove what every exporter has from the outbox and the journals; note whether ranks of this machine run."""
        self._released_at = time.monotonic()
        with contextlib.suppress(OSError):  # the run directory was moved, or its file server does not answer
            renew(self._directory)
        with self._quarantine.guard("removal of what is delivered", str(self._directory.outbox)):
            self._release.look([one.cursor for one in self._exporters.threads])

    def _say(self, state: str, finished: Mapping[str, Position]) -> None:
        self._status.say(state, finished, is_over=self._loop.is_over)
        with self._quarantine.guard("writing of the present state", "now.json"):
            self._present.show(self._exporters, self._status.said)

    def _note_delivery(self) -> None:
        """Record that everything was delivered, once all items are saved in the outbox and every backend has them.

        This comes before the trainer reads so, since its job may end then.
        """
        reducer = self._pipeline.reducer
        is_saved = not self._loop.unsaved and bool(reducer.state.journals)
        done = is_saved and reducer.is_finished and self._exporters.is_durable
        if done and not self._is_noted:
            self._record_delivery(is_complete=True)
        self._is_noted = done

    def _record_delivery(self, *, is_complete: bool) -> None:
        """Record that every exporter has what the journals held, for the time when the journals are gone.

        If all is complete, the run directory says so for the whole part of this machine.
        """
        journals = self._pipeline.reducer.state.journals.items()
        with contextlib.suppress(OSError):
            settle(self._directory.attempts, [name for name, one in journals if one.over and one.is_rank])
        if is_complete and not self._of_archive:
            note_delivered(self._directory)

    def _may_end(self) -> bool:
        """Return whether the agent was stopped, has delivered all that there will be, or has nothing to do."""
        now, follower = time.monotonic(), self._source.follower
        if self.stopped.is_set():
            self._stopped_at = self._stopped_at or now
            is_safe = not self._directory.is_elsewhere or not follower.alive_here
            return is_safe or now > self._stopped_at + _LINGER_S
        if not self._source.is_quiet(now):
            return False
        if self._is_done and self._exporters.are_shut:
            return True
        progress = (follower.positions, self._exporters.progress)
        is_alive = follower.alive_here and not self._once
        if progress != self._progress or is_alive or self._exporters.are_at_work(now):
            self._progress, self._last_progress = progress, now
        return now - self._last_progress > self._manifest.idle_timeout

    @property
    def _is_done(self) -> bool:
        """Whether every exporter has accepted everything, and nothing more is expected."""
        is_last = (self._once or self._loop.is_over) and self._source.is_quiet(time.monotonic())
        return is_last and self._exporters.has_delivered and not self._loop.unsaved

    def _end_unless_needed(self) -> bool | None:
        """End, unless a process attaches to this agent meanwhile; return what `_end` returns, or `None`."""
        try:
            starting = Lock(self._directory.start_lock)
        except BlockingIOError:
            return None
        with starting:
            if self.stopped.is_set() or self._once or not self._source.follower.look():
                return self._end()
        return None

    def _end(self) -> bool:
        """Close all parts; return whether everything was delivered and nothing was lost."""
        self._close()
        delivered = self._exporters.has_delivered and self._exporters.are_closed
        if delivered:
            self._record_delivery(is_complete=self._loop.is_over)
        self._say("ended", self._loop.finished)
        said = self._status.said
        if self._manifest.sends and self._directory.is_elsewhere:
            try:
                self._leave_unsent()
            except OSError as error:
                logger.warning("records that the head lacks cannot be left for it: %s", error)
        if said.waiting and not self._of_archive:
            logger.warning("%s; deliver it on %s with: %s", incomplete(said), *deliver_with(self._directory))
        return delivered and not self._losses.lost

    def _leave_unsent(self) -> None:
        """Leave in the run directory what the head has not received, for the machine that has the head's part."""
        run, part = self._directory.path, self._directory.host
        if self._exporters.has_delivered:
            unsent.remove(run, part)
            return
        first = min(one.delivered for one in self._exporters.threads)
        batches = (batch.items for _, batch in self._outbox.since(first))
        unsent.save(run, part, batches, is_last=not self._source.follower.alive_here)

    def _close(self) -> None:
        self._source.stop_listening()
        self._exporters.close()
        self._poller.stop()
        self._instruments.shutdown(timeout_s=5)
        for reader in self._exporters.readers.values():
            reader.shutdown()
        self._target.close()
        self._remove_delivered()
        self._outbox.close()
        self._source.follower.give_back()
        self._status.count_losses()

    def _checkpoint(self) -> Checkpoint:
        """Return the checkpoint of the agent before this one; an empty one if there was none, or it is damaged."""
        saved = self._outbox.checkpoint
        with self._quarantine.guard("reading of the checkpoint", str(self._outbox.path), saved):
            if saved:
                return msgspec.msgpack.decode(saved, type=Checkpoint)
        return Checkpoint({}, State())

    def _open_target(self) -> Target:
        """Return the file by which Prometheus finds this agent; with `once`, only remove that of a killed agent."""
        path, manifest = self._directory.targets(socket.gethostname()), self._manifest
        engines = manifest.agent.hardware.engines
        own, needs_token = self._exporters.address, self._exporters.needs_token
        target = Target(path, manifest.id, own, engines, needs_token=needs_token, sweeps=not manifest.sends)
        if self._once:
            remove(path)
            sweep(path.parent, now=time.time())
        else:
            target.start()
        return target


def _what_became_of(directory: RunDirectory, place: Path | None) -> str:
    outbox = directory.outbox
    where = outbox if place is None else directories.above(place / outbox.name).path
    if place is None or outbox.exists() or not where.exists():
        return f"{outbox} was removed, emptied or replaced; the next agent makes it again"
    return (
        f"{directory.path} was moved to {where}; a trainer that lives starts an agent there, "
        f"otherwise run: otel-rl agent {where} --once"
    )
