"""The connections of a server and the bodies on them, both limited: a new client takes the place of a slow one."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.iostream import IOStream

_PATIENCE_S = 1.0
"""The time in seconds for which a connection keeps its place, even if it sends nothing while others wait."""
_PROGRESS = 8 << 10
"""The size in bytes of a part of a body that shows that the client is sending it."""


_SMALL, _FOR_SMALL = 64 << 10, 4 << 20
"""The largest size of a small body, in bytes, and how much is kept for small bodies when large ones have the rest."""


class Visitor:
    """One connection: the address of its client, when the server began to wait for it, and the bytes it has sent."""

    __slots__ = ("held", "peer", "since", "stream")

    def __init__(self, stream: IOStream, peer: str) -> None:
        self.stream, self.peer, self.since, self.held = stream, peer, 0.0, 0


class Visitors:
    """All connections of a server; used by its thread alone.

    Args:
        most: The largest number of connections; one address may have a quarter of them.
        most_held: The largest size in bytes of all bodies that are being received or handled.
        clock: The time in seconds.

    Attributes:
        held: The size of all these bodies, in bytes.
    """

    def __init__(self, most: int, most_held: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._most_each, self._most_held, self._clock = most, max(1, most // 4), most_held, clock
        self._of: dict[IOStream, Visitor] = {}
        self._waited_for: dict[Visitor, None] = {}  # the one for whom the server has waited longest comes first
        self._count: Counter[str] = Counter()
        self.held = 0

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._of)

    def __getitem__(self, stream: IOStream) -> Visitor:
        """Return the visitor of a connection, which may have been closed meanwhile."""
        return self._of.get(stream) or Visitor(stream, "")

    def enter(self, stream: IOStream, peer: str) -> bool:
        """Admit a connection; return false if there is no place."""
        if self._count[peer] >= self._most_each and not self._send_away(lambda other: other.peer == peer):
            return False
        if len(self._of) >= self._most and not self._send_away(lambda _: True):
            return False
        self._of[stream] = visitor = Visitor(stream, peer)
        self._wait_for(visitor)
        self._count[peer] += 1
        return True

    def leave(self, visitor: Visitor) -> None:
        """Forget a connection that is closed."""
        if self._of.pop(visitor.stream, None) is not None:
            self._count[visitor.peer] -= 1
            if not self._count[visitor.peer]:
                del self._count[visitor.peer]
        self._waited_for.pop(visitor, None)
        self.drop(visitor)

    def hold(self, visitor: Visitor, size: int) -> bool:
        """Make room for more bytes of a body; return false if there is none."""
        most = self._most_held if visitor.held + size <= _SMALL else self._most_held - _FOR_SMALL
        while self.held + size > most:
            if not self._send_away(lambda other: other.held > 0 and other is not visitor):
                return False
        self.held += size
        visitor.held += size
        if size >= _PROGRESS and self._waited_for.pop(visitor, self) is None:
            self._wait_for(visitor)
        return True

    def drop(self, visitor: Visitor) -> None:
        """Free the bytes of a body that is not handled."""
        self.held -= visitor.held
        visitor.held = 0

    def answer(self, visitor: Visitor) -> int:
        """Keep a connection while its request is handled; return the size of the body, to be freed by `handled`."""
        self._waited_for.pop(visitor, None)
        size, visitor.held = visitor.held, 0
        return size

    def handled(self, visitor: Visitor, size: int) -> None:
        """Free a body, also if its connection was closed, and wait for the next request."""
        self.held -= size
        if visitor.stream in self._of:
            self._wait_for(visitor)

    def _wait_for(self, visitor: Visitor) -> None:
        visitor.since = self._clock()
        self._waited_for[visitor] = None

    def _send_away(self, is_meant: Callable[[Visitor], bool]) -> bool:
        """Close the connection for which the server has waited longest, if that was too long."""
        now = self._clock()
        for visitor in self._waited_for:
            if now - visitor.since < _PATIENCE_S:
                return False
            if is_meant(visitor):
                self.leave(visitor)
                visitor.stream.close()
                return True
        return False
