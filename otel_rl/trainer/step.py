"""Steps: iterations of the RL loop, and those that are refused."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING

from opentelemetry import context, trace

from otel_rl.journal.records import StepEnded, StepStarted
from otel_rl.semconv import SPAN_LOOP
from otel_rl.trainer import refused_steps
from otel_rl.trainer.no_span import NoSpan
from otel_rl.trainer.spans import JournaledSpan, surroundings
from otel_rl.trainer.with_blocks import entered_in, is_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from otel_rl.trainer.recorder import Recorder

_attach, _with_span = context.attach, trace.set_span_in_context


class StepSpan(JournaledSpan):
    """One iteration of the RL loop: the root span of its trace, with the same ids on every rank."""

    _name = SPAN_LOOP

    def __init__(  # inlined: a call costs more
        self, recorder: Recorder, number: int, ids: tuple[bytes, int], attributes: Mapping[str, object]
    ) -> None:
        self._recorder = recorder
        self._attributes = attributes
        self.number = number
        self.trace_id, self.span_id = ids

    def end(self, end_time: int | None = None) -> None:
        """End the step; a second call does nothing."""
        if self._ended:
            refused_steps.leave(self._recorder.refused_steps, self)
            return
        recorder = self._recorder
        now = self._anchor + recorder.clock.monotonic() if end_time is None else self._moment(end_time)
        if now < self._began:  # noqa: PLR1730 - a call costs more
            now = self._began
        memory = recorder.memory.snapshot(now)
        on_devices = recorder.devices.memory(now)
        told = (memory, *self._told(), on_devices, self._is_ok, self._link_attributes)
        recorder.write(StepEnded(self.number, now, *told))
        self._ended = True
        recorder.close_step(self)
        recorder.devices.arrived()

    @property
    def is_abandoned(self) -> bool:
        """If true, the `with` block has been left; without `with`, the next step of the thread has begun."""
        block = self._block
        by_hand = block is not None and block.thread == get_ident() and not is_with(block)
        return by_hand or super().is_abandoned

    def __enter__(self) -> Self:
        recorder = self._recorder
        try:
            here = surroundings(recorder)
            self._block = entered_in(sys._getframe(1))
            if recorder.begin_step(self):
                self._anchor = recorder.clock.anchor
                self._began = now = self._anchor + recorder.clock.monotonic()
                self._ended = False
                devices = recorder.devices
                devices.arrived()
                recorder.write(StepStarted(self.number, now, recorder.memory.recent(now), devices.begin_step(now)))
                self.outer = here
                self._token = _attach(_with_span(self, here))
            elif recorder.open_step is not self:
                refused_steps.enter(recorder.refused_steps, self, sys._getframe(1))
            return self
        except BaseException as interruption:
            self.abandon(interruption)
            recorder.close_step(self)
            raise


class RefusedStep(NoSpan):
    """A step that is refused; values that are logged inside are refused too."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._steps = recorder.refused_steps

    def __enter__(self) -> Self:
        refused_steps.enter(self._steps, self, sys._getframe(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        refused_steps.leave(self._steps, self)
