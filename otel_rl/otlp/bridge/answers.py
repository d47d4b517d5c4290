"""Answers to OTLP requests that were not accepted: `google.rpc.Status`, over HTTP and over gRPC.

Source: the OTLP specification 1.x, "Failures" and "Throttling"; which statuses a client sends again is written there.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOBUF, JSON = "application/x-protobuf", "application/json"
RETRY_AFTER_S = 5
"""Seconds that a client is asked to wait before it sends the same request again."""

_MOST_CHARACTERS = 1000
_LONGEST_PAUSE_S = 300
logger = logging.getLogger(__name__)


class Kind(NamedTuple):
    """A class of refusals, as each protocol names it.

    Attributes:
        http: HTTP status.
        code: Number of the gRPC status.
        retryable: If true, the client sends the same request again.
    """

    http: int
    code: int
    retryable: bool = False


MALFORMED = Kind(400, 3)
UNAUTHENTICATED = Kind(401, 16)
NOT_FOUND = Kind(404, 5)
WRONG_METHOD = Kind(405, 12)
TOO_LARGE = Kind(413, 3)
UNSUPPORTED = Kind(415, 3)
FAILED = Kind(500, 13)
LATER = Kind(503, 14, retryable=True)


class Refusal(Exception):
    """A request that is not accepted.

    Args:
        kind: Which class of refusals it belongs to.
        text: What is wrong, and the fix.
        headers: Further HTTP headers of the answer.
        retry_after: Seconds that the client is asked to wait, if it is to send the request again.
    """

    def __init__(
        self, kind: Kind, text: str, headers: Mapping[str, str] | None = None, *, retry_after: float | None = None
    ) -> None:
        super().__init__(text[:_MOST_CHARACTERS])
        self.kind = kind
        self.headers = dict(headers or {})
        self._retry_after = RETRY_AFTER_S if retry_after is None else max(1, min(round(retry_after), _LONGEST_PAUSE_S))
        if kind.retryable:
            self.headers["Retry-After"] = str(self._retry_after)

    @property
    def status(self) -> Any:
        """The `google.rpc.Status`; with `RetryInfo` if the client is to send the request again."""
        status = status_pb2.Status(code=self.kind.code, message=str(self))
        if self.kind.retryable:
            info = error_details_pb2.RetryInfo()
            info.retry_delay.seconds = self._retry_after
            status.details.add().Pack(info)
        return status


def encoded(message: Any, content_type: str) -> bytes:
    """Return a message in the encoding of a content type."""
    return json_format.MessageToJson(message).encode() if content_type == JSON else bytes(message.SerializeToString())


class Refusals:
    """Counts what was refused, and logs the first, 10th, 100th … refusal of each class."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._records = 0

    @property
    def records(self) -> int:
        """How many records, spans and data points were refused."""
        return self._records

    def note(self, what: str, reason: str, records: int = 0, level: int = logging.WARNING) -> None:
        """Count a refusal.

        Args:
            what: Class of the refusal; each has its own count.
            reason: What was wrong with this one.
            records: How many records of an accepted request were refused.
            level: Level at which it is logged.
        """
        with self._lock:
            self._records += records
            self._requests[what] += 1
            count = self._requests[what]
        if str(count).strip("0") == "1":
            logger.log(level, "%s: %s (%d request(s) so far)", what, _on_one_line(reason), count)


def _on_one_line(text: str) -> str:
    """Return a text with escapes for line ends and terminal codes: clients must not write lines of the log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
