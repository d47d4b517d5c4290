"""Steps: iterations of the RL loop, those that are refused, and the step that a call belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING

from opentelemetry import context, trace

from otel_rl.recorder.convert.values import WHOLE, is_plain, sort
from otel_rl.recorder.errors.texts import shown, text_of
from otel_rl.recorder.journal.records import Logged, Observed, StepEnded, StepStarted
from otel_rl.recorder.trainer.arguments import to_amount, to_step
from otel_rl.recorder.trainer.spans import JournaledSpan, context_here
from otel_rl.recorder.trainer.with_blocks import is_left
from otel_rl.semconv import SPAN_LOOP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from otel_rl.recorder.trainer.reactions import Reactions
    from otel_rl.recorder.trainer.recorder import Recorder

REFUSED = -1
"""Number of a step that was refused, and counted, when it was made. It never begins."""
_NO_MAPPING = "{} is not a mapping; write run.log({{name: value, …}}, step=n)"
_attach, _with_span = context.attach, trace.set_span_in_context
_refused_here: ContextVar[object] = ContextVar("otel_rl_refused_step", default=None)


class Steps:
    """The steps of a process: the open one, the last one, and the refused ones that the trainer is inside of.

    Values that are logged inside a refused step without `step=` belong to no step: they must not appear in the row of
    another one.

    Attributes:
        recorder: The writer of records.
        open: The step that has begun and not ended; one at a time.
        last_begun: Number of the step that began last; -1 before the first one.
        last: Number of the step that began last, or was logged to last outside of a step.
        highest: The highest number of a step that began or was logged to; -1 before the first one.
        training_ended: If true, the training has ended, and another run may begin in this process.
        reactions: The trainer's functions that react to events; `None` if it has none.
        before_end: Called before the run ends, to record what waits for the number of its step.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.open: StepSpan | None = None
        self.last_begun = -1
        self.last: int | None = None
        self.highest = -1
        self.training_ended = False
        self.reactions: Reactions | None = None
        self.before_end: Callable[[], None] | None = None
        self._refused: dict[StepSpan, object] = {}  # with the refused step around each; mostly empty

    def begin(self, step: StepSpan) -> bool:
        """Register a step that begins; return false if it is refused."""
        if step.number <= self.last_begun or (self.open is not None and self.is_inside_step()):
            if step.number != REFUSED:
                self.recorder.refuse("step", f"step {step.number} is entered again, or inside another; leave it first")
            return False
        if self._refused:  # those that were entered without `with` last at most until the next step begins
            self._forget([step for step in self._refused if step._block is None])
        self.last_begun = self.last = step.number
        self.highest = max(self.highest, step.number)
        self.open = step
        return True

    def is_inside_step(self) -> bool:
        """Return whether a step is open; end it first if its block has been left."""
        step = self.open
        if step is not None and step._is_abandoned:
            step._abandon()
            self.close(step)
        return self.open is not None

    def close(self, step: StepSpan) -> None:
        """Unregister a step that has ended."""
        if self.open is step:
            self.open = None

    def leave_to_parent(self) -> None:
        """Leave the open step to the parent, which ends it: this is a forked child, which logs into it."""
        if self.open is not None:
            self.open._ended = True
        self.open = self.reactions = None

    def enter_refused(self, step: StepSpan) -> None:
        """Register that the trainer enters a step that is refused."""
        self._refused[step] = _refused_here.get()
        _refused_here.set(step)

    def exit_refused(self, step: StepSpan) -> None:
        """Unregister a refused step; other steps are ignored."""
        if step in self._refused:
            around = self._refused.pop(step)
            if _refused_here.get() is step:
                _refused_here.set(around)

    @property
    def now(self) -> int | None:
        """The open step, otherwise the last one; `None` inside a refused step."""
        if self._refused and self._is_inside_refused():
            return None
        return self.last if self.open is None else self.open.number

    def of(self, call: str, step: int | None) -> int | None:
        """Return the step that a call belongs to, and remember it; `None` if the call is refused."""
        if step is None and self._refused and self._is_inside_refused():
            self.recorder.refuse("step", f"{call}() inside a step that was refused; pass step=n to record it")
            return None
        number = self.last if step is None else step
        if type(number) is not int or not 0 <= number < WHOLE:
            number = self._converted(call, step)
            if number is None:
                return None
        if number > self.highest:  # noqa: PLR1730 - each value passes here, and a call of `max` takes 0.1 µs
            self.highest = number
        if self.open is None:
            self.last = number
            self.recorder.follow_wall_clock()
        return number

    def _converted(self, call: str, step: object) -> int | None:
        """Return a step that is not a plain `int`; `None` if there is none, or it is refused."""
        if step is None:
            where = "before the first step; use `with run.step(n):`, or pass step=n, from 0 on"
            self.recorder.refuse("step", f"{call}() {where}")
            return None
        try:
            return to_step(step)
        except ValueError as error:
            self.recorder.refuse("step", f"{call}(): {error}; use `with run.step(n):`, or pass step=n, from 0 on")
            return None

    def log(self, values: Mapping[str, object], step: int | None, weight: float) -> None:
        """Write the values of metrics, at a step or where the caller is; refuse those that cannot be recorded."""
        recorder = self.recorder
        try:
            inside = step is None and self.open is not None and not self._refused  # inlined: a call costs more
            number = self.last if inside else self.of("log", step)
            if number is None:
                return
            samples = on_device = None
            if not is_plain(values):
                values, samples, on_device = sort(values, recorder.refuse)
            if type(weight) is not int or weight != 1:
                weight = 1 if (known := to_amount(recorder, "weight", "log: weight", weight)) is None else known
            clock = recorder.clock
            now = clock.anchor + clock.monotonic()
            if values:
                recorder.write(Logged(number, now, values, weight))  # type: ignore[arg-type] # is_plain, or made so
            if samples:
                recorder.write(Observed(number, now, samples))
            if on_device:
                recorder.devices.copy_values(on_device, number, weight)
        except Exception as error:
            is_mapping = hasattr(type(values), "items")
            recorder.refuse("log", f"log: {text_of(error) if is_mapping else _NO_MAPPING.format(shown(values))}")

    def _is_inside_refused(self) -> bool:
        """Return whether the caller is inside a refused step.

        If a step is open, only the context that entered the refused one is inside; otherwise all threads are.
        """
        self._forget([step for step in self._refused if is_left(step._block)])
        return bool(self._refused) and (self.open is None or _refused_here.get() in self._refused)

    def _forget(self, refused: list[StepSpan]) -> None:
        for step in refused:
            self._refused.pop(step, None)


