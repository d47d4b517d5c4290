"""Phases: named parts of a step, with memory at both ends and two clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import context, trace

from otel_rl.recorder.journal.records import AWAITED, SpanEnded, SpanStarted
from otel_rl.recorder.trainer.arguments import cut_name
from otel_rl.recorder.trainer.no_span import NoSpan
from otel_rl.recorder.trainer.spans import JournaledSpan, context_here

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from opentelemetry.trace import SpanKind

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.devices.clock import DeviceEvent
    from otel_rl.recorder.trainer.step import Steps, StepSpan

_MOST_AWAITED = 128
"""Characters of a text, or items of a list, that are written at the start of a span."""
_attach, _current_context = context.attach, context.get_current
_current_span, _with_span = trace.get_current_span, trace.set_span_in_context


class Phase(JournaledSpan):
    """A named part of a step, with the memory of the process and its devices at both ends; a context manager.

    A trainer that loads and unloads states marks the parts of a phase: `onload`, `execute`, `offload`, or any
    other by `part`. Spans of instrumentation libraries have a `kind` and no memory snapshots.
    """

    _steps: Steps
    _span_kind: SpanKind | None = None
    _scope: tuple[str, str] | None = None  # name and version of the instrumentation library
    _begins_on_entry = True
    _in_phase = ""  # name of the phase that this is a part of
    _device_start: DeviceEvent | None = None

    def __init__(self, steps: Steps, name: str, attributes: Mapping[str, object] | None = None) -> None:
        self._steps = steps
        self._recorder = steps.recorder
        self._name = name
        self._attributes = attributes

    @property
    def _phase(self) -> str:
        """Name of the phase that this is, or is a part of."""
        return self._in_phase or self._name

    @property
    def _step_now(self) -> int | None:
        """The open step, otherwise the last one."""
        return self._steps.now

    def onload(self) -> Phase | NoSpan:
        """Return a context manager for loading states onto the device."""
        return self.part("onload")

    def execute(self) -> Phase | NoSpan:
        """Return a context manager for the computation."""
        return self.part("execute")

    def offload(self) -> Phase | NoSpan:
        """Return a context manager for unloading states; the driver is asked how much memory remains in use."""
        return self.part("offload")

    def part(self, name: str, /, **attributes: object) -> Phase | NoSpan:
        """Return a context manager for a part of this phase.

        Args:
            name: Name of the part, such as "reload_nccl".
            attributes: Attributes of its span.
        """
        if not (known := cut_name(self._recorder, "part", name)):
            return NoSpan(self._steps)
        part = Phase(self._steps, known, attributes)
        part._in_phase = self._phase
        return part

    def begin(self, parent: trace.Span | None = None, start_time: int | None = None) -> Self:
        """Start the span under `parent`, by default the current span, otherwise the open step."""
        self._begin(_current_span() if parent is None else parent, start_time)
        return self

    def _begin(self, parent: trace.Span | None, start_time: int | None = None) -> None:
        recorder = self._recorder
        clock = recorder.clock
        self._anchor = clock.anchor
        self._began = now = self._anchor + clock.monotonic() if start_time is None else self._moment(start_time)
        step = self._steps.open
        parent_id, self._trace_id = self._place(parent, step)
        self._span_id = recorder.ids.span_id()
        self._ended = False
        self._step = None if step is None else step.number
        name, part = (self._in_phase, self._name) if self._in_phase else (self._name, "")
        begun = (self._span_id, parent_id, self._trace_id, self._step, name, now)
        awaits = self._awaited() if self._attributes else None
        kind = self._span_kind
        if kind is not None:
            recorder.write(SpanStarted(*begun, b"", kind.value, None, "", self._scope, awaits))
            return
        devices = recorder.devices
        memory = recorder.memory.recent(now)
        if start_time is not None or now < devices.silent_until or not devices.asked(now):
            recorder.write(SpanStarted(*begun, memory, None, None, part, None, awaits))
            return
        measured = devices.begin(now, used=bool(part))
        recorder.write(SpanStarted(*begun, memory, None, measured, part, None, awaits))
        devices.arrived()
        self._device_start = devices.start_clock()

    def _awaited(self) -> dict[str, AttributeValue] | None:
        """Return the attributes that say what the span waits for; they are short, as all open spans are kept."""
        given = self._attributes or {}
        if not (known := {key: given[key] for key in given if key in AWAITED}):
            return None
        clean = self._clean(known)
        return {key: value[:_MOST_AWAITED] if isinstance(value, list | str) else value for key, value in clean.items()}

    def _place(self, parent: trace.Span | None, step: StepSpan | None) -> tuple[int, bytes]:
        """Return the id of the parent span, 0 for none, and the trace id."""
        recorder = self._recorder
        if parent is not None and parent is not step:
            if isinstance(parent, JournaledSpan):
                return parent._span_id, parent._trace_id
            if (above := parent.get_span_context()).is_valid:
                return above.span_id, above.trace_id.to_bytes(16, "big")
        if step is not None:
            return step._span_id, step._trace_id
        if (remote := recorder.remote) is not None:
            return remote.span_id, remote.trace_id.to_bytes(16, "big")
        return 0, recorder.ids.trace_id().to_bytes(16, "big")

    def end(self, end_time: int | None = None) -> None:
        """End the span; a second call does nothing."""
        if self._ended:
            return
        recorder = self._recorder
        now = self._anchor + recorder.clock.monotonic() if end_time is None else self._moment(end_time)
        if now < self._began:  # noqa: PLR1730 - a call costs more
            now = self._began
        renamed = self._name if self._renamed and not self._in_phase else None
        fields = self._described()
        ok, link_attributes = self._is_ok, self._link_attributes
        devices = recorder.devices
        memory, on_devices, timed = b"", None, False
        if self._span_kind is None and devices.found is None:
            memory = recorder.memory.snapshot(now)
        elif self._span_kind is None:
            start, self._device_start = self._device_start, None
            timed = devices.stop_clock(self._step, self._span_id, start)
            memory = recorder.memory.snapshot(now)
            on_devices = devices.memory(now, used=bool(self._in_phase))
        recorder.write(SpanEnded(self._span_id, now, memory, *fields, renamed, on_devices, timed, ok, link_attributes))
        self._ended = True

    def __enter__(self) -> Self:
        try:
            if not self._begins_on_entry:
                outer = _current_context()
            elif self._steps.open is None:  # inside a step, the end of the step removes abandoned spans
                outer = context_here(self._recorder)
                self._begin(_current_span(outer) if outer else None)
            else:
                outer = _current_context()
                self._begin(_current_span(outer))
            self._outer = outer
            self._token = _attach(_with_span(self, outer))
            return self
        except BaseException as interruption:
            self._abandon(interruption)
            raise
