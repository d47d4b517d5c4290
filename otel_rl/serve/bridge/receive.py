"""The handling of requests, which is the same for HTTP and gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.recorder.otlp.answers import RefusalCounter, response
from otel_rl.serve.bridge import decode
from otel_rl.serve.bridge.forwarding import Forwarder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.serve.bridge.runs import Runs

_ADVICE = (
    "send the log event rl.step.metrics, or start the bridge with --to otlp_logs and "
    "OTEL_EXPORTER_OTLP_ENDPOINT, so that they are passed on"
)


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
