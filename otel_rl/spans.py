"""Phases and steps as OpenTelemetry spans whose start and end go to the journal.

They implement the OTel API's `Span` and are attached to the OTel context, so that spans of third
parties (HTTP clients, inference engines) become their children. No SDK is involved: the agent makes
spans of the records.
"""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Protocol

from opentelemetry import context, trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rl.attributes import clean_attributes, text_of
from otel_rl.records import StepEnded, StepStarted
from otel_rl.semconv import SPAN_LOOP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.util import types
    from typing_extensions import Self

    from otel_rl.devices import Devices
    from otel_rl.export import AttributeValue
    from otel_rl.ids import RandomIds, SpanIds
    from otel_rl.memory import MemoryReader
    from otel_rl.records import Record

    Moments = list[tuple[str, int, dict[str, AttributeValue]]] | None
    Links = list[tuple[bytes, int]] | None

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_LONGEST_STACK = 8192
_attach, _detach, _with_span = context.attach, context.detach, trace.set_span_in_context


class Recorder(Protocol):
    """What a span needs of its run."""

    ids: RandomIds
    remote: SpanIds | None  # whose child this process is, if its environment says so
    memory: MemoryReader
    devices: Devices
    open_step: StepSpan | None

    def write(self, record: Record) -> None:
        """Append to the journal; never raises."""

    def refuse(self, reason: str, text: str) -> None:
        """Count and log a call that cannot be served."""

    def begin_step(self, step: StepSpan) -> bool:
        """Take note that the step begins; tell whether it may."""

    def close_step(self, step: StepSpan) -> None:
        """Take note that the step has ended."""

    def failed(self, span: JournaledSpan, error: BaseException) -> None:
        """Take note of an exception that passed through a span."""


class JournaledSpan(trace.Span):
    """What phases, steps and third parties' spans have in common."""

    trace_id = b""  # the id of its trace, as records hold it
    span_id = 0
    _events: Moments = None
    _links: Links = None
    _error: tuple[str, str] | None = None
    _ended = False
    _renamed = False
    _token: Token[Context] | None = None

    def __init__(self, recorder: Recorder, name: str, attributes: Mapping[str, object] | None = None) -> None:
        self._recorder = recorder
        self._name = name
        self._attributes = attributes

    @property
    def phase(self) -> str:
        """The phase that it is, or is a part of; empty for a step."""
        return ""

    def get_span_context(self) -> SpanContext:
        """Return the span's identity; it is always sampled, the agent decides what is kept."""
        return SpanContext(int.from_bytes(self.trace_id, "big"), self.span_id, is_remote=False, trace_flags=_SAMPLED)

    def is_recording(self) -> bool:
        """Tell whether the span has not ended yet."""
        return not self._ended

    def set_attribute(self, key: str, value: types.AttributeValue) -> None:
        """Set one attribute; it is written when the span ends."""
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, types.AttributeValue]) -> None:
        """Set attributes; they are written when the span ends."""
        self._attributes = {**(self._attributes or {}), **attributes}

    def add_event(self, name: str, attributes: types.Attributes = None, timestamp: int | None = None) -> None:
        """Add a moment inside the span."""
        self._events = self._events or []
        self._events.append((name, timestamp or time.time_ns(), clean_attributes(attributes)))

    def add_link(self, context: SpanContext, attributes: types.Attributes = None) -> None:
        """Refer to another span."""
        self._links = self._links or []
        self._links.append((context.trace_id.to_bytes(16, "big"), context.span_id))

    def update_name(self, name: str) -> None:
        """Give the span another name."""
        self._name, self._renamed = name, True

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; only Error is kept, since unset and OK look the same in a recording."""
        code = status.status_code if isinstance(status, Status) else status
        text = status.description if isinstance(status, Status) else description
        self._error = ("", text or "") if code is StatusCode.ERROR else None

    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add the exception as an event, as OTel's conventions for exceptions say."""
        stack = "".join(traceback.format_exception(exception))
        described = {
            "exception.type": type(exception).__qualname__,
            "exception.message": text_of(exception),
            "exception.stacktrace": stack[-_LONGEST_STACK:],
        }
        self.add_event("exception", {**described, **(attributes or {})}, timestamp)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        """End the span; the exception that passes, if one does, is recorded and goes on."""
        if error is not None and not isinstance(error, GeneratorExit):
            self._fail(error)
        self.end()
        if error is not None:
            self._recorder.failed(self, error)
        if self._token is not None:
            _detach(self._token)
            self._token = None

    def _told(self) -> tuple[dict[str, AttributeValue] | None, tuple[str, str] | None, Moments, Links]:
        """Return what the span was told while it was open, in the order of the records' fields."""
        attributes = clean_attributes(self._attributes) if self._attributes else None
        return attributes, self._error, self._events, self._links

    def _fail(self, exception: BaseException) -> None:
        self._error = (type(exception).__qualname__, text_of(exception))
        try:
            self.record_exception(exception)
        except Exception as error:
            self._recorder.refuse("exception", f"the exception that passed could not be described: {error!r}")


class StepSpan(JournaledSpan):
    """One iteration of the RL loop: the root of its trace, with the same ids on every rank."""

    def __init__(self, recorder: Recorder, number: int, ids: SpanIds, attributes: Mapping[str, object]) -> None:
        super().__init__(recorder, SPAN_LOOP, attributes)
        self.number = number
        self.trace_id, self.span_id = ids.trace_id.to_bytes(16, "big"), ids.span_id

    def end(self, end_time: int | None = None) -> None:
        """End the step; a second call does nothing."""
        if self._ended:
            return
        self._ended = True
        recorder = self._recorder
        now = end_time or time.time_ns()
        memory = recorder.memory.snapshot(now)
        recorder.write(StepEnded(self.number, now, memory, *self._told(), recorder.devices.memory(now)))
        recorder.close_step(self)
        recorder.devices.arrived()

    def __enter__(self) -> Self:
        if self._recorder.begin_step(self):
            now = time.time_ns()
            devices = self._recorder.devices
            devices.arrived()
            memory = self._recorder.memory.recent(now)
            self._recorder.write(StepStarted(self.number, now, memory, devices.begin_step(now)))
            self._token = _attach(_with_span(self))
        return self


class NoSpan(trace.NonRecordingSpan):
    """Stands in where nothing is recorded, so that a caller never has to ask."""

    def __init__(self) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)

    def __enter__(self) -> Self:
        return self

    def onload(self) -> NoSpan:
        """Return this."""
        return self

    def execute(self) -> NoSpan:
        """Return this."""
        return self

    def offload(self) -> NoSpan:
        """Return this."""
        return self

    def part(self, name: str, /, **attributes: object) -> NoSpan:
        """Return this."""
        return self


NO_SPAN = NoSpan()
