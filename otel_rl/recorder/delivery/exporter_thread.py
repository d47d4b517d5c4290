"""One thread for each exporter, with its own cursor in the outbox; exporters never wait for each other."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from otel_rl.export import Gone, NotNow
from otel_rl.recorder.delivery.failures import Failures
from otel_rl.recorder.delivery.handover import Handover, describe
from otel_rl.recorder.delivery.outbox import released_items
from otel_rl.recorder.delivery.progress import OutboxProgress, cursor_file, sampled
from otel_rl.recorder.delivery.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter, Item, Row, RunInfo
    from otel_rl.recorder.delivery.outbox_reader import OutboxView
    from otel_rl.recorder.journal.segments import Position

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


class ExporterThread(threading.Thread):
    """Delivers an outbox to one exporter, from its cursor on.

    The exporter is built, called and shut down in this thread. Failed exports are retried after the pause that the
    backend asks for, or one that doubles from 0.25 s to 30 s (± 25 %). After five failures in a row, except `NotNow`,
    the exporter is rebuilt. The cursor moves when the items are durable at the backend. An item that cannot be exported
    is put into the quarantine. A backend whose data is gone gets everything again that the outbox has. An exporter that
    does not ask for everything gets of each row what `usual` returns, and what was printed only with `logs`.
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
        *,
        logs: bool = False,
    ) -> None:
        # A daemon: an exporter that never returns must not keep the agent, or the trainer, from ending
        # (faults/test_collectors.py).
        super().__init__(name=f"otel-rl-{name}", daemon=True)
        self._outbox = outbox
        self.label = name
        self.cursor = cursor_file(name)
        self.everything = bool(getattr(factory, "everything", False))
        self._closing = threading.Event()
        self._resting = threading.Event()
        self._stopped = threading.Event()
        self._size = int(getattr(factory, "batch_size", 1))
        self._quarantine = Quarantine(cursors.parent / "quarantine.jsonl")
        self._failures = failures = Failures(name)
        self._handover = Handover(partial(factory, run, **options), self._size, self._set_aside, failures.note)
        wants = (lambda item: item) if self.everything else partial(sampled, usual=usual, logs=logs)
        self.progress = OutboxProgress(outbox, cursors / self.cursor, self._handover, failures, wants)
        self._complete_at = self._safe_at = self._looked_at = time.monotonic()
        self._began_call: float | None = None  # the start of a call that has not returned
        self._gone_pause = _FIRST_PAUSE_S

    @property
    def delivered(self) -> Position:
        """The place in the outbox before which everything is durable."""
        return self.progress.delivered

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
        return self._failures.count + self._handover.failures

    @property
    def last_error(self) -> str:
        """Text of the last failure."""
        return self._failures.last_error

    @property
    def causes(self) -> dict[str, int]:
        """Number of errors by type, including rejections."""
        return dict(self._failures.causes + self._handover.causes)

    @property
    def has_everything(self) -> bool:
        """Whether the exporter has accepted everything in the outbox; its shutdown makes the rest durable."""
        return self.progress.reached >= self._outbox.end and not self._handover.waiting

    @property
    def is_shut(self) -> bool:
        """Whether the exporter is shut down, with everything in the outbox delivered."""
        return self.delivered >= self._outbox.end and not (self.is_alive() and self._handover.is_open)

    @property
    def signs(self) -> object:
        """A value that changes when the exporter gets on; items that are given again do not count."""
        return self.progress.reached, self.delivered, self.is_shut

    def is_at_work(self, now: float) -> bool:
        """Return whether a call is in progress that may still work: none has failed since the cursor moved."""
        began = self._began_call
        longest = _LONGEST_START_S
        if self._handover.is_open:
            longest = _LONGEST_END_S if self._is_ending else _LONGEST_CALL_S
        return began is not None and not self._failures.first_cause and now - began < longest

    @property
    def backlog(self) -> int:
        """Number of items in the outbox that the exporter has not accepted yet."""
        return self.progress.unread + len(self._handover.waiting)

    def close_when_done(self) -> None:
        """Shut the exporter down as soon as it has everything; nothing is appended to the outbox any more."""
        self._closing.set()
        with self._outbox.grown:
            self._outbox.grown.notify_all()

    def shut_if_done(self, *, is_done: bool) -> None:
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
            self.progress.close()

    def _deliver(self) -> None:
        handover, progress = self._handover, self.progress
        while self._persist("read the outbox", partial(progress.read, self._size)):
            if handover.waiting and handover.has_room:
                self._persist("export", handover.give)
                self._advance()
            elif self._closing.is_set() and handover.waits and not handover.has_room:
                self._persist("shut down", handover.shutdown)  # the trainer has ended: a new exporter takes the rest
                self._move()
            elif self._is_ending and not handover.waiting and progress.is_read:
                if not self._persist("shut down", handover.shutdown, while_=self._is_still_ending):
                    continue  # a new exporter gets what is not durable
                self._move()
                progress.reached = progress.delivered = progress.position
                if self._closing.is_set():
                    return
                self._wait(1.0)
            else:
                self._advance()
                self._wait(_LOOK_S if handover.given else 1.0)

    def _is_still_ending(self) -> bool:
        return self._is_ending and self._handover.is_open and not self._handover.waiting

    @property
    def _is_ending(self) -> bool:
        return self._closing.is_set() or self._resting.is_set()

    def _wait(self, seconds: float) -> None:
        # `_is_called` is true in both cases: a wait for it would return at once, and the thread would use a whole CPU.
        if self._closing.is_set() or not self._handover.has_room:
            self._stopped.wait(_LOOK_S)
            return
        with self._outbox.grown:
            self._outbox.grown.wait_for(self._is_called, seconds)

    def _is_called(self) -> bool:
        is_to_shut = self._resting.is_set() and self._handover.is_open
        return not self.progress.is_read or self._closing.is_set() or is_to_shut

    def _advance(self) -> None:
        """Move the cursor to the last durable item; not for each item, if the exporter must query the backend."""
        now = time.monotonic()
        handover, progress, failures = self._handover, self.progress, self._failures
        if not handover.waiting:
            progress.reached = progress.position
        if handover.knows_what_is_safe and handover.given and now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        progress.keep_cursor()
        failed_before = failures.count
        moved = self._persist("see what is safe", handover.note_durable) and self._move()
        if moved or handover.waits or not handover.given or failures.count > failed_before:
            self._safe_at = time.monotonic()
        elif now - self._safe_at > _STUCK_S:
            self._safe_at = now
            failures.count += 1
            stuck = f"none of {len(handover.given)} item(s) is durable {_STUCK_S:.0f} s after the export"
            failures.first_cause = failures.first_cause or stuck
            failures.note(stuck)
            self._persist("replace the exporter", handover.renew)
        if not handover.given and not handover.waiting:
            progress.delivered = progress.position

    def _move(self) -> bool:
        """Move the cursor to the last durable item; return whether it moved."""
        if not self.progress.move():
            return False
        self._failures.first_cause = ""
        self._persist("move the cursor", self.progress.write_cursor)
        # After the file: what the status calls delivered may be removed, and a killed agent must not need it again.
        self.progress.delivered = self.progress.place.position
        return True

    def _set_aside(self, item: Item, error: BaseException) -> None:
        self._failures.last_error = f"{type(item).__name__} cannot be exported: {describe(error)}"
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
                self._failures.add(error)
                self._failures.note_failed(what, error)
                pause = _FIRST_PAUSE_S if self.taken != taken else pause
                # With jitter: the agents of a cluster that lost its server would otherwise all come back to it at the
                # same moments.
                self._stopped.wait(_asked(error) or pause * _dice.uniform(0.75, 1.25))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                if not while_():
                    return False
            else:
                return True
            finally:
                self._began_call = None
        return False

    def _begin_again(self, error: Gone) -> None:
        """Start over from the beginning of the outbox: the backend has lost its data."""
        self._failures.add(error)
        pause, self._gone_pause = self._gone_pause, min(2 * self._gone_pause, _LONGEST_PAUSE_S)
        if not self._outbox.path.is_dir():  # the whole run directory was removed, and must not be recreated in part
            self._failures.note(f"{error}, and so was {self._outbox.path}")
            self._stopped.wait(pause)
            return
        # The outbox keeps only what an exporter needs: what all of them had is gone, and the tracker stays without it.
        removed = released_items(self._outbox.path)
        kept = f"without the run's first {removed} item(s), which were removed" if removed else "from the run's start"
        self._failures.note(f"{error}; delivering again from the outbox, {kept}")
        self._handover.forget()
        self.progress.start_over()
        self._stopped.wait(pause)  # the data may be removed again and again


def _asked(error: BaseException) -> float:
    """Return the seconds that the backend asked to wait, with up to 10 % of jitter."""
    if not isinstance(error, NotNow) or error.retry_after is None:
        return 0.0
    return min(max(error.retry_after, 0.0), _LONGEST_ASKED_S) * _dice.uniform(1.0, 1.1)
