"""One thread for each destination, with its own cursor in the outbox: none ever waits for another."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from otel_rl.directory import write_atomically
from otel_rl.export import NotNow, Refused
from otel_rl.journal import Reader
from otel_rl.outbox import Batch, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter, Item, RunInfo
    from otel_rl.journal import Position

logger = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_LONGEST_ASKED_S = 3600.0
"""What a destination asks for is kept up to here: one that asks for a year is broken."""
_ANEW_AFTER = 5
_MOST_CAUSES = 64
"""Different texts that are counted one by one; a destination may put anything into its own."""
_dice = random.Random()  # a relay runs in the trainer, whose random numbers are not to be touched


class Source(Protocol):
    """An outbox as its readers see it.

    Attributes:
        path: The directory of its segments.
        end: Where it ends, as far as that is known.
        grown: Notified when it grew, or should be looked at.
    """

    path: Path
    end: Position
    grown: threading.Condition


class Destination(threading.Thread):
    """Delivers an outbox to one exporter, from its cursor on.

    The exporter is built, called and shut down here, in one thread. What it does not take is offered
    again, after the pause that it asks for, or one that doubles from 0.25 s to 30 s, more or less a quarter;
    and after five failures in a row that are no `NotNow` to an exporter built anew. The cursor moves when it
    has taken it.

    Attributes:
        delivered: How far in the outbox everything was taken.
        taken: How many items that were.
        failures: How often it failed and is tried again.
        causes: How often each type of error was met, refusals included.
        refused: How many items it will never take.
        last_error: What it said last.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[..., Exporter],
        options: Mapping[str, object],
        run: RunInfo,
        outbox: Source,
        cursors: Path,
    ) -> None:
        super().__init__(name=f"otel-rl-{name}", daemon=True)
        self._options = options
        self._run_info = run
        self._outbox = outbox
        self._cursor = cursors / f"{name.replace(':', '.')}.json"
        self._place = _read_cursor(self._cursor)
        self._reader = Reader(outbox.path, Batch, self._place.position)
        self._waiting: deque[tuple[Item, Place]] = deque()  # items, each with the place behind it
        self._closing = threading.Event()
        self._stopped = threading.Event()
        self._factory = factory
        self._size = int(getattr(factory, "batch_size", 1))
        self._exporter: Exporter | None = None
        self._in_a_row = 0
        self._complete_at = time.monotonic()
        self.label = name
        self.delivered: Position = self._place.position
        self.taken = self.failures = self.refused = self.lost_batches = 0
        self.causes: Counter[str] = Counter()
        self.last_error = ""
        self._noted: Counter[str] = Counter()

    def close_when_done(self) -> None:
        """Shut the exporter down as soon as it has everything; nothing is appended to the outbox any more."""
        self._closing.set()
        with self._outbox.grown:
            self._outbox.grown.notify_all()

    @property
    def has_everything(self) -> bool:
        """Whether all that is in the outbox was taken."""
        return self.delivered >= self._outbox.end

    def lag(self, now: float) -> float:
        """Return the seconds since it had everything, as far as calls of this could see; `now` is monotonic."""
        if self.has_everything:
            self._complete_at = now
        return now - self._complete_at

    def stop(self) -> None:
        """Give up what is not delivered; it stays in the outbox."""
        self._stopped.set()
        self.close_when_done()

    def run(self) -> None:
        """Deliver until told to stop, or to close and everything is delivered."""
        while self._persist("read the outbox", self._read):
            if self._waiting:
                self._deliver()
            elif self._closing.is_set() and self._reader.position >= self._outbox.end:
                if self._exporter is None or self._persist("shut down", self._exporter.shutdown):
                    return
            else:
                self.delivered = self._reader.position
                with self._outbox.grown:
                    self._outbox.grown.wait_for(self._is_called, 1)

    def _is_called(self) -> bool:
        return self._outbox.end > self._reader.position or self._closing.is_set()

    def _read(self) -> None:
        """Read until there is a full batch for the exporter, or nothing more: a slow one gets few and large ones."""
        while len(self._waiting) < self._size:
            start = self._reader.position
            batches = self._reader.read(1)
            if not batches:
                break
            items = batches[0].items
            behind = [Place(start, n) for n in range(1, len(items))] + [Place(self._reader.position, 0)]
            skipped = self._place.index if self._place.position == start else 0
            self._waiting.extend(list(zip(items, behind, strict=False))[skipped:])
        self.lost_batches = self._reader.lost_segments + self._reader.undecodable

    def _deliver(self) -> None:
        self._persist("export", self._export)

    def _export(self) -> None:
        """Offer a batch once, and settle what is decided of it."""
        items = [item for item, _ in islice(self._waiting, self._size)]
        done, refused = len(items), 0
        try:
            if self._exporter is None:
                self._exporter = self._factory(self._run_info, **self._options)
            self._exporter.export(items)
        except Refused as error:
            done = _within(error.done, len(items), otherwise=len(items))
            refused = _within(error.count, done, otherwise=done)
            self.causes[error.error_type] += 1
            self._note(f"refused {refused} item(s): {error}")
        except NotNow as error:
            self._settle(_within(error.done, len(items) - 1, otherwise=0), 0)
            self._in_a_row = 0
            raise
        except Exception:
            self._in_a_row += 1
            if self._in_a_row % _ANEW_AFTER == 0:  # some, once broken, never work again
                self._exporter = None
            raise
        self._in_a_row = 0
        self._settle(done, refused)

    def _settle(self, done: int, refused: int) -> None:
        """Move the cursor behind the first items that wait."""
        if done == 0:
            return
        for _ in range(done):
            _, self._place = self._waiting.popleft()
        self.taken += done - refused
        self.refused += refused
        self._persist("move the cursor", partial(write_atomically, self._cursor, msgspec.json.encode(self._place)))
        self.delivered = self._place.position

    def _persist(self, what: str, call: Callable[[], None]) -> bool:
        """Call until it does not raise; tell whether it came to that before being stopped."""
        pause = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            place = self._place
            try:
                call()
            except Exception as error:
                self.failures += 1
                self.causes[_error_type(error)] += 1
                self._note(f"{what} failed: {_text(error)}")
                pause = _FIRST_PAUSE_S if self._place != place else pause
                self._stopped.wait(_asked(error) or pause * _dice.uniform(0.75, 1.25))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return True
        return False

    def _note(self, text: str) -> None:
        """Keep what was said last, and log it the 1st, 10th, 100th time that it is said."""
        self.last_error = text
        key = text if text in self._noted or len(self._noted) < _MOST_CAUSES else ""
        self._noted[key] += 1
        if str(self._noted[key]).strip("0") == "1":
            logger.warning("%s: %s (%d so far)", self.label, text, self._noted[key])


def _within(said: int | None, most: int, *, otherwise: int) -> int:
    """Return a count that an exporter gave, as far as it can be."""
    return otherwise if said is None else max(0, min(said, most))


def _asked(error: Exception) -> float:
    """Return the seconds that the destination asked to wait, a little more so that not all come back at once."""
    if not isinstance(error, NotNow) or error.retry_after is None:
        return 0.0
    return min(max(error.retry_after, 0.0), _LONGEST_ASKED_S) * _dice.uniform(1.0, 1.1)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, NotNow) else f"{type(error).__name__}: {error}"


def _error_type(error: Exception) -> str:
    if isinstance(error, NotNow):
        return error.error_type
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _read_cursor(path: Path) -> Place:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, msgspec.DecodeError):
        return Place()
