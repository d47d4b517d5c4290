"""One thread for each exporter, with its own cursor in the outbox; exporters never wait for each other."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from otel_rl.delivery.fixes import with_fix
from otel_rl.delivery.handover import Handover, Offer, describe, error_type
from otel_rl.delivery.outbox import ItemPosition, released_items
from otel_rl.delivery.outbox_reader import OutboxReader
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of
from otel_rl.export import Ended, Gone, NotNow, Row, Span, Trajectory
from otel_rl.journal.atomic_files import read_json, write_atomically
from otel_rl.journal.modes import make_directory
from otel_rl.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.delivery.outbox_reader import OutboxView
    from otel_rl.export import Exporter, Item, RunInfo

logger = log_of(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_LONGEST_ASKED_S = 3600.0
"""Maximum Retry-After in seconds: a backend that asks for more is broken."""
_LOOK_S = 0.1
"""Seconds between two checks of which items are durable."""
_STUCK_S = 60.0
"""Seconds after which an exporter is replaced if none of its items becomes durable."""
_LONGEST_START_S, _LONGEST_CALL_S, _LONGEST_END_S = 900.0, 30.0, 120.0
"""Seconds for which a call counts as progress, so that one that hangs does not keep the agent. On slow file systems,
trackers take minutes to start; W&B takes up to 80 s to finish a run."""
_WORK = ("export", "shut down")
_dice = random.Random()  # a relay runs in the trainer, and must not use its random numbers


class Cursor(msgspec.Struct, frozen=True):
    """The position of an exporter.

    Attributes:
        position: The batch in the outbox.
        index: The item in the batch.
        outbox: The identity of the outbox.
        ended: How the run had ended there.
        passed: Number of items before it, by kind.
        has: Number of items that the exporter has already, by kind: it is not given those behind the position again.
    """

    position: Position = START
    index: int = 0
    outbox: str = ""
    ended: Ended | None = None
    passed: dict[str, int] = {}
    has: dict[str, int] = {}


class ExporterThread(threading.Thread):
    """Delivers an outbox to one exporter, from its cursor on.

    The exporter is built, called and shut down in this thread. Failed exports are retried after the pause that the
    backend asks for, or one that doubles from 0.25 s to 30 s (± 25 %). After five failures in a row, except `NotNow`,
    the exporter is rebuilt. The cursor moves when the items are durable at the backend. An item that cannot be exported
    is put into the quarantine. A backend whose data is gone gets everything again that the outbox has. An exporter that
    does not ask for everything gets of each row what `usual` returns.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[..., Exporter],
        options: Mapping[str, object],
        run: RunInfo,
        outbox: OutboxView,
        cursors: Path,
        usual: Callable[[Row], Row] | None = None,
    ) -> None:
        super().__init__(name=f"otel-rl-{name}", daemon=True)
        self._outbox = outbox
        self._path = cursors / cursor_file(name)
        self.cursor = self._path.name  # the file of its cursor
        self._closing = threading.Event()
        self._resting = threading.Event()
        self._stopped = threading.Event()
        self._size = int(getattr(factory, "batch_size", 1))
        self.everything = bool(getattr(factory, "everything", False))
        self._usual = None if self.everything else usual
        self._quarantine = Quarantine(cursors.parent / "quarantine.jsonl")
        self._handover = Handover(partial(factory, run, **options), self._size, self._set_aside, self._note)
        self._complete_at = self._safe_at = self._looked_at = time.monotonic()
        self.label = name
        self.last_error = ""
        self._failures = 0
        self._first_cause = ""  # the first failure since the cursor moved
        self._began_call: float | None = None  # the start of a call that has not returned
        self.damaged = self.retained = 0  # numbers of items that the outbox does not have any more
        self._gone_pause = _FIRST_PAUSE_S
        self._causes: Counter[str] = Counter()
        self._warnings = Occasional(logger)
        self._has: dict[str, int] = {}
        self._begin = self._place = self._read_cursor()
        self._read_so_far = Counter(self._handover.passed)
        self._keep_cursor()
        self._reader = OutboxReader(outbox, self._place)
        self._reached: Position = self._place.position
        self.delivered: Position = self._place.position  # everything before it is durable

    @property
    def taken(self) -> int:
        """Number of items that the exporter has accepted."""
        return self._handover.taken

    @property
    def passed(self) -> dict[str, int]:
        """Number of items that are durable, refused or not for this exporter, by kind, since the run began."""
        return dict(self._handover.passed)

    @property
    def refused(self) -> int:
        """Number of items that it has rejected for good."""
        return self._handover.refused

    @property
    def failures(self) -> int:
        """Number of failures that were retried."""
        return self._failures + self._handover.failures

    @property
    def causes(self) -> dict[str, int]:
        """Number of errors by type, including rejections."""
        return dict(self._causes + self._handover.causes)

    @property
    def has_everything(self) -> bool:
        """Whether the exporter has accepted everything in the outbox; its shutdown makes the rest durable."""
        return self._reached >= self._outbox.end and not self._handover.waiting

    @property
    def is_shut(self) -> bool:
        """Whether the exporter is shut down, with everything in the outbox delivered."""
        return self.delivered >= self._outbox.end and not (self.is_alive() and self._handover.is_open)

    @property
    def progress(self) -> object:
        """A value that changes when the exporter gets on; items that are given again do not count."""
        return self._reached, self.delivered, self.is_shut

    def is_at_work(self, now: float) -> bool:
        """Return whether a call is in progress that may still work: none has failed since the cursor moved."""
        began = self._began_call
        longest = _LONGEST_START_S
        if self._handover.is_open:
            longest = _LONGEST_END_S if self._is_ending else _LONGEST_CALL_S
        return began is not None and not self._first_cause and now - began < longest

    @property
    def backlog(self) -> int:
        """Number of items in the outbox that the exporter has not accepted yet."""
        return max(0, self._outbox.count - self._reader.count) + len(self._handover.waiting)

    def close_when_done(self) -> None:
        """Shut the exporter down as soon as it has everything; nothing is appended to the outbox any more."""
        self._closing.set()
        with self._outbox.grown:
            self._outbox.grown.notify_all()

    def rest(self, *, is_done: bool) -> None:
        """Shut the exporter down when it has everything, if nothing more is expected; later items build a new one."""
        if is_done != self._resting.is_set():
            self._resting.set() if is_done else self._resting.clear()
            with self._outbox.grown:
                self._outbox.grown.notify_all()

    def lag(self, now: float) -> float:
        """Return the seconds since a call of this last saw it without a backlog; `now` is monotonic."""
        if self.has_everything:
            self._complete_at = now
        return now - self._complete_at

    def stop(self) -> None:
        """Stop without delivering the backlog, which stays in the outbox."""
        self._stopped.set()
        self.close_when_done()

    def run(self) -> None:
        """Deliver until `stop` is called, or until `close_when_done` is called and everything is delivered."""
        try:
            self._deliver()
        finally:
            self._reader.close()

    def _deliver(self) -> None:
        while self._persist("read the outbox", self._read):
            handover = self._handover
            if handover.waiting and handover.has_room:
                self._persist("export", handover.give)
                self._look()
            elif self._closing.is_set() and handover.waits and not handover.has_room:
                self._persist("shut down", handover.shutdown)  # the trainer has ended: a new exporter takes the rest
                self._move()
            elif self._is_ending and not handover.waiting and self._reader.position >= self._outbox.end:
                if not self._persist("shut down", handover.shutdown, while_=self._is_still_ending):
                    continue  # a new exporter gets what is not durable
                self._move()
                self._reached = self.delivered = self._reader.position
                if self._closing.is_set():
                    return
                self._wait(1.0)
            else:
                self._look()
                self._wait(_LOOK_S if handover.given else 1.0)

    def _is_still_ending(self) -> bool:
        return self._is_ending and self._handover.is_open and not self._handover.waiting

    @property
    def _is_ending(self) -> bool:
        return self._closing.is_set() or self._resting.is_set()

    def _wait(self, seconds: float) -> None:
        if self._closing.is_set() or not self._handover.has_room:
            self._stopped.wait(_LOOK_S)
            return
        with self._outbox.grown:
            self._outbox.grown.wait_for(self._is_called, seconds)

    def _is_called(self) -> bool:
        is_to_shut = self._resting.is_set() and self._handover.is_open
        return self._outbox.end > self._reader.position or self._closing.is_set() or is_to_shut

    def _read(self) -> None:
        """Read until there is a full batch, or nothing more: a slow exporter gets few and large batches."""
        while len(self._handover.waiting) < self._size:
            found = self._reader.read()
            if found is None:
                break
            for item, behind in found:
                kind = type(item).__name__
                self._read_so_far[kind] += 1
                is_not_sampled = isinstance(item, Span | Trajectory) and not item.sampled and not self.everything
                if is_not_sampled or self._read_so_far[kind] <= self._has.get(kind, 0):
                    self._handover.skip(kind, behind)
                else:
                    if self._usual is not None and isinstance(item, Row):
                        item = self._usual(item)  # noqa: PLW2901
                    self._handover.waiting.append(Offer(item, behind, [kind]))
        self._count_missing()

    def _count_missing(self) -> None:
        reader = self._reader
        if missing := reader.damaged + reader.retained:
            self.damaged, self.retained = self.damaged + reader.damaged, self.retained + reader.retained
            reader.damaged = reader.retained = 0
            self._note(f"{missing} item(s) are missing in the outbox before {self._reader.position}")

    def _look(self) -> None:
        """Move the cursor to the last durable item; not for each item, if the exporter must query the backend."""
        now = time.monotonic()
        handover = self._handover
        if not handover.waiting:
            self._reached = self._reader.position
        if handover.knows_what_is_safe and handover.given and now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        self._keep_cursor()
        failures = self._failures
        moved = self._persist("see what is safe", handover.settle) and self._move()
        if moved or handover.waits or not handover.given or self._failures > failures:
            self._safe_at = time.monotonic()
        elif now - self._safe_at > _STUCK_S:
            self._safe_at = now
            self._failures += 1
            stuck = f"none of {len(handover.given)} item(s) is durable {_STUCK_S:.0f} s after the export"
            self._first_cause = self._first_cause or stuck
            self._note(stuck)
            self._persist("replace the exporter", handover.renew)
        if not handover.given and not handover.waiting:
            self.delivered = self._reader.position

    def _move(self) -> bool:
        """Move the cursor to the last durable item; return whether it moved."""
        place = self._handover.safe
        if place is None or place == self._place:
            return False
        self._place = place
        self._first_cause = ""
        self._persist("move the cursor", self._write_cursor)
        self.delivered = place.position
        return True

    def _keep_cursor(self) -> None:
        """Write the cursor if it does not exist: without it, items may be removed that the exporter needs."""
        if not self._path.exists():
            with contextlib.suppress(OSError):
                self._write_cursor()

    def _write_cursor(self) -> None:
        place = self._place
        handover = self._handover
        cursor = Cursor(place.position, place.index, self._outbox.id, handover.ended, self.passed, self._has)
        make_directory(self._path.parent)
        write_atomically(self._path, msgspec.json.encode(cursor))

    def _read_cursor(self) -> ItemPosition:
        cursor = read_json(self._path, Cursor)
        if cursor is None:
            return ItemPosition()
        ends = self._outbox.end
        if cursor.outbox in ("", self._outbox.id) and (ends == START or cursor.position <= ends):
            self._handover.ended, self._has = cursor.ended, cursor.has
            self._handover.passed.update(cursor.passed)
            return ItemPosition(cursor.position, cursor.index)
        self._failures += 1
        self._note("the cursor belongs to another outbox, which is gone; delivering this one from its beginning")
        return ItemPosition()

    def _set_aside(self, item: Item, error: BaseException) -> None:
        self.last_error = f"{type(item).__name__} cannot be exported: {describe(error)}"
        self._quarantine.put("export", self.label, item, error)

    def _persist(self, what: str, call: Callable[[], None], *, while_: Callable[[], bool] = lambda: True) -> bool:
        """Call until it does not raise, while `while_` is true; return false if the thread stops or starts over."""
        pause = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            taken = self.taken
            self._began_call = time.monotonic() if what in _WORK else None
            try:
                call()
            except Gone as error:
                self._begin_again(error)
                return False
            except BaseException as error:  # an exporter may even call sys.exit()
                self._count(error)
                self._note_failure(what, describe(error))
                pause = _FIRST_PAUSE_S if self.taken != taken else pause
                self._stopped.wait(_asked(error) or pause * _dice.uniform(0.75, 1.25))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                if not while_():
                    return False
            else:
                return True
            finally:
                self._began_call = None
        return False

    def _note_failure(self, what: str, cause: str) -> None:
        """Note a failure, and the first one since the cursor moved: the others may only follow from it."""
        first = self._first_cause = self._first_cause or cause
        since = "" if cause == first else f"; the first failure was: {with_fix(first)}"
        self._note(f"{what} failed: {cause if since else with_fix(cause)}{since}")

    def _begin_again(self, error: Gone) -> None:
        """Start over from the beginning of the outbox: the backend has lost its data."""
        self._count(error)
        pause, self._gone_pause = self._gone_pause, min(2 * self._gone_pause, _LONGEST_PAUSE_S)
        if not self._outbox.path.is_dir():  # the whole run directory was removed, and must not be recreated in part
            self._note(f"{error}, and so was {self._outbox.path}")
            self._stopped.wait(pause)
            return
        removed = released_items(self._outbox.path)
        kept = f"without the run's first {removed} item(s), which were removed" if removed else "from the run's start"
        self._note(f"{error}; delivering again from the outbox, {kept}")
        self._handover.forget()
        self._has = {}
        self._read_so_far.clear()
        self._reader.close()
        self._begin = self._place = ItemPosition()
        self._reader = OutboxReader(self._outbox, self._place)
        self._reached = self.delivered = START
        with contextlib.suppress(OSError):  # a full disk: the file has the old position until the cursor moves
            write_atomically(self._path, msgspec.json.encode(Cursor(outbox=self._outbox.id)))
        self._stopped.wait(pause)  # the data may be removed again and again

    def _count(self, error: BaseException) -> None:
        self._failures += 1
        self._causes[error_type(error)] += 1

    def _note(self, text: str) -> None:
        self.last_error = text
        self._warnings.warn(f"{self.label}: {text}")


def cursor_file(exporter: str) -> str:
    """Return the name of the file with the cursor of an exporter."""
    return f"{exporter.replace(':', '.')}.json"


def _asked(error: BaseException) -> float:
    """Return the seconds that the backend asked to wait, with up to 10 % of jitter."""
    if not isinstance(error, NotNow) or error.retry_after is None:
        return 0.0
    return min(max(error.retry_after, 0.0), _LONGEST_ASKED_S) * _dice.uniform(1.0, 1.1)
