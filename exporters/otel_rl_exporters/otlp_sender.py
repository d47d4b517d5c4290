"""Sends batches of records by OTLP, and raises the exceptions of the exporter contract."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from otel_rl.export import NotNow, Refused
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl_exporters.otlp_transport import ServerAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl_exporters.otlp_transport import Transport

logger = log_of(__name__)
_LARGEST_REQUEST = 7 << 19
"""Bytes: a little less than the 4 MiB that a gRPC server takes by default."""
_SMALLEST_LIMIT = 1 << 12


class Sender:
    """Sends the records of items in requests that the server accepts, with at most `most` records each."""

    def __init__(self, transport: Transport, encode: Callable[[Sequence[Any]], Any], most: int = 1 << 30) -> None:
        self._transport = transport
        self._encode = encode
        self._most = most
        self._largest = _LARGEST_REQUEST
        self._hints = Occasional(logger)

    def send(self, records: Sequence[tuple[int, Any]], items: int) -> None:
        """Send records, each with the index of its item, in the order of the items; an item may have none, or several.

        Raises:
            Refused: The first items are settled, and the server refused some of them.
            NotNow: The first items were accepted. The others can be retried later.
        """
        waiting = deque([list(records)] if records else [])
        refused = 0
        reason: ServerAnswer | None = None
        while waiting:
            part = waiting.popleft()
            answer = self._offer(part)
            if answer is None:
                middle = len(part) // 2
                # `extendleft` turns the order around: the first half is sent first.
                waiting.extendleft((part[middle:], part[:middle]))
                continue
            settled = waiting[0][0][0] if waiting else items
            if answer.verdict == "later":
                raise NotNow(
                    answer.message, retry_after=answer.retry_after, done=part[0][0], error_type=answer.error_type
                )
            if answer.verdict != "taken" or answer.rejected:
                refused += len(part) if answer.verdict != "taken" else min(answer.rejected, len(part))
                reason = reason or answer
            elif answer.message:
                self._hints.warn(answer.message)
            # An item whose records are in two requests is settled by the second one: `done` must not count it before.
            if reason is not None and settled != part[-1][0]:
                raise Refused(reason.message, done=settled, count=refused, error_type=reason.error_type)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _offer(self, part: Sequence[tuple[int, Any]]) -> ServerAnswer | None:
        """Return the answer to a request with these records, or `None` if the request must be split."""
        if len(part) > self._most:
            return None
        try:
            request = self._encode([record for _, record in part])
        # The encoder raises for the whole batch, for example for a time beyond 64 bits: halving finds that one record,
        # and the others arrive (tests/faults/test_otlp_client.py).
        except Exception as error:
            text = f"cannot be encoded: {type(error).__name__}: {error}"
            return None if len(part) > 1 else ServerAnswer("never", text, type(error).__name__)
        size = request.ByteSize()
        if size > self._largest and len(part) > 1:
            return None
        answer = self._transport.send(request)
        if answer.verdict == "too_large" and len(part) > 1:
            # Not below this size: a server that answers 413 to everything must not turn each record into a request.
            self._largest = max(_SMALLEST_LIMIT, min(self._largest, size) // 2)
            return None
        return answer
