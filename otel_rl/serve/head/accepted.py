"""Items of other programs whose senders wait until the items are in the outbox."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.export import Item

_MOST_ITEMS = 50_000
"""The largest number of items that wait, in addition to those of one request; half of them of one peer."""
_SAVE_WITHIN_S = 10.0
"""Seconds that a sender waits until its items are in the outbox: as long as OTLP's clients wait by default."""


class _AcceptedRequest:
    """The items of one request, and whether its sender can be answered."""

    def __init__(self, items: list[Item], peer: str) -> None:
        self.items, self.peer = items, peer
        self.is_answered = threading.Event()
        self.are_saved = False


class AcceptedItems:
    """Passes items from the threads that answer requests to the loop of the agent, while it is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_AcceptedRequest] = []
        self._taken: list[_AcceptedRequest] = []
        self.is_open = True

    def put(self, items: list[Item], peer: str = "") -> None:
        """Add items of the client at the address `peer`, and wait until they are in the outbox.

        Raises:
            OSError: They cannot be accepted or saved now; the sender must send them again.
        """
        request = _AcceptedRequest(items, peer)
        with self._lock:
            if not self.is_open:
                raise OSError("the run has ended")
            waiting = (*self._waiting, *self._taken)
            own = sum(len(other.items) for other in waiting if other.peer == peer)
            if own > _MOST_ITEMS // 2 or sum(len(other.items) for other in waiting) > _MOST_ITEMS:
                raise OSError("too many spans are waiting")
            self._waiting.append(request)
        # Without the lock: the loop of the agent needs it to take the items.
        request.is_answered.wait(_SAVE_WITHIN_S)
        # The loop may still save them: the sender repeats them then, which is better than a loss.
        if not request.are_saved:
            raise OSError("the outbox could not be written in time")

    def pop(self) -> list[Item]:
        """Return the items that were added since the last call; their senders wait until `answer_senders` is called."""
        with self._lock:
            self._taken += self._waiting
            items = [item for request in self._waiting for item in request.items]
            self._waiting = []
        return items

    def answer_senders(self) -> None:
        """Record that all items that were taken are in the outbox."""
        for request in self._taken:
            request.are_saved = True
            request.is_answered.set()
        self._taken = []

    def close(self) -> None:
        """Accept nothing more, and answer all senders."""
        with self._lock:
            self.is_open = False
            for request in (*self._waiting, *self._taken):
                request.is_answered.set()
