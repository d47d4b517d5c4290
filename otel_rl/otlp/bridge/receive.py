"""What is done with a request, whichever way it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.otlp.bridge import decode
from otel_rl.otlp.bridge.answers import Refusals
from otel_rl.otlp.bridge.others import Others
from otel_rl.otlp.bridge.responses import response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.otlp.bridge.runs import Runs

_ADVICE = (
    "send the log event rl.step.metrics, or start the bridge with --exporter otlp_logs and "
    "OTEL_EXPORTER_OTLP_ENDPOINT, so that they are passed on"
)


class IntoRuns:
    """Accepts requests for the runs of a bridge.

    Args:
        runs: The runs.
        ways: What passes metrics and logs of other programs on, by signal.

    Attributes:
        refusals: Counts what was refused.
    """

    def __init__(self, runs: Runs, ways: Mapping[str, Callable[[Any], None]] | None = None) -> None:
        self._runs = runs
        self.refusals = Refusals()
        self._others = Others(ways or {}, self.refusals, _ADVICE)

    def take_request(self, signal: str, request: Any) -> Any:
        """Keep what a request holds, and return the response to it: what was refused, and why.

        Raises:
            OSError: It cannot be kept now; the client is to send it again.
            Refusal: The same, of what is passed on.
        """
        if signal == "metrics" or (signal == "logs" and decode.has_no_events(request)):
            return self._others.take(signal, request)
        kinds = decode.logs if signal == "logs" else decode.traces
        found = kinds(request, self._runs.directory)
        for run, items in found.runs:
            self._runs.take(run, items)
        return response(signal, found.rejected, found.reason, self.refusals)
