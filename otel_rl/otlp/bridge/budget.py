"""The memory limiter: how much memory requests may take, all of them together and those of one peer."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.otlp.bridge.answers import LATER, TOO_MUCH, Refusal

if TYPE_CHECKING:
    from types import TracebackType

MOST_BYTES = 512 << 20
"""The memory of all requests that are being received and handled, in bytes."""
MOST_OF_A_PEER = 256 << 20
"""The same for one address: the other half is left for others. One request needs at most 208 MiB."""
MOST_REQUESTS = 256
"""The largest number of requests that wait for a thread or are handled; half of them for one address."""


class Budget:
    """Memory and requests in use, in total and by peer; the peer is the address of the client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self.held = self.requests = 0

    def take(self, peer: str, size: int) -> None:
        """Take memory.

        Raises:
            Refusal: There is too little left, for all or for this peer; the client should retry later.
        """
        with self._lock:
            if self._bytes[peer] + size > MOST_OF_A_PEER:
                raise Refusal(TOO_MUCH, f"requests of {peer} take more than {MOST_OF_A_PEER} bytes of memory")
            if self.held + size > MOST_BYTES:
                raise Refusal(LATER, f"all requests together take more than {MOST_BYTES} bytes of memory")
            self._bytes[peer] += size
            self.held += size

    def release(self, peer: str, size: int) -> None:
        """Give memory back."""
        with self._lock:
            self.held -= size
            self._bytes[peer] -= size
            if not self._bytes[peer]:
                del self._bytes[peer]

    def begin(self, peer: str) -> None:
        """Count a request that waits or is handled.

        Raises:
            Refusal: There are too many, of all or of this peer; the client should retry later.
        """
        with self._lock:
            if self.requests >= MOST_REQUESTS:
                raise Refusal(LATER, "too many requests are waiting")
            if self._requests[peer] >= MOST_REQUESTS // 2:
                raise Refusal(TOO_MUCH, f"too many requests of {peer} are waiting")
            self._requests[peer] += 1
            self.requests += 1

    def end(self, peer: str) -> None:
        """Forget a request."""
        with self._lock:
            self.requests -= 1
            self._requests[peer] -= 1
            if not self._requests[peer]:
                del self._requests[peer]


class Held:
    """The memory of one request; it can be given back at any time, and later takes are counted again."""

    def __init__(self, budget: Budget, peer: str) -> None:
        self._budget, self.peer = budget, peer
        self._size = 0

    def take(self, size: int) -> None:
        """Take memory.

        Raises:
            Refusal: There is too little left.
        """
        self._budget.take(self.peer, size)
        self._size += size

    def release(self) -> None:
        """Give everything back."""
        size, self._size = self._size, 0
        if size:
            self._budget.release(self.peer, size)

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
