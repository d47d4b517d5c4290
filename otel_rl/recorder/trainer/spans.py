"""Phases and steps as OpenTelemetry spans whose start and end go to the journal.

They implement the OTel API's `Span` and are attached to the OTel context, so that spans of third
parties (HTTP clients, inference engines) become their children. No SDK is involved: the agent makes
spans of the records.
"""

from __future__ import annotations

import inspect
import operator
import traceback
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from opentelemetry import context, trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.convert.values import WHOLE
from otel_rl.recorder.errors.guard import Guard
from otel_rl.recorder.errors.texts import text_of, type_of
from otel_rl.recorder.interrupts import detach
from otel_rl.recorder.secrets import redacted
from otel_rl.recorder.trainer.with_blocks import is_left, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.util import types

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.trainer.recorder import Recorder
    from otel_rl.recorder.trainer.with_blocks import Block

    Moments = list[tuple[str, int, dict[str, AttributeValue]]] | None
    Links = list[tuple[bytes, int]] | None
    LinkAttributes = list[dict[str, AttributeValue]] | None

Method = TypeVar("Method", bound="Callable[..., Any]")

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_LONGEST_STACK = 8192
_attach, _with_span = context.attach, trace.set_span_in_context
_current_context, _current_span = context.get_current, trace.get_current_span


