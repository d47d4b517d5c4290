"""Responses to OTLP requests: partial success, and `google.rpc.Status` for refused ones, over HTTP and over gRPC.

Source: the OTLP specification 1.x, "Failures" and "Throttling", which lists the statuses that clients retry.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from otel_rl.recorder.errors.sinks import log_of, one_line
from otel_rl.recorder.otlp.signals import SERVICES

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOBUF, JSON = "application/x-protobuf", "application/json"
RETRY_AFTER_S = 5
"""The default retry delay that clients are given, in seconds."""

_MOST_CHARACTERS = 1000
_LONGEST_PAUSE_S = 300
logger = log_of(__name__)


class RefusalKind(NamedTuple):
    """A kind of refusal: its HTTP status, the number of its gRPC status, and whether clients retry the request."""

    http: int
    code: int
    retryable: bool = False


MALFORMED = RefusalKind(400, 3)
UNAUTHENTICATED = RefusalKind(401, 16)
FORBIDDEN = RefusalKind(403, 7)
NOT_FOUND = RefusalKind(404, 5)
WRONG_METHOD = RefusalKind(405, 12)
TOO_LARGE = RefusalKind(413, 3)
UNSUPPORTED = RefusalKind(415, 3)
MISDIRECTED = RefusalKind(421, 7)
TOO_MUCH = RefusalKind(429, 8, retryable=True)
FAILED = RefusalKind(500, 13)
LATER = RefusalKind(503, 14, retryable=True)


class Refusal(Exception):
    """The refusal of a request: the reason and the fix, further HTTP headers, and the retry delay in seconds."""

    def __init__(
        self,
        kind: RefusalKind,
        text: str,
        headers: Mapping[str, str] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(one_line(text[:_MOST_CHARACTERS]))
        self.kind = kind
        self.headers = dict(headers or {})
        self._retry_after = RETRY_AFTER_S if retry_after is None else max(1, min(round(retry_after), _LONGEST_PAUSE_S))
        if kind.retryable:
            self.headers["Retry-After"] = str(self._retry_after)

    def alone(self) -> Refusal:
        """Return it without the frames that raised it, which have the body."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)

    @property
    def status(self) -> Any:
        """The `google.rpc.Status`, with `RetryInfo` if the client should retry."""
        status = status_pb2.Status(code=self.kind.code, message=str(self))
        if self.kind.retryable:
            info = error_details_pb2.RetryInfo()
            info.retry_delay.seconds = self._retry_after
            status.details.add().Pack(info)
        return status


def too_large(most: int) -> Refusal:
    """Return the refusal of a body that has more than so many bytes, as sent or decompressed."""
    return Refusal(TOO_LARGE, f"the body has more than {most} bytes: send less at once")


def encoded(message: Any, content_type: str) -> bytes:
    """Encode a message for a content type."""
    return json_format.MessageToJson(message).encode() if content_type == JSON else bytes(message.SerializeToString())


class RefusalCounter:
    """A counter of refusals, which logs the 1st, 10th, 100th … refusal of each kind.

    Attributes:
        records: The number of refused records, spans and data points.
    """

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.records = 0

    def note(self, what: str, reason: str, records: int = 0) -> None:
        """Count a refusal of the kind `what`, and the refused records if the rest of the request was accepted."""
        with self._lock:
            self.records += records
            self._requests[what] += 1
            count = self._requests[what]
        if str(count).strip("0") == "1":
            logger.warning("%s: %s (%d request(s) so far)", what, reason, count)


def response(signal: str, rejected: int, reason: str, refusals: RefusalCounter) -> Any:
    """Return the response to a request of which `rejected` records, spans or data points were refused."""
    service = SERVICES[signal]
    answer = service.response()
    if rejected:
        refusals.note(f"refused {signal}", f"{rejected} refused: {reason}", rejected)
        setattr(answer.partial_success, service.rejected, rejected)
        answer.partial_success.error_message = reason
    return answer


def data_points(request: Any) -> int:
    """Return the number of data points in a request for metrics."""
    count = 0
    for of_resource in request.resource_metrics:
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                count += len(getattr(metric, kind).data_points) if kind else 0
    return count
