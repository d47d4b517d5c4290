"""The loop of the agent: follow the journals, apply the records, run the chain, save."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.analysis import LoopTurn
from otel_rl.recorder.agent.input.environment import Environments
from otel_rl.recorder.agent.input.follow import forwarded
from otel_rl.recorder.agent.repair import unencodable
from otel_rl.recorder.agent.steps.state import Checkpoint, Journal
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Finished, Started

if TYPE_CHECKING:
    from otel_rl.export import Item
    from otel_rl.recorder.agent.autopsies import Autopsies
    from otel_rl.recorder.agent.input.deaths import Deaths
    from otel_rl.recorder.agent.input.follow import NewRecord
    from otel_rl.recorder.agent.input.outputs import Outputs
    from otel_rl.recorder.agent.input.source import Source
    from otel_rl.recorder.agent.losses import Losses
    from otel_rl.recorder.agent.output.measurements import Measurements
    from otel_rl.recorder.agent.steps.pipeline import Pipeline
    from otel_rl.recorder.agent.steps.reduced import Reduced
    from otel_rl.recorder.delivery.outbox import Outbox
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.recorder.journal.segments import Position

logger = log_of(__name__)
_READ_AT_ONCE = 5_000
"""Records of one journal that one turn reads. Each turn writes files and wakes exporters: with 500 records, that took a
third of the agent's processor time on a busy machine."""
_LARGEST_CHECKPOINT = 24 << 20
"""Bytes of a checkpoint, which must fit into a batch of 64 MiB with its items."""
_CHECKPOINT_RATE = 4 << 20
"""Bytes of checkpoints per second: a small one is written in every turn, a large one less often. Each exporter reads
them too, so more would take most of the processor time that the agent gets on a busy machine."""
_MOST_UNSAVED = 20_000
"""Items that wait for the next checkpoint."""


