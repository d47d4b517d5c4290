"""One agent: it builds its parts from the manifest of a run, works in turns, and ends when nobody needs it."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from otel_rl.recorder.agent.build import build
from otel_rl.recorder.agent.input import unsent
from otel_rl.recorder.delivery.left_behind import deliver_with, left_behind
from otel_rl.recorder.directory import parts
from otel_rl.recorder.directory.agent_start import incomplete, note_delivered
from otel_rl.recorder.directory.attempt_entries import renew
from otel_rl.recorder.directory.births import Birth
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.journal.claim import mark_delivered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.build import AgentTask
    from otel_rl.recorder.agent.steps.reduced import Reduced
    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.journal.segments import Position

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
    """Runs the loop of one agent from its start to its end; `stopped` is set when it must end."""

    def __init__(self, task: AgentTask) -> None:
        self._task, self._directory, self._manifest = task, task.directory, task.manifest
        self._birth = Birth(task.directory.path, task.directory.local)
        self._parts = build(task)
        self.stopped = self._parts.stopped
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
            # Copied, because in this turn the processes of these journals may prove to be over.
            finished = dict(self._parts.loop.finished)
            worked = self._try_a_turn()
            self._note_delivery()
            self._say("ready", finished)
            if not (lock.is_in_place and self._parts.outbox.is_in_place):
                self._let_go()
                raise GoneError(
                    f"{self._directory.outbox} was removed, moved or replaced; the next agent makes it again"
                )
            self._parts.exporters.shut_if_done(is_done=not worked and self._is_done)
            if not worked and self._may_end() and (delivered := self._end_unless_needed()) is not None:
                return delivered
            if not worked:
                self.stopped.wait(_POLL_S)

    def _let_go(self) -> None:
        self._parts.target.close()
        for one in self._parts.exporters.threads:  # they must not read the outbox of the next agent
            one.stop()

    def _start(self) -> None:
        self._parts.exporters.start()
        if not self._task.once:
            with contextlib.suppress(OSError):
                for warning in left_behind(self._directory, os.environ):
                    logger.warning("%s", warning)
                    self._parts.openings.warnings.append(warning)
            if self._directory.is_elsewhere:
                here, place = parts.this_machine().host, self._directory.local
                logger.info("the journals of this machine, %s, are in %s", here, place)
            hardware = self._manifest.agent.hardware
            if hardware.enabled:
                self._parts.poller.start()
            for probe in self._parts.pipeline.analyses.probes():
                self._parts.poller.measure(probe)
        self._say("ready", self._parts.loop.finished)

    def _try_a_turn(self) -> bool:
        """Take one turn of the loop; return whether there was anything to do. A turn that fails is retried."""
        now = time.time_ns()
        try:
            made, worked = self._parts.loop.turn(now, near_end=self.stopped.is_set())
            self._report(made, now)
        except Exception as error:
            self._parts.quarantine.put("work", "agent", None, error)
            self._failed_in_a_row += 1
            self.stopped.wait(_POLL_S)
            return self._failed_in_a_row < _MOST_FAILURES
        self._failed_in_a_row = 0
        return worked

    def _report(self, made: Reduced, now: int) -> None:
        """Update the metrics, write reports, remove what every exporter has, and count what was lost."""
        self._parts.display.show(made, now)
        self._parts.display.show_delivery(self._parts.exporters, self._parts.status.dropped)
        for place, take in self._parts.takers.items():
            with self._parts.quarantine.guard("writing of a turn", place):
                take(made.items)
        if time.monotonic() - self._released_at > _RELEASE_EVERY_S:
            self._remove_delivered()
        self._parts.status.count_losses()

    def _remove_delivered(self) -> None:
        """Remove what every exporter has from the outbox and the journals; note whether ranks of this machine run."""
        self._released_at = time.monotonic()
        with contextlib.suppress(OSError):  # the run directory was moved, or its file server does not answer
            renew(self._directory)
        with self._parts.quarantine.guard("removal of what is delivered", str(self._directory.outbox)):
            self._parts.release.look([one.cursor for one in self._parts.exporters.threads])

    def _say(self, state: str, finished: Mapping[str, Position]) -> None:
        self._parts.status.say(state, finished, is_over=self._parts.loop.is_over)
        with self._parts.quarantine.guard("writing of the present state", "now.json"):
            self._parts.present.show(self._parts.exporters, self._parts.status.said)

    def _note_delivery(self) -> None:
        """Record that everything was delivered, once all items are saved in the outbox and every backend has them.

        This comes before the trainer reads so, since its job may end then.
        """
        reducer = self._parts.pipeline.reducer
        is_saved = not self._parts.loop.unsaved and bool(reducer.state.journals)
        done = is_saved and reducer.is_finished and self._parts.exporters.is_durable
        if done and not self._is_noted:
            self._record_delivery(is_complete=True)
        self._is_noted = done

    def _record_delivery(self, *, is_complete: bool) -> None:
        """Record that every exporter has what the journals held, for the time when the journals are gone.

        If all is complete, the run directory says so for the whole part of this machine.
        """
        journals = self._parts.pipeline.reducer.state.journals.items()
        with contextlib.suppress(OSError):
            mark_delivered(self._directory.attempts, [name for name, one in journals if one.over and one.is_rank])
        if is_complete and not self._task.of_archive:
            note_delivered(self._directory)

    def _may_end(self) -> bool:
        """Return whether the agent was stopped, has delivered all that there will be, or has nothing to do."""
        now, follower = time.monotonic(), self._parts.source.follower
        if self.stopped.is_set():
            self._stopped_at = self._stopped_at or now
            # Elsewhere, the directory of the machine may end with the job: its last records have to be in the archive
            # by then (faults/test_undelivered.py).
            is_safe = not self._directory.is_elsewhere or not follower.alive_here
            return is_safe or now > self._stopped_at + _LINGER_S
        if not self._parts.source.is_quiet(now):
            return False
        if self._is_done and self._parts.exporters.are_shut:
            return True
        progress = (follower.positions, self._parts.exporters.progress)
        is_alive = follower.alive_here and not self._task.once
        # A call of a tracker that starts slowly counts as progress, or the agent would end while it starts
        # (faults/test_slow_trackers.py).
        if progress != self._progress or is_alive or self._parts.exporters.are_at_work(now):
            self._progress, self._last_progress = progress, now
        return now - self._last_progress > self._manifest.idle_timeout

    @property
    def _is_done(self) -> bool:
        """Whether every exporter has accepted everything, and nothing more is expected."""
        is_last = (self._task.once or self._parts.loop.is_over) and self._parts.source.is_quiet(time.monotonic())
        return is_last and self._parts.exporters.has_delivered and not self._parts.loop.unsaved

    def _end_unless_needed(self) -> bool | None:
        """End, unless a process attaches to this agent meanwhile; return what `_end` returns, or `None`."""
        try:
            # A process that attaches holds this lock: it finds this agent gone, or the agent finds its journal
            # (directory/agent_start.py).
            starting = Lock(self._directory.start_lock)
        except BlockingIOError:
            return None
        with starting:
            if self.stopped.is_set() or self._task.once or not self._parts.source.follower.find_new():
                return self._end()
        return None

    def _end(self) -> bool:
        """Close all parts; return whether everything was delivered and nothing was lost."""
        self._close()
        delivered = self._parts.exporters.has_delivered and self._parts.exporters.are_closed
        if delivered:
            self._record_delivery(is_complete=self._parts.loop.is_over)
        # After the exporters are closed: who reads `ended` in the status waits for them no longer
        # (directory/agent_start.py).
        self._say("ended", self._parts.loop.finished)
        said = self._parts.status.said
        if self._manifest.sends and self._directory.is_elsewhere:
            try:
                self._leave_unsent()
            except OSError as error:
                logger.warning("records that the head lacks cannot be left for it: %s", error)
        if said.waiting and not self._task.of_archive:
            logger.warning("%s; deliver it on %s with: %s", incomplete(said), *deliver_with(self._directory))
        return delivered and not self._parts.losses.lost

    def _leave_unsent(self) -> None:
        """Leave in the run directory what the head has not received, for the machine that has the head's part."""
        run, part = self._directory.path, self._directory.host
        if self._parts.exporters.has_delivered:
            unsent.remove(run, part)
            return
        first = min(one.delivered for one in self._parts.exporters.threads)
        batches = (batch.items for _, batch in self._parts.outbox.since(first))
        unsent.save(run, part, batches, is_last=not self._parts.source.follower.alive_here)

    def _close(self) -> None:
        for close in self._parts.closers:
            close()
        self._remove_delivered()
        self._parts.outbox.close()
        self._parts.source.follower.release_space()
        self._parts.status.count_losses()
