"""The loop of the agent: follow the journals, apply the records, run the chain, save, report."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.input.follow import RECORDS_AT_ONCE, forwarded
from otel_rl.agent.repair import unencodable
from otel_rl.agent.steps.forensics import write_reports
from otel_rl.agent.steps.pipeline import Turn
from otel_rl.agent.steps.state import Checkpoint
from otel_rl.errors.sinks import log_of
from otel_rl.journal.record_events import Revived
from otel_rl.setup.attempt_entries import renew

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.agent.input.follow import Found
    from otel_rl.agent.status import Status
    from otel_rl.agent.steps.reduced import Reduced
    from otel_rl.agent.wiring import Wiring
    from otel_rl.export import Item
    from otel_rl.journal.segments import Position

logger = log_of(__name__)
_READ_AT_ONCE = 500
"""Records of one journal that one turn reads."""
_RELEASE_EVERY_S = 5.0
_HELD_PAUSES = 10
"""Spend at most 10 % of the wall time on checkpoints that are written only for buffered spans."""


class Loop:
    """Moves what is new from the journals to the outbox.

    Attributes:
        finished: Journals that were read to their end, with the place in the outbox of their last item.
        unsaved: Items that are not in the outbox yet. While there are any, nothing more is read.
    """

    def __init__(self, wired: Wiring, status: Status) -> None:
        self._wired, self._status = wired, status
        self._guard = wired.quarantine.guard
        self._encode = msgspec.msgpack.Encoder().encode
        self.unsaved: list[Item] = []
        self.finished = self._finished_before()
        self._has_measured_all = self._disk_failed = False
        self._save_held_at = 0
        self._released_at = 0.0

    def turn(self) -> bool:
        """Move what is new from the journals to the outbox; return whether there was anything."""
        now = time.time_ns()
        found, is_all = self._follow(now)
        made = self._apply(found, is_all=is_all)
        near_end = self._wired.stopped.is_set() or self._wired.is_over
        self.unsaved += self._chain(found, made, now, near_end=near_end)
        self._save(now, near_end=near_end)
        self._report(made, now)
        self._tidy()
        return bool(found or made.items)

    def _finished_before(self) -> dict[str, Position]:
        """Leave out the journals that an earlier agent read to their end; return those without an open step."""
        wired, reducer = self._wired, self._wired.pipeline.reducer
        finished: dict[str, Position] = {}
        for name, journal in reducer.state.journals.items():
            if journal.over:
                wired.follower.ignore(name, journal.outcome, journal.exit_code)
                if not reducer.has_open(name):
                    finished[name] = wired.outbox.end
        return finished

    def _follow(self, now: int) -> tuple[list[Found], bool]:
        """Return the new records of all journals, and whether there are no more."""
        wired = self._wired
        with self._guard("reading of journals", str(wired.directory.journals)):
            wired.follower.look()
            if wired.receiver is not None:
                wired.follower.wake(wired.receiver.take_grown())
            if not self.unsaved:
                found = wired.follower.read(_READ_AT_ONCE, now)
                return found, _is_all(found)
        return [], False

    def _apply(self, found: list[Found], *, is_all: bool) -> Reduced:
        """Apply records to the steps; return what they complete, with the items that other programs sent."""
        receiver, reducer = self._wired.receiver, self._wired.pipeline.reducer
        for name in {name for name, record in found if isinstance(record, Revived)}:
            self.finished.pop(name, None)
        steady = time.monotonic_ns()
        made = reducer.feed(found, steady)
        if is_all:  # otherwise a waiting row may still get a record that was not read
            made.add(reducer.tick(steady))
        if receiver is not None and not self.unsaved:
            made.items += receiver.accepted.take()
        if receiver is not None:
            receiver.tend(is_over=self._wired.is_over, now=time.monotonic())
        return made

    def _chain(self, found: list[Found], made: Reduced, now: int, *, near_end: bool) -> list[Item]:
        """Return the items that exporters get."""
        wired = self._wired
        measured: list[Item] = []
        with self._guard("measuring", "this machine"):
            measured = self._measured(made.items, now)
        recorded = forwarded(found, wired.pipeline.reducer.state.forwarded) if wired.manifest.sends else []
        turn = Turn(made, wired.outbox.end, now, near_end)
        return wired.pipeline.leaving([*recorded, *made.items, *measured], turn)

    def _measured(self, made: list[Item], now: int) -> list[Item]:
        """Return the measurements of this machine; once its processes have ended, the remaining ones, then nothing."""
        wired = self._wired
        alive = wired.follower.alive_here
        if not alive and self._has_measured_all:
            wired.poller.take()
            return []
        self._has_measured_all = not alive
        return wired.measurements.take(wired.pipeline.reducer.state.journals, made, now, all_of_it=not alive)

    def _save(self, now: int, *, near_end: bool) -> None:
        """Write to the outbox, if there is anything new for it."""
        wired = self._wired
        reducer, rollouts = wired.pipeline.reducer, wired.pipeline.traces.rollouts
        over = [
            name
            for name, journal in reducer.state.journals.items()
            if journal.over and name not in self.finished and not reducer.has_open(name)
        ]
        held = rollouts.fresh and (near_end or now > self._save_held_at)
        if (self.unsaved or held or over or wired.losses.is_news) and self._append():
            self.finished |= dict.fromkeys(over, wired.outbox.end)
        if wired.receiver is not None and not self.unsaved and not rollouts.fresh:
            wired.receiver.accepted.saved()

    def _append(self) -> bool:
        """Write a batch with a checkpoint to the outbox; return whether that worked. On a full disk it is retried."""
        wired = self._wired
        began = time.time_ns()
        rollouts, lost = wired.pipeline.traces.rollouts, wired.losses.lost
        checkpoint = Checkpoint(wired.follower.positions, wired.pipeline.reducer.state, rollouts.since, lost)
        try:
            try:
                wired.outbox.append(self.unsaved, self._encode(checkpoint), rollouts.fresh, rollouts.settled)
            except (ValueError, OverflowError, TypeError):  # one invalid number or text must not lose the others
                unencodable.append(wired.outbox, self.unsaved, checkpoint, rollouts, wired.quarantine)
            rollouts.saved()
        except OSError as error:
            if not self._disk_failed:
                logger.warning("the outbox cannot be written; reading pauses until it can: %s", error)
            self._disk_failed = True
            return False
        wired.losses.saved(lost)
        self.unsaved, self._disk_failed = [], False
        now = time.time_ns()
        self._save_held_at = now + _HELD_PAUSES * (now - began)
        return True

    def _report(self, made: Reduced, now: int) -> None:
        """Update the metrics, and write reports."""
        self._wired.display.show(made, now)
        self._status.show_delivery()
        with self._guard("writing of reports", "oom"):
            write_reports(self._wired.directory.path, made.items)

    def _tidy(self) -> None:
        """Remove what every exporter has, and count what was lost."""
        if time.monotonic() - self._released_at > _RELEASE_EVERY_S:
            self.release()
        self._status.count_losses()

    def release(self) -> None:
        """Remove what every exporter has from the outbox and the journals; note whether ranks of this machine run."""
        wired = self._wired
        self._released_at = time.monotonic()
        with suppress(OSError):  # the run directory was moved, or its file server does not answer
            renew(wired.directory)
        with self._guard("removal of what is delivered", str(wired.directory.outbox)):
            wired.release.look([one.cursor for one in wired.exporters], wired.pipeline.traces.rollouts.since)


def _is_all(found: Sequence[Found]) -> bool:
    """Return whether no journal has more records than were read."""
    of_journal = Counter(one.journal for one in found)
    return len(found) <= RECORDS_AT_ONCE and max(of_journal.values(), default=0) < _READ_AT_ONCE