class Loop:
    """Moves what is new from the journals to the outbox.

    If this agent `sends` to a head, the records themselves go there too. If it `watches`, analyses look at processes.

    Attributes:
        finished: Journals that were read to their end, with the place in the outbox of their last item.
        unsaved: Items that are not in the outbox yet. While they cannot be written, nothing more is read.
    """

    def __init__(
        self,
        source: Source,
        pipeline: Pipeline,
        measurements: Measurements,
        outbox: Outbox,
        losses: Losses,
        quarantine: Quarantine,
        deaths: Deaths,
        outputs: Outputs,
        autopsies: Autopsies,
        *,
        sends: bool,
        watches: bool,
    ) -> None:
        self._source, self._pipeline, self._measurements, self._watches = source, pipeline, measurements, watches
        self._deaths, self._outputs, self._autopsies = deaths, outputs, autopsies
        self._outbox, self._losses, self._quarantine, self._sends = outbox, losses, quarantine, sends
        self._environments = Environments()
        self._encode = msgspec.msgpack.Encoder().encode
        self.unsaved: list[Item] = []
        self.finished = self._finished_before()
        self._has_measured_all = self._disk_failed = self._has_shrunk = False
        self._save_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether every process of the run has finished, and no process of this machine lives."""
        return self._pipeline.reducer.is_finished and not self._source.follower.alive

    @property
    def _has_room(self) -> bool:
        return not self._disk_failed and len(self.unsaved) <= _MOST_UNSAVED

    def turn(self, now: int, *, near_end: bool) -> tuple[Reduced, bool]:
        """Move what is new from the journals to the outbox; return it, and whether there was anything.

        Args:
            now: Unix nanoseconds.
            near_end: If true, the agent ends soon.
        """
        records, is_all = self._read(now, near_end=near_end)
        made = self._apply(records, is_all=is_all)
        near_end |= self.is_over
        if is_all and self._watches:  # otherwise a process may be elsewhere by now
            made.items += self._pipeline.analyses.tick(LoopTurn(now, time.monotonic(), made.items, near_end))
        with self._quarantine.guard("autopsy", "processes"):
            made.items += self._autopsies.look(made.items)
        self.unsaved += self._chain(records, made, now, near_end=near_end)
        if near_end or not self._has_room or time.monotonic() >= self._save_at:
            self._save(made)
        return made, bool(records or made.items)

    def _finished_before(self) -> dict[str, Position]:
        """Leave out the journals that an earlier agent read to their end; return those without an open step."""
        reducer = self._pipeline.reducer
        finished: dict[str, Position] = {}
        for name, journal in reducer.state.journals.items():
            if journal.over:
                self._source.follower.skip(name, journal.outcome, journal.exit_code)
                if not reducer.has_open(name):
                    finished[name] = self._outbox.end
        return finished

    def _read(self, now: int, *, near_end: bool) -> tuple[list[NewRecord], bool]:
        """Return the new records of all journals, and whether there are no more."""
        with self._quarantine.guard("reading of journals", "journals"):
            self._source.find_new()
            if self._has_room:
                journals = self._pipeline.reducer.state.journals
                self._deaths.watch(journals)
                self._outputs.watch(journals)
                if near_end:
                    self._outputs.settle()
                printed = self._outputs.take()
                records = [*self._deaths.explained(self._source.read(_READ_AT_ONCE, now), journals)]
                begun = {name: Journal(record) for name, record in records if isinstance(record, Started)}
                if begun:  # it may have ended already
                    self._outputs.watch(journals | begun)
                return self._with_printed(records, printed), not self._source.follower.has_more
        return [], False

    def _with_printed(self, records: list[NewRecord], printed: list[NewRecord]) -> list[NewRecord]:
        """Return new records with the lines that were printed up to then; the end of a process comes behind its lines.

        The lines were taken before the journals were read, and follow their records: a message of logging, which a
        handler then prints, is in a journal first.
        """
        last = {record.journal: place for place, record in enumerate(records)}
        ends = [place for place in last.values() if isinstance(records[place].record, Lost | Finished)]
        if ends:
            self._outputs.settle()
            printed = [*printed, *self._outputs.take()]
        if not printed:
            return records
        behind = {*ends}
        return [
            *(record for place, record in enumerate(records) if place not in behind),
            *printed,
            *(records[place] for place in ends),
        ]

    def _apply(self, records: list[NewRecord], *, is_all: bool) -> Reduced:
        """Apply records to the steps; return what they complete, with the items that other programs sent."""
        reducer = self._pipeline.reducer
        # It counted as read to its end, so that `finish` would return before its new records are delivered
        # (faults/test_liveness.py).
        for name in {name for name, record in records if isinstance(record, Revived)}:
            self.finished.pop(name, None)
        steady = time.monotonic_ns()
        made = reducer.feed(records, steady)
        if is_all:  # otherwise a waiting row may still get a record that was not read
            made.add(reducer.tick(steady))
        # While the disk is full, senders keep what they have: nothing is taken from them that cannot be saved.
        if self._has_room:
            made.items += self._source.pop_accepted()
        self._source.note_processes(is_over=self.is_over, now=time.monotonic())
        return made

    def _chain(self, records: list[NewRecord], made: Reduced, now: int, *, near_end: bool) -> list[Item]:
        """Return the items that exporters get."""
        measured: list[Item] = []
        with self._quarantine.guard("measuring", "this machine"):
            measured = self._measured(now)
        environments = [] if self._sends else self._environments.of(made.items, near_end=near_end)
        recorded = forwarded(records, self._pipeline.reducer.state.forwarded) if self._sends else []
        items = [*recorded, *made.items, *measured, *environments]
        return self._pipeline.leaving(items, made, now)

    def _measured(self, now: int) -> list[Item]:
        """Return the measurements of this machine; once its processes have ended, the remaining ones, then nothing."""
        alive = self._source.follower.alive_here
        if not alive and self._has_measured_all:
            self._measurements.drop()
            return []
        self._has_measured_all = not alive
        return self._measurements.collect(self._pipeline.reducer.state.journals, now, all_of_it=not alive)

    def _save(self, made: Reduced) -> None:
        """Write to the outbox, if there is anything new for it; add to `made` what this completes."""
        reducer = self._pipeline.reducer
        over = [
            name
            for name, journal in reducer.state.journals.items()
            if journal.over and name not in self.finished and not reducer.has_open(name)
        ]
        if (self.unsaved or over or self._losses.is_news) and self._append(made):
            self.finished |= dict.fromkeys(over, self._outbox.end)
        # Not before: senders then forget the items, which a killed agent would not get again
        # (distributed/test_machines.py).
        if not self.unsaved:
            self._source.answer_senders()

    def _append(self, made: Reduced) -> bool:
        """Write a batch with a checkpoint to the outbox; return whether that worked. On a full disk it is retried."""
        # Read once: what is lost while the batch is written must not count as saved with it.
        lost = self._losses.lost
        state = self._pipeline.reducer.state
        analyses = self._pipeline.analyses.snapshots()
        checkpoint = Checkpoint(self._source.follower.positions, state, lost, analyses, dict(self._outputs.places))
        saved = self._encode(checkpoint)
        # A batch holds 64 MiB. An open step that has more would make each later checkpoint fail too
        # (faults/test_large_steps.py).
        if len(saved) > _LARGEST_CHECKPOINT and len(self._encode((state.steps, state.window))) > len(saved) / 2:
            if not self._has_shrunk:
                logger.warning("open steps take %d MiB: they close now, and what comes later is late", len(saved) >> 20)
            self._has_shrunk = True
            closed, leaving = self._pipeline.shrink(time.time_ns())
            self.unsaved += leaving
            made.add(closed)
            saved = self._encode(checkpoint)
        self._save_at = time.monotonic() + len(saved) / _CHECKPOINT_RATE
        try:
            try:
                self._outbox.append(self.unsaved, saved)
            except (ValueError, OverflowError, TypeError):  # one invalid number or text must not lose the others
                unencodable.append(self._outbox, self.unsaved, checkpoint, self._quarantine)
        except OSError as error:
            if not self._disk_failed:
                logger.warning("the outbox cannot be written; reading pauses until it can: %s", error)
            self._disk_failed = True
            return False
        self._losses.saved(lost)
        self.unsaved, self._disk_failed = [], False
        return True
