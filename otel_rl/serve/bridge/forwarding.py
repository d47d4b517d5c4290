"""The handling of requests, the same for HTTP and gRPC: items go into runs, other telemetry to a collector.

Other programs, such as inference servers, send all signals to one address.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from otel_rl.export import ENTRY_POINT_GROUP, READER_ENTRY_POINT_GROUP, NotNow, Refused
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.otlp.answers import LATER, Refusal, RefusalCounter, data_points, response
from otel_rl.recorder.otlp.connection import connection
from otel_rl.recorder.settings import head
from otel_rl.serve.bridge import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_rl.serve.bridge.runs import Runs

_AT_A_TIME = 4
"""Requests that are forwarded at once: a collector that hangs must not take the threads that receive records."""
_WAIT_S = 2.0
"""Seconds that a request waits until another one has been forwarded."""
_MOST_SENDERS = 10_000
_ADVICE = (
    "send the log event rl.step.metrics, or start the bridge with --to otlp_logs and "
    "OTEL_EXPORTER_OTLP_ENDPOINT, so that they are passed on"
)


class Forwarder:
    """A forwarder of requests to the run's collector; without one, requests are refused.

    A sender gets one partial success with the reason. Later records are only counted, because clients log each partial
    success.

    Args:
        ways: Functions that forward a request, by signal; they raise `NotNow` or `Refused`.
        refusals: The counter of refused records.
        advice: The fix in the message if there is no collector.
    """

    def __init__(self, ways: Mapping[str, Callable[[Any], None]], refusals: RefusalCounter, advice: str) -> None:
        self._ways = ways
        self._advice = advice
        self._refusals = refusals
        self._room = threading.BoundedSemaphore(_AT_A_TIME)
        self._answered: set[tuple[str, str]] = set()

    def forward(self, signal: str, request: Any) -> Any:
        """Forward a request that is entirely of other programs, and return the response.

        Raises:
            Refusal: It cannot be forwarded now; the client should retry.
        """
        count = data_points(request) if signal == "metrics" else _records(request)
        if signal not in self._ways:
            return self._refuse(signal, request, count)
        if not self._room.acquire(timeout=_WAIT_S):
            raise Refusal(LATER, f"too many requests for {signal} are being forwarded")
        try:
            self._ways[signal](request)
        except NotNow as error:
            raise Refusal(LATER, f"the collector of the run: {error}", retry_after=error.retry_after) from error
        except Refused as error:
            return response(signal, error.count or count, f"the collector of the run: {error}", self._refusals)
        finally:
            self._room.release()
        return response(signal, 0, "", self._refusals)

    def _refuse(self, signal: str, request: Any, count: int) -> Any:
        reason = f"{signal} of other programs belong to no step of a run: {self._advice}"
        sender = (signal, _service(signal, request))
        # The bound is for a stranger who sends another `service.name` with each request.
        if sender in self._answered or len(self._answered) > _MOST_SENDERS:
            self._refusals.note(f"refused {signal} of other programs", reason, count)
            return response(signal, 0, "", self._refusals)
        self._answered.add(sender)
        return response(signal, count, reason, self._refusals)


def to_collector(signals: Iterable[str], own: Iterable[str]) -> dict[str, Callable[[Any], None]]:
    """Return functions that forward requests of "METRICS" or "LOGS" to their collectors, by signal in lower case.

    A receiver must not forward to itself, at the addresses `own`.
    """
    outputs = {"METRICS": (READER_ENTRY_POINT_GROUP, "otlp"), "LOGS": (ENTRY_POINT_GROUP, "otlp_logs")}
    forwards: dict[str, Callable[[Any], None]] = {}
    for signal in signals:
        endpoint = connection(os.environ, "METRICS" if signal == "METRICS" else "LOGS").endpoint
        if not any(_is_same(address, endpoint) for address in own):
            forwards[signal.lower()] = plugins.find(*outputs[signal]).pass_on()
    return forwards


def _is_same(address: str, endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        return parts.port == head.parse(address).port and head.is_of_this_machine(parts.hostname or "")
    except ValueError:  # another URL scheme of gRPC
        return False


def _records(request: Any) -> int:
    return sum(len(scope.log_records) for of_resource in request.resource_logs for scope in of_resource.scope_logs)


def _service(signal: str, request: Any) -> str:
    resources = request.resource_metrics if signal == "metrics" else request.resource_logs
    pairs = (pair for of_resource in resources for pair in of_resource.resource.attributes)
    return next((str(pair.value.string_value) for pair in pairs if pair.key == "service.name"), "")


class IntoRuns:
    """A sink that stores the items of requests in the runs of a bridge, and forwards those of other programs."""

    def __init__(self, runs: Runs, ways: Mapping[str, Callable[[Any], None]] | None = None) -> None:
        self._runs = runs
        self.refusals = RefusalCounter()
        self._others = Forwarder(ways or {}, self.refusals, _ADVICE)

    def handle(self, signal: str, request: Any, peer: str = "") -> Any:
        """Store the items of a request, and return the response, with the refused records and the reasons.

        Raises:
            OSError: The items cannot be stored now; the client should retry.
            Refusal: The request cannot be forwarded now; the client should retry.
        """
        if signal == "metrics" or (signal == "logs" and decode.has_no_events(request)):
            return self._others.forward(signal, request)
        decoded = (decode.logs if signal == "logs" else decode.traces)(request, self._runs.directory)
        for run, items in decoded.runs.values():
            self._runs.store(run, items, peer)
        return response(signal, decoded.rejected.count, decoded.rejected.reason, self.refusals)
