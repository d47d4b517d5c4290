"""Passes items to one exporter, and tracks which are durable and which are rejected."""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
import struct
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Ended, Gone, Item, NotNow, Refused, Row
from otel_rl.recorder.delivery.outbox import ItemPosition
from otel_rl.recorder.errors.texts import type_of
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.export import Exporter

ANEW_AFTER = 5
"""Failures in a row after which an exporter is rebuilt: some never work again once broken."""
MOST_IN_FLIGHT = 4096
"""Maximum number of items that an exporter has and that are not durable yet; they are kept in memory."""
_OF_THE_ENVIRONMENT = (OSError, ImportError, MemoryError, json.JSONDecodeError)
# Errors of the system are of the machine, and are retried; these two are of a name in the item, and come back each
# time.
_OF_A_NAME = (errno.ENAMETOOLONG, errno.EILSEQ)
_OF_THE_ITEM = (
    *(TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, RecursionError),
    *(NotImplementedError, struct.error, msgspec.MsgspecError),
    *(sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
)


class Offer(msgspec.Struct):
    """An item on its way."""

    item: Item
    behind: ItemPosition  # the place in the outbox after it
    kinds: list[str]  # its kind, and those of items behind it that the exporter does not get
    settled: bool = False  # whether the backend has it already, or it was rejected for good
    failures: int = 0  # number of failures of the exporter because of it


class Handover:
    """Passes items to an exporter in order, and rebuilds the exporter when it is broken.

    An item that the exporter cannot accept is retried with a new exporter, and then set aside. Errors that are not
    caused by an item are raised, and the items stay. `set_aside` is called with an item that is given up and the
    reason, `note` with messages for the log.
    """

    def __init__(
        self,
        build: Callable[[], Exporter],
        batch_size: int,
        set_aside: Callable[[Item, BaseException], None],
        note: Callable[[str], None],
    ) -> None:
        self.waiting: deque[Offer] = deque()  # items that the exporter has not been given
        self.given: deque[Offer] = deque()  # items that it was given and that are not known to be durable
        self.safe: ItemPosition | None = None  # the place after the last durable item, if a new one is durable
        self.ended: Ended | None = None  # how the last attempt before `safe` ended, if it has
        self.passed: Counter[str] = Counter()  # number of items before `safe`, by kind
        self.taken = 0  # number of accepted items
        self.refused = 0  # number of items that were rejected for good or set aside
        self.failures = 0  # because of an item
        self.causes: Counter[str] = Counter()  # number of errors by type, except failures of the environment
        self._build = build
        self._size = self._at_most = batch_size
        self._set_aside = set_aside
        self._note = note
        self._exporter: Exporter | None = None
        self._end_failed = False  # the last shutdown failed; a new exporter repeats it
        self._counted = 0  # the part of the count of `durable` that has left `given`
        self._failed_in_a_row = 0
        self._blamed = False  # an item was set aside, and none was accepted since

    @property
    def has_room(self) -> bool:
        """Whether the exporter may be given more."""
        return len(self.given) < MOST_IN_FLIGHT

    @property
    def is_open(self) -> bool:
        """Whether there is an exporter that is not shut down, or the last shutdown failed."""
        return self._exporter is not None or self._end_failed

    @property
    def knows_what_is_safe(self) -> bool:
        """Whether the exporter reports which items are durable; otherwise all accepted items are."""
        return hasattr(self._exporter, "durable")

    @property
    def waits(self) -> bool:
        """Whether items wait only for the trainer to make them durable, which a new exporter cannot change."""
        return bool(getattr(self._exporter, "waits", False))

    def skip(self, kind: str, behind: ItemPosition) -> None:
        """Pass over an item that the exporter does not get; it counts as durable together with the item before it."""
        if before := self.waiting or self.given:
            before[-1].behind = behind
            before[-1].kinds.append(kind)
        else:
            self.safe = behind
            self.passed[kind] += 1

    def give(self) -> None:
        """Pass the next items to the exporter, except those that its backend has already.

        Raises:
            Exception: It failed for a reason that is not in the items; they are still waiting.
        """
        with self._renewing():
            if self._exporter is None:
                self._exporter, self._counted = self._built()
            if part := self._next_part(self._exporter):
                self._export(self._exporter, part)

    @contextlib.contextmanager
    def _renewing(self) -> Iterator[None]:
        """Rebuild the exporter if a call of it fails, and so did the last ones."""
        try:
            yield
        except (NotNow, Gone):
            self._failed_in_a_row = 0
            raise
        except BaseException:
            self._failed_in_a_row += 1
            if self._failed_in_a_row % ANEW_AFTER == 0:
                self.renew()
            raise
        self._failed_in_a_row = 0

    def _built(self) -> tuple[Exporter, int]:
        """Return a new exporter, and the part of the count of its `durable` that is not among these items."""
        exporter = self._build()
        if self.ended is None or not getattr(exporter, "shows_end", False):
            return exporter, 0
        # A tracker shows a run that is opened again as running: a late item would undo the end that it has shown
        # (faults/test_ended.py).
        exporter.export([self.ended])
        return exporter, 1

    def note_durable(self) -> None:
        """Forget durable items, and move `safe` after them.

        Raises:
            Exception: The exporter cannot say which items are durable.
        """
        durable: Callable[[], int] | None = getattr(self._exporter, "durable", None)
        with self._renewing():
            count = len(self.given) if durable is None else durable() - self._counted
        while self.given and (self.given[0].settled or count > 0):
            entry = self.given.popleft()
            if not entry.settled:
                count -= 1
                self._counted += 1
            self._passed(entry)

    def shutdown(self) -> None:
        """Shut the exporter down, which makes all its items durable; a new one is built for later items.

        Raises:
            Exception: It failed, and can be retried. An exporter that knows what its backend has is rebuilt for that.
        """
        if self._exporter is None and self._end_failed:
            self._exporter, self._counted = self._built()
        if self._exporter is not None:
            try:
                self._exporter.shutdown()
            except BaseException as error:
                # Without `durable` and `holds`, another exporter would send again what this one has delivered
                # (faults/test_first_cause.py).
                if not isinstance(error, Gone) and _can_be_rebuilt(self._exporter):
                    self._exporter, self._end_failed = None, True
                    self._take_back(is_safe=False)
                raise
            self._exporter, self._end_failed = None, False
        while self.given:
            self._passed(self.given.popleft())

    def _passed(self, entry: Offer) -> None:
        self.safe = entry.behind
        self.passed.update(entry.kinds)
        if isinstance(entry.item, Ended):
            self.ended = entry.item
        # Otherwise an exporter that is rebuilt in the next attempt would show this one as failed
        # (faults/test_ended.py).
        elif isinstance(entry.item, Row) and self.ended is not None and entry.item.attempt > self.ended.attempt:
            self.ended = None

    def renew(self) -> None:
        """Shut the exporter down; a new one is built for the next items, and for those that are not durable yet."""
        # Taken away before its shutdown, which may raise: a broken exporter is never called again
        # (faults/test_poison_exporters.py).
        old, self._exporter = self._exporter, None
        if old is None:
            return
        closed = True
        try:
            old.shutdown()
        except BaseException as error:
            closed = False
            self._note(f"a broken exporter cannot be shut down: {describe(error)}")
        self._take_back(is_safe=closed and not hasattr(old, "holds"))  # the next exporter confirms what is durable

    def _take_back(self, *, is_safe: bool) -> None:
        """Let what the exporter was given wait for the next one, unless it is durable."""
        for entry in reversed(self.given):
            entry.settled = entry.settled or is_safe
            self.waiting.appendleft(entry)
        self.given.clear()

    def forget(self) -> None:
        """Give up the exporter, whose backend has lost its data, and all its items."""
        old, self._exporter, self._end_failed = self._exporter, None, False
        self.waiting.clear()
        self.given.clear()
        self.safe = self.ended = None
        self.passed.clear()
        if old is not None:
            with contextlib.suppress(BaseException):  # it can raise again that the data is gone
                old.shutdown()

    def _next_part(self, exporter: Exporter) -> list[Item]:
        """Skip items that are settled or at the backend already; return the next items up to the next such item."""
        holds: Callable[[Item], bool] = getattr(exporter, "holds", _holds_nothing)
        part: list[Item] = []
        while len(part) < min(self._at_most, len(self.waiting)):
            entry = self.waiting[len(part)]
            if not entry.settled and holds(entry.item):
                entry.settled = True
            if not entry.settled:
                part.append(entry.item)
            elif part:
                break
            else:
                self.given.append(self.waiting.popleft())
        return part

    def _export(self, exporter: Exporter, part: list[Item]) -> None:
        try:
            exporter.export(part)
        except Refused as error:
            done = _within(error.done, len(part), otherwise=len(part))
            refused = _within(error.count, done, otherwise=done)
            self.causes[error.error_type] += 1
            head = f"refused {refused} item{'s' * (refused != 1)} in the last request: " if refused else ""
            self._note(f"{head}{error}")
            self._leave(done, refused, settled=True)
        except NotNow as error:
            self._leave(_within(error.done, len(part) - 1, otherwise=0), 0, settled=False)
            raise
        except BaseException as error:
            if not is_of_the_item(error):
                raise
            self.failures += 1
            self.causes[error_type(error)] += 1
            # Halved until the item that fails is alone: its 99 neighbors in a batch arrive
            # (faults/test_poison_exporters.py).
            self._at_most = max(1, len(part) // 2)
            if len(part) == 1:
                self._suspect(self.waiting[0], error)
        else:
            self._at_most = min(self._size, 2 * self._at_most)
            self._blamed = False
            self._leave(len(part), 0, settled=False)

    def _leave(self, done: int, refused: int, *, settled: bool) -> None:
        self.taken += done - refused
        self.refused += refused
        for _ in range(done):
            entry = self.waiting.popleft()
            entry.settled = settled
            self.given.append(entry)

    def _suspect(self, entry: Offer, error: BaseException) -> None:
        """Set the item aside if a new exporter cannot accept it either; otherwise have one built."""
        entry.failures += 1
        # `_blamed`: a backend that takes nothing any more would otherwise get a new exporter for each item of the
        # backlog.
        if entry.failures > 1 or self._blamed:
            entry.settled = self._blamed = True
            self.refused += 1
            self._set_aside(entry.item, error)
        else:
            self.renew()


def _can_be_rebuilt(exporter: Exporter) -> bool:
    """Return whether the next exporter knows which items the backend has, after a shutdown that failed."""
    return hasattr(exporter, "durable") and hasattr(exporter, "holds")


def _holds_nothing(_: Item) -> bool:
    return False


def is_of_the_item(error: BaseException) -> bool:
    """Return whether an error is caused by an item, so that a retry would fail in the same way."""
    if isinstance(error, _OF_THE_ENVIRONMENT):
        return getattr(error, "errno", None) in _OF_A_NAME
    of_protobuf = any(cls.__module__ == "google.protobuf.message" for cls in type(error).__mro__)
    # A panic in a Rust library is a `BaseException`, so that handlers of `Exception` miss it; its
    # item would be retried forever.
    panic = not isinstance(error, Exception) and type(error).__module__.startswith("pyo3")
    return isinstance(error, _OF_THE_ITEM) or of_protobuf or panic


def describe(error: BaseException) -> str:
    """Return type and message of an error, without secrets: SDKs put the URL or the headers of a request there."""
    return redacted(str(error) if isinstance(error, NotNow | Gone) else f"{type(error).__name__}: {error}")


def error_type(error: BaseException) -> str:
    """Return the error's `error.type`."""
    return error.error_type if isinstance(error, NotNow | Gone) else type_of(error)


def _within(count: int | None, most: int, *, otherwise: int) -> int:
    """Return a count that an exporter returned, limited to the possible range."""
    return otherwise if count is None else max(0, min(count, most))
