"""The same for `opentelemetry-instrument`: an instrumentor for each framework, under the standard entry point group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from otel_rl.integrations.instrument import instrument, uninstrument

if TYPE_CHECKING:
    from collections.abc import Collection


class _Instrumentor(BaseInstrumentor):  # type: ignore[misc] # OpenTelemetry's, which mypy need not find
    names: ClassVar[tuple[str, ...]] = ()

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: a framework is hooked into when it is imported, and its version is looked at then."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        instrument(*self.names)

    def _uninstrument(self, **kwargs: Any) -> None:
        uninstrument(*self.names)


class TrlInstrumentor(_Instrumentor):
    """Instruments TRL, and every trainer on `transformers.Trainer`."""

    names: ClassVar = ("transformers", "trl")


class AccelerateInstrumentor(_Instrumentor):
    """Instruments Accelerate."""

    names: ClassVar = ("accelerate",)


class VerlInstrumentor(_Instrumentor):
    """Instruments verl."""

    names: ClassVar = ("verl",)