class StepSpan(JournaledSpan):
    """One iteration of the RL loop: the root span of its trace, with the same ids on every rank."""

    _steps: Steps
    _name = SPAN_LOOP
    _thread = 0  # that entered it
    _since: int | None = None  # when it began, if that was before it was entered

    def __init__(  # inlined: a call costs more
        self, steps: Steps, number: int, ids: tuple[bytes, int], attributes: Mapping[str, object]
    ) -> None:
        self._steps = steps
        self._recorder = steps.recorder
        self._attributes = attributes
        self.number = self._step = number
        self._trace_id, self._span_id = ids

    def end(self, end_time: int | None = None) -> None:
        """End the step; a second call does nothing."""
        if self._ended:
            self._steps.exit_refused(self)
            return
        # Before the end is written: what these functions log belongs to the step that ends
        # (recorder/trainer/test_on_event.py).
        if self._steps.reactions is not None:
            self._steps.reactions.react()
        recorder = self._recorder
        now = self._anchor + recorder.clock.monotonic() if end_time is None else self._moment(end_time)
        if now < self._began:  # noqa: PLR1730 - a call costs more
            now = self._began
        memory = recorder.memory.snapshot(now)
        on_devices = recorder.devices.memory(now)
        described = (memory, *self._described(), on_devices, self._is_ok, self._link_attributes)
        recorder.write(StepEnded(self.number, now, *described))
        self._ended = True
        self._steps.close(self)
        recorder.devices.arrived()

    @property
    def _step_now(self) -> int | None:
        """The number of the step; `None` if it was refused."""
        return None if self.number == REFUSED else self.number

    @property
    def _is_abandoned(self) -> bool:
        """If true, the `with` block has been left; without `with`, the next step of the thread has begun."""
        return is_left(self._block) or (self._block is None and self._thread == get_ident())

    def __enter__(self) -> Self:
        recorder, steps = self._recorder, self._steps
        try:
            outer = context_here(recorder)
            if steps.begin(self):
                self._thread = get_ident()
                self._anchor = recorder.clock.anchor
                now = self._anchor + recorder.clock.monotonic() if self._since is None else self._moment(self._since)
                self._began = now
                self._ended = False
                devices = recorder.devices
                devices.arrived()
                recorder.write(StepStarted(self.number, now, recorder.memory.recent(now), devices.begin_step(now)))
                self._outer = outer
                self._token = _attach(_with_span(self, outer))
                if steps.reactions is not None:
                    steps.reactions.react()
            elif steps.open is not self:
                steps.enter_refused(self)
            return self
        except BaseException as interruption:
            self._abandon(interruption)
            steps.close(self)
            raise
