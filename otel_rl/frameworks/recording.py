"""The run into which a framework's logger records: the current run, or one that the logger begins."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import otel_rl
from otel_rl.frameworks.charted import numbers
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.trainings import count, later_training, options_of_training
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.loading import set_outside
from otel_rl.recorder.trainer.current import is_open, steps_of, turn
from otel_rl.recorder.trainer.start import init_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.recorder.trainer.no_span import NoSpan
    from otel_rl.recorder.trainer.phase import Phase
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.step import StepSpan

logger = log_of(__name__)


class OpenStep:
    """The step that a trainer has open. It lasts until the next one begins.

    Attributes:
        number: The number of the last step that it began; `None` before the first one.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._run: Run | None = None
        self._span: StepSpan | NoSpan | None = None

    def is_of(self, run: Run) -> bool:
        """Return whether a step of this run is open."""
        return self._span is not None and self._run is run

    def begin(self, run: Run, number: int, since: int | None = None) -> None:
        """Begin a step, unless it is open. The previous one ends; `since` is when, if before now."""
        if number == self.number and self.is_of(run):
            return
        self.end(at=since)
        with harmless("step"):
            self.number, self._run = number, run
            self._span = run.step(number)
            self._span._since = since
            self._span.__enter__()

    def end(self, error: BaseException | None = None, at: int | None = None) -> None:
        """End the step, if one is open; `at` is when, if before now."""
        with harmless("step"):
            # Taken out first: an exception in `__exit__` must not leave the step open for the rest of the training.
            span, self._span = self._span, None
            if span is not None:
                if at is not None:
                    span.end(at)
                span.__exit__(None if error is None else type(error), error, None)


TIMED = OpenStep()
"""The step of the trainer whose timers are recorded; `timers` begins it."""


class Recording:
    """A training, with its open step and phase, in the current run or in a run that begins with it.

    Args:
        trainer: The object that trains. Recordings without one belong to the training that is open.
        after: The recording of an earlier training, which this one continues from a checkpoint.
        at_once: If true, it begins a run though this process records another one, which goes on.
        options: Keywords of `otel_rl.init`; without effect if a run exists.

    Raises:
        SettingsError: There is no run yet, and a setting is wrong.
    """

    def __init__(
        self, trainer: object = None, after: Recording | None = None, *, at_once: bool = False, **options: Any
    ) -> None:
        _finish_resting()
        before = after if after is not None and after._own else None
        if before is not None:
            before.finish()  # it may have failed; its steps are repeated
        self.trainer = trainer
        self._step = OpenStep()
        self._phase: Phase | NoSpan | None = None
        with turn():  # threads of a tracker may log their first values at once
            current = None if at_once else otel_rl.current()
            self._own: bool = current is None
            self._options: dict[str, Any] = options
            if current is None:
                begin: Callable[..., Run] = otel_rl.init
                if at_once:
                    begin = init_beside
                self._options = before._options | {"id": before.run.id} if before else options_of_training(options)
                self.run: Run = begin(**self._options)
                count(self.run)
                atexit.register(_finish_resting)  # before the run's own end, which does not wait for exporters
            else:
                logger.info("recording into run %s; the logger's own settings of exporters have no effect", current.id)
                self.run = _borrowed(current, trainer, after)
            self._recorded = current or self.run
            _open.add(self)

    @property
    def is_open(self) -> bool:
        """Return whether it has neither finished nor failed."""
        return self in _open and is_open(self._recorded)

    @property
    def keeps_texts(self) -> bool:
        """Return whether texts may leave the process (`init(content=True)`)."""
        return self.run._session.settings.content

    @property
    def number(self) -> int | None:
        """The number of the last step that it began; `None` before the first one."""
        return self._step.number

    @property
    def has_step(self) -> bool:
        """Return whether a step is open."""
        return self._step.is_of(self.run)

    def is_of(self, run: Run) -> bool:
        """Return whether it records into this run."""
        return self._recorded is run

    def log(self, values: Mapping[str, Any], step: int | None) -> None:
        """Record the numbers among the values that a framework gives its trackers."""
        self.run.log(numbers(values), step=step)

    def begin_step(self, number: int, since: int | None = None) -> None:
        """Begin a step, unless it is open. The previous one ends; `since` is when, if before now."""
        if number != self.number or not self.has_step:
            steps_of(self._recorded).training_ended = False
            self.begin_phase()
            self._step.begin(self.run, number, since)

    def begin_phase(self, name: str = "") -> None:
        """End the open phase, and begin another one if a step is open and `name` is not empty."""
        with harmless("phase"):
            phase, self._phase = self._phase, None
            if phase is not None:
                phase.__exit__(None, None, None)
            if name and self.has_step:
                self._phase = self.run.phase(name)
                self._phase.__enter__()

    def end_step(self, error: BaseException | None = None, at: int | None = None) -> None:
        """End the open phase and the open step; `at` is when, if before now."""
        self.begin_phase()
        self._step.end(error, at)

    def abandon(self, error: BaseException | None = None) -> None:
        """End the training without its run: it raised an exception, which the script may catch."""
        self.end_step(error)
        _open.discard(self)

    def rest(self) -> None:
        """End the training. Its trainer may evaluate later, so the run ends with the next training or the process."""
        self.end_step()
        if self._own:
            steps_of(self._recorded).training_ended = True
        else:
            _open.discard(self)

    def finish(self, timeout: float = 30.0) -> bool:
        """End the step, and the run if this recording began it; then wait for its exporters."""
        self.end_step()
        TIMED.end()
        _open.discard(self)
        return bool(self.run.finish(timeout)) if self._own else True


