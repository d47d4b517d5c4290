"""One thread for each destination, with its own cursor in the outbox: none ever waits for another."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from otel_rl.directory import write_atomically
from otel_rl.export import Refused
from otel_rl.journal import Reader
from otel_rl.outbox import Batch, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter, Item, RunInfo
    from otel_rl.journal import Position

logger = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_ANEW_AFTER = 5


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
    again, after a pause that doubles from 0.25 s to 30 s, and after five failures in a row to an exporter
    built anew; the cursor moves when it has taken it.

    Attributes:
        delivered: How far in the outbox everything was taken.
        taken: How many items that were.
        failures: How often it failed.
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
        self.last_error = ""

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
        part = list(islice(self._waiting, self._size))
        if self._persist("export", partial(self._export, [item for item, _ in part])):
            for _ in part:
                self._waiting.popleft()
            self._place = part[-1][1]
            self._persist("move the cursor", partial(write_atomically, self._cursor, msgspec.json.encode(self._place)))
            self.delivered = self._place.position

    def _export(self, items: list[Item]) -> None:
        try:
            if self._exporter is None:
                self._exporter = self._factory(self._run_info, **self._options)
            self._exporter.export(items)
        except Refused as error:
            self.refused += len(items)
            self._note(f"refused {len(items)} item(s): {error}", self.refused)
        except Exception:
            self._in_a_row += 1
            if self._in_a_row % _ANEW_AFTER == 0:  # some, once broken, never work again
                self._exporter = None
            raise
        else:
            self.taken += len(items)
        self._in_a_row = 0

    def _persist(self, what: str, call: Callable[[], None]) -> bool:
        """Call until it does not raise; tell whether it came to that before being stopped."""
        pause = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            try:
                call()
            except Exception as error:
                self.failures += 1
                self._note(f"{what} failed: {type(error).__name__}: {error}", self.failures)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return True
        return False

    def _note(self, text: str, count: int) -> None:
        self.last_error = text
        if str(count).strip("0") == "1":
            logger.warning("%s: %s (%d so far)", self.label, text, count)


def _read_cursor(path: Path) -> Place:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, msgspec.DecodeError):
        return Place()
