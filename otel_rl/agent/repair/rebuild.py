"""Rebuilds damaged batches of the outbox from the journals, and from the checkpoints before and after the damage."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.agent.input.follow import Found, forwarded
from otel_rl.agent.steps.pipeline import Pipeline, Turn
from otel_rl.agent.steps.state import Checkpoint, State
from otel_rl.delivery.outbox import Batch, released_items
from otel_rl.delivery.outbox_reader import Made, Wanted, located, wanted, write_made
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.errors.sinks import log_of
from otel_rl.export import Event, Identity, Item, Row, Span, Table, identity
from otel_rl.journal import exit_status
from otel_rl.journal.ids import step_ids
from otel_rl.journal.reader import Reader
from otel_rl.journal.record_events import Lost, Revived
from otel_rl.journal.records import AnyRecord, Finished, Record
from otel_rl.journal.segments import START, Position, segment_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.delivery.outbox import Outbox
    from otel_rl.setup.directory import Manifest, RunDirectory

logger = log_of(__name__)
_LOOK_EVERY_S = 0.1
_WAIT_FOR_JOURNALS_S = 60.0
"""A trainer recreates a journal that was removed in its next call, at most once a second; a step may take a minute."""
_JOURNALS_EVERY_S = 1.0
_AT_ONCE = 500
_AFTER_ALL = 1 << 62
"""A time at which every step is overdue."""


class _Gap(msgspec.Struct):
    """A place in the outbox where batches are missing.

    Attributes:
        before: The checkpoint of the last intact batch before the gap; empty if there is none.
        count: The number of items before the gap; -1 if it is unknown.
        following: The next intact batch; `None` if there is none.
        end: The place after that batch.
        survivors: Identities of all items after the gap.
    """

    before: bytes = b""
    count: int = -1
    following: Batch | None = None
    end: Position = START
    survivors: set[Identity] = msgspec.field(default_factory=set)


class Rebuilder:
    """Answers readers of the outbox that found a damaged batch.

    Attributes:
        damaged: Number of items that could not be rebuilt.
        retained: Number of items that were removed for lack of space before they were delivered.
        answered: Number of answers.
    """

    def __init__(self, directory: RunDirectory, manifest: Manifest, outbox: Outbox) -> None:
        self._directory, self._manifest, self._outbox = directory, manifest, outbox
        self._looked_at = 0.0
        self._incomplete_since: float | None = None
        self._incomplete = False
        self.damaged = self.retained = self.answered = 0

    def look(self, *, are_trainers_alive: bool) -> None:
        """Answer the readers that wait."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        for place, asked in wanted(self._outbox.path):
            self._incomplete = False
            made = self._make_again(place, asked)
            if are_trainers_alive and self._waits_for_journals(now):
                self._looked_at = now + _JOURNALS_EVERY_S - _LOOK_EVERY_S
                continue
            logger.warning("the outbox is damaged at %08d.seg:%d; of the items there, %d are lost", *place, made.lost)
            with contextlib.suppress(OSError):  # asked again
                write_made(self._outbox.path, place, made)
                self.answered += 1
                if made.lost and place.segment and not segment_path(self._outbox.path, place.segment).exists():
                    self.retained += made.lost
                else:
                    self.damaged += made.lost

    def _waits_for_journals(self, now: float) -> bool:
        """Return whether a journal has fewer records than were read from it, but its trainer may write them again."""
        if not self._incomplete:
            self._incomplete_since = None
            return False
        if self._incomplete_since is None:
            self._incomplete_since = now
        return now - self._incomplete_since < _WAIT_FOR_JOURNALS_S

    def _make_again(self, place: Position, asked: Wanted) -> Made:
        gap = self._gap(place, asked)
        if gap.following is None:
            following, first, checkpoint = [], self._outbox.count, self._outbox.checkpoint
        else:
            following, first = gap.following.items, gap.following.before
            checkpoint = bytes(gap.following.checkpoint)
        missing = first - gap.count if gap.count >= 0 else 1
        again: list[Item] = []
        if missing > 0 and (gap.before or (gap.count == 0 and not released_items(self._outbox.path))):
            try:
                again = self._replayed(gap, msgspec.msgpack.decode(checkpoint, type=Checkpoint))
            except Exception:
                logger.exception("a damaged part of the outbox cannot be rebuilt")
        lost = max(0, missing - len(again))
        return Made([*again, *following], gap.end, first + len(following), lost, checkpoint)

    def _gap(self, place: Position, asked: Wanted) -> _Gap:
        gap = _Gap(count=0 if place == START else -1, end=self._outbox.end)
        for found in located(self._outbox.path, Batch):
            if found.end <= place:
                gap.before, gap.count = bytes(found.batch.checkpoint), found.batch.before + len(found.batch.items)
                continue
            if gap.following is None:
                gap.following, gap.end = found.batch, found.end
            gap.survivors.update(map(identity, found.batch.items))
        if asked.checkpoint and asked.count >= 0:
            gap.before, gap.count = asked.checkpoint, asked.count
        if gap.count < 0 and gap.following is not None and not released_items(self._outbox.path):
            gap.count = 0  # everything before the gap is gone
        return gap

    def _replayed(self, gap: _Gap, last: Checkpoint) -> list[Item]:
        """Return the items of the missing batches, made from the records between the two checkpoints."""
        first = msgspec.msgpack.decode(gap.before, type=Checkpoint) if gap.before else Checkpoint({}, State())
        pipeline = Pipeline(self._manifest, first.state, Quarantine())
        reducer = pipeline.reducer
        now = time.time_ns()
        if first.held_since is not None:
            for found in located(self._outbox.path, Batch, first.held_since):
                if found.batch.before >= gap.count:
                    break
                pipeline.traces.rollouts.restore(found.batch.held, found.batch.settled.items(), START, now)
        made: list[Item] = []
        for records in self._records(first, last):
            if self._manifest.sends:
                made += forwarded(records, reducer.state.forwarded)
            reduced = reducer.feed(records)
            made += pipeline.leaving(reduced.items, Turn(reduced, START, now))
        for attempt, steps in last.state.steps.items():  # steps that are open after the gap leave after it
            for number in steps:
                reducer.state.steps.get(attempt, {}).pop(number, None)
        reduced = reducer.tick(_AFTER_ALL)
        made += pipeline.leaving(reduced.items, Turn(reduced, START, now, near_end=last.held_since is None))
        lost_ranks = {item[3] for item in gap.survivors if item[:2] == ("event", semconv.EVENT_PROCESS_LOST)}
        unique: dict[Identity, Item] = {}
        for item in made:
            unique.setdefault(identity(item), item)
        return [
            item
            for who, item in unique.items()
            if who not in gap.survivors
            and not _is_of_open_step(item, last.state, self._manifest.id)
            and not _is_told(item, lost_ranks)
        ]

    def _records(self, first: Checkpoint, last: Checkpoint) -> Iterator[list[Found]]:
        """Yield the records between two checkpoints, of all journals in turns."""
        kinds = AnyRecord | Lost | Revived
        ends = {name: end for name, end in last.positions.items() if end > first.positions.get(name, START)}
        readers = {
            name: Reader[Record](self._directory.journals / name, kinds, first.positions.get(name, START))  # type: ignore[arg-type]
            for name in ends
        }
        over: dict[str, bool] = {}
        while readers:
            turn: list[Found] = []
            for name, reader in list(readers.items()):
                for _ in range(_AT_ONCE):
                    found = reader.read(1, final=True) if reader.position < ends[name] else []
                    self._incomplete |= not found and reader.position < ends[name]
                    if not found or reader.position > ends[name]:
                        reader.close()
                        del readers[name]
                        break
                    over[name] = isinstance(found[0], Finished | Lost)
                    turn.append(Found(name, found[0]))
            yield turn
        ended = {
            name: journal
            for name, journal in last.state.journals.items()
            if journal.over and not over.get(name) and not _was_over(first.state, name)
        }
        for name, journal in ended.items():
            end = exit_status.read(self._directory.journals / name)
            if end is not None or journal.lost:
                yield [Found(name, end or Lost(journal.last_time))]


def _was_over(state: State, name: str) -> bool:
    return name in state.journals and state.journals[name].over


def _is_of_open_step(item: Item, state: State, run_id: str) -> bool:
    if isinstance(item, Row | Table):
        return item.step in state.steps.get(item.attempt, {})
    if isinstance(item, Span):
        open_ = {f"{step_ids(run_id, attempt, n).trace_id:032x}" for attempt, of in state.steps.items() for n in of}
        return item.trace_id in open_
    return False


def _is_told(item: Item, lost_ranks: set[object]) -> bool:
    """Return whether an item is the loss of a process that another event reports already, at another time."""
    return isinstance(item, Event) and item.name == semconv.EVENT_PROCESS_LOST and item.rank in lost_ranks
