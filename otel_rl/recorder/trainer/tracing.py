"""A tracer provider for instrumentation libraries, whose spans go to the journal too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.util._decorator import _agnosticcontextmanager  # the API's own signature asks for it

from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.errors.guard import Guard
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.trainer.phase import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Link
    from opentelemetry.util import types

    from otel_rl.recorder.trainer.step import Steps


_OPTIONS = (
    *("context", "kind", "attributes", "links", "start_time"),
    *("record_exception", "set_status_on_exception", "end_on_exit"),
)
"""The arguments of a span in the order of OpenTelemetry's API."""


class RunTracer(trace.Tracer):
    """A tracer of one instrumentation library."""

    def __init__(self, steps: Steps, scope: tuple[str, str]) -> None:
        self._steps = steps
        self._scope = scope

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: types.Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """Start a span under the current one."""
        recorder = self._steps.recorder
        given = clean_attributes(attributes, recorder.refuse)
        span = Phase(self._steps, text_of(name), {"otel.scope.name": self._scope[0], **given})
        span._span_kind = kind if isinstance(kind, SpanKind) else SpanKind.INTERNAL
        span._scope = self._scope
        span._begins_on_entry = False
        with Guard(partial(recorder.refuse_error, "start_span")):  # links may be invalid
            for link in links or ():
                span.add_link(link.context, link.attributes)
        return span.begin(None if context is None else trace.get_current_span(context), start_time)

    @_agnosticcontextmanager
    def start_as_current_span(
        self,
        name: str,
        *given: Any,  # the API allows any argument without its name
        **options: Any,
    ) -> Iterator[trace.Span]:
        """Start a span and make it current; the other arguments are those of `start_span`."""
        options |= zip(_OPTIONS, given, strict=False)
        ends = options.pop("end_on_exit", True)
        records, fails = options.get("record_exception", True), options.get("set_status_on_exception", True)
        with trace.use_span(self.start_span(name, **options), ends, records, fails) as span:
            yield span


class RunTracerProvider(trace.TracerProvider):
    """A tracer provider whose spans go to the journal of one run."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: types.Attributes = None,
    ) -> trace.Tracer:
        """Return a tracer; its spans have the name and version of the library."""
        return RunTracer(
            self._steps, (text_of(instrumenting_module_name), text_of(instrumenting_library_version or ""))
        )