def never_raises(method: Method) -> Method:
    """Wrap a method of a run or of a span so that it counts its exceptions instead of raising them."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with Guard(partial(_refuse, self._recorder, method)):
            return method(self, *args, **kwargs)

    return cast("Method", call)


def _refuse(recorder: Recorder, method: Callable[..., Any], error: Exception) -> None:
    """Count what a method raised; say how it is called if its arguments were wrong, so that it did not begin."""
    name, trace_ = method.__name__, error.__traceback__
    if not isinstance(error, TypeError) or (trace_ is not None and trace_.tb_next is not None):
        recorder.refuse_error(name, error)
        return
    arguments = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if not parameter.name.startswith(("self", "_"))
    ]
    plain = inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty) for parameter in arguments])
    recorder.refuse(name, f"{text_of(error).removeprefix(method.__qualname__.removesuffix(name))}; write {name}{plain}")


class Logging(Protocol):
    """The steps of a run, as a span sees them."""

    def log(self, values: Mapping[str, object], step: int | None, weight: float) -> None:
        """Write the values of metrics."""


class JournaledSpan(trace.Span):
    """The common part of phases, steps and spans of instrumentation libraries.

    A span stays open until its end is in the journal, so that an interrupted end is repeated.
    """

    _steps: Logging
    _recorder: Recorder
    _step: int | None = None  # that it began in
    _name: str
    _attributes: Mapping[str, object] | None
    _trace_id = b""  # trace id, as records hold it
    _span_id = 0
    _events: Moments = None
    _links: Links = None
    _link_attributes: LinkAttributes = None
    _error: tuple[str, str] | None = None
    _is_ok = False
    _ended = True  # until it begins
    _renamed = False
    _anchor = 0  # of the clock, when it began
    _began = 0
    _outer: Context | None = None  # what was current before it was entered
    _token: Token[Context] | None = None
    _block: Block | None = None  # the `with` block that entered it

    @property
    def _phase(self) -> str:
        """Name of the phase that this span is, or is a part of; empty for a step."""
        return ""

    @property
    def _step_now(self) -> int | None:
        """Number of the step that an exception is reported for."""
        raise NotImplementedError

    @never_raises
    def log(self, values: Mapping[str, object], *, weight: float = 1) -> None:
        """Record the values of metrics as `Run.log` does, in the step of this span.

        Args:
            values: Value by name.
            weight: Number of observations that the scalars stand for.
        """
        self._steps.log(values, self._step, weight)

    def get_span_context(self) -> SpanContext:
        """Return the span's identity; it is always sampled, since the agent does the trace sampling."""
        return SpanContext(int.from_bytes(self._trace_id, "big"), self._span_id, is_remote=False, trace_flags=_SAMPLED)

    def is_recording(self) -> bool:
        """Return whether the span has not ended yet."""
        return not self._ended

    @never_raises
    def set_attribute(self, key: str, value: types.AttributeValue) -> None:
        """Set one attribute; it is written when the span ends."""
        self.set_attributes({key: value})

    @never_raises
    def set_attributes(self, attributes: Mapping[str, types.AttributeValue]) -> None:
        """Set attributes; they are written when the span ends."""
        self._attributes = {**(self._attributes or {}), **self._clean(attributes)}

    @never_raises
    def add_event(self, name: str, attributes: types.Attributes = None, timestamp: int | None = None) -> None:
        """Add an event to the span."""
        moment = (text_of(name), self._moment(timestamp), self._clean(attributes))
        self._events = self._events or []
        self._events.append(moment)

    @never_raises
    def add_link(self, context: SpanContext, attributes: types.Attributes = None) -> None:
        """Add a link to another span."""
        linked = (context.trace_id.to_bytes(16, "big"), int.from_bytes(context.span_id.to_bytes(8, "big"), "big"))
        links = self._links or []
        if described := self._clean(attributes):
            before = [*(self._link_attributes or ()), *({} for _ in links)]
            self._link_attributes = [*before[: len(links)], described]
        self._links = [*links, linked]

    @never_raises
    def update_name(self, name: str) -> None:
        """Rename the span."""
        self._name, self._renamed = text_of(name), True

    @never_raises
    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status as OpenTelemetry specifies it: OK is final, and UNSET is ignored."""
        code = status.status_code if isinstance(status, Status) else StatusCode(status)
        text = status.description if isinstance(status, Status) else description
        if self._is_ok or code is StatusCode.UNSET:
            return
        self._is_ok = code is StatusCode.OK
        self._error = None if self._is_ok else ("", text_of(text or ""))

    @never_raises
    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception event with the attributes of OpenTelemetry's semantic conventions."""
        stack = "".join(traceback.format_exception(exception))
        described = {
            "exception.type": type_of(exception),
            "exception.message": text_of(exception),
            "exception.stacktrace": redacted(stack)[-_LONGEST_STACK:],
        }
        self.add_event("exception", {**described, **self._clean(attributes)}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End the span; a second call does nothing."""
        raise NotImplementedError

    @watched
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        """End the span; record an exception and let it pass."""
        try:
            if error is not None and not isinstance(error, GeneratorExit):
                self._fail(error)
            self.end()
            if error is not None:
                self._recorder.failed(error, self._phase, (self._step_now, self._trace_id, self._span_id))
            if self._token is not None:
                detach(self._token)
                self._token = None
        except BaseException as interruption:
            self._abandon(interruption)
            raise

    def _fail(self, exception: BaseException) -> None:
        """Record an exception that passes through the span, and set the error status."""
        if not self._is_ok:
            self._error = (type_of(exception), text_of(exception))
        self.record_exception(exception)

    def _abandon(self, interruption: BaseException | None = None) -> None:
        """End a span whose `__enter__` or `__exit__` was interrupted or never called."""
        if self._error is None and not self._is_ok:
            text = "it was not ended before the next step began" if interruption is None else text_of(interruption)
            self._error = ("" if interruption is None else type_of(interruption), text)
        self.end()
        span = _current_span()
        while span is not self and isinstance(span, JournaledSpan):
            span = _current_span(span._outer)
        if span is self and self._outer is not None:
            _attach(self._outer)
        self._token = None

    @property
    def _is_abandoned(self) -> bool:
        """If true, the `with` block has been left, but its `__exit__` never completed."""
        return is_left(self._block)

    def _described(self) -> tuple[dict[str, AttributeValue] | None, tuple[str, str] | None, Moments, Links]:
        """Return attributes, error, events and links, in the order of the fields of the records."""
        attributes = self._clean(self._attributes) if self._attributes else None
        return attributes, self._error, self._events, self._links

    def _clean(self, attributes: Mapping[str, object] | None) -> dict[str, AttributeValue]:
        return clean_attributes(attributes, self._recorder.refuse)

    def _moment(self, given: int | None) -> int:
        """Return a given time, or now, by the clock as it was when the span began."""
        if given is None:
            return (self._anchor or self._recorder.clock.anchor) + self._recorder.clock.monotonic()
        try:
            moment = int.__index__(operator.index(given))
        except Exception:  # a foreign object may raise anything
            moment = -1
        if 0 <= moment < WHOLE:
            return moment
        self._recorder.refuse("time", f"{text_of(given)} is not a time in nanoseconds since the Unix epoch")
        return self._moment(None)


def context_here(recorder: Recorder) -> Context:
    """Return the current context, after ending the spans in it whose `with` block has been left."""
    outer = _current_context()
    span = _current_span(outer) if outer else None
    while isinstance(span, JournaledSpan) and span._is_abandoned and span._outer is not None:
        span._abandon()
        outer = _current_context()
        span = _current_span(outer)
    if not isinstance(span, JournaledSpan):
        recorder.follow_wall_clock()
    return outer
