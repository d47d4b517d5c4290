"""The entry point of `opentelemetry-instrument`: instruments every framework that the trainer imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from otel_rl.frameworks.instrument import instrument, uninstrument
from otel_rl.semconv.frameworks import hooked

if TYPE_CHECKING:
    from collections.abc import Collection


class AllFrameworks(BaseInstrumentor):  # type: ignore[misc] # mypy need not find OpenTelemetry's package
    """What `opentelemetry-instrument` starts; it does the same as `otel-rl run`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: a framework's version is checked when it is imported."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        instrument()

    def _uninstrument(self, **kwargs: Any) -> None:
        uninstrument(*hooked("framework"))