class Recordings:
    """The recordings of a framework's loggers, each from its start to its end."""

    def __init__(self) -> None:
        self._of: dict[int, Recording] = {}

    def __bool__(self) -> bool:
        """Return whether a logger is being recorded."""
        return bool(self._of)

    def begin(self, logger_: object, config: object = None, trainer: object = None, **options: Any) -> None:
        """Begin the recording of a logger; `config` is hyper-parameters, `options` are those of `otel_rl.init`."""
        self._of[id(logger_)] = recording = Recording(trainer, **unless_set(**options))
        if config:
            recording.run.params(config)

    def log(self, logger_: object, values: Mapping[str, Any], step: int | None) -> None:
        """Record the values that a logger gets."""
        if (recording := self._of.get(id(logger_))) is not None:
            recording.log(values, step)

    def table(self, logger_: object, name: str, data: object, step: int | None) -> None:
        """Record a table that a logger gets."""
        if (recording := self._of.get(id(logger_))) is not None:
            recording.run.table(name, data, step=step)

    def finish(self, logger_: object) -> None:
        """End the recording of a logger, if there is one."""
        if (recording := self._of.pop(id(logger_), None)) is not None:
            recording.finish()


def unless_set(**options: Any) -> dict[str, Any]:
    """Return the options of a framework's own that are not empty, and that the user's environment or file does not set.

    Raises:
        SettingsError: The environment or the file has an unknown setting.
    """
    user = set_outside()
    return {name: value for name, value in options.items() if value != "" and name not in user}


# Weak: a trainer that the script has dropped is not open, and its model must not be kept.
_open: WeakSet[Recording] = WeakSet()


def _finish_resting() -> None:
    run = otel_rl.current()
    if run is not None and steps_of(run).training_ended:
        run.finish()


def _borrowed(run: Run, trainer: object, after: Recording | None) -> Run:
    """Return the run for the first training and those that run together with it, or a `LaterTraining`."""
    others = [recording for recording in _open if recording.is_of(run)]
    for recording in [*others, *([after] if after is not None and after.is_of(run) else [])]:
        if recording is after or trainer is None or recording.trainer in (None, trainer):
            recording.trainer = recording.trainer or trainer
            return recording.run
    if steps_of(run).open is not None and not others:
        return run
    return later_training(run)
