"""The run into which a framework's logger records: the current run, or one that the logger begins.

A script may train several times: SFT, then DPO, then SFT. Each training counts its steps from the beginning, so each
gets its own series. One warning says how:

* If the script has not begun a run, each training is a run: `ID`, then `ID-2`, `ID-3` in the order of the trainings.
* If the script has begun a run, all trainings are in it. Names of the second training begin with `2/`, of the third one
  with `3/`. Their steps continue after the last step so far. So it is with trainers that train at the same time.
"""

from __future__ import annotations

import atexit
import operator
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import otel_rl
from otel_rl.errors.sinks import log_of
from otel_rl.integrations.patches import harmless
from otel_rl.setup.loading import load, set_outside
from otel_rl.setup.settings import JobSettings
from otel_rl.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Never

    from otel_rl.trainer.no_span import NoSpan
    from otel_rl.trainer.phase import Phase
    from otel_rl.trainer.run import Run
    from otel_rl.trainer.step import StepSpan

logger = log_of(__name__)
Place = tuple[str, str, str]
_trainings: dict[Place, int] = {}
"""The number of trainings of each run in this process, by directory, project and id."""
_promised: set[Place] = set()
"""The runs that `elsewhere` returned, which may also begin in this process."""


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

    def begin(self, run: Run, number: int) -> None:
        """Begin a step, unless it is open. The previous one ends."""
        if number == self.number and self.is_of(run):
            return
        self.end()
        with harmless("step"):
            self.number, self._run = number, run
            self._span = run.step(number)
            self._span.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """End the step, if one is open."""
        with harmless("step"):
            span, self._span = self._span, None
            if span is not None:
                span.__exit__(None if error is None else type(error), error, None)


TIMED = OpenStep()
"""The step of the trainer whose timers are recorded; `timers` begins it."""


class Recording:
    """A training, with its open step and phase, in the current run or in a run that begins with it.

    Args:
        trainer: The object that trains. Recordings without one belong to the training that is open.
        after: The recording of an earlier training, which this one continues from a checkpoint.
        options: Keywords of `otel_rl.init`; without effect if a run exists.

    Raises:
        SettingsError: There is no run yet, and a setting is wrong.
    """

    def __init__(self, trainer: object = None, after: Recording | None = None, **options: Any) -> None:
        _finish_resting()
        before = after if after is not None and after._own else None
        if before is not None:
            before.finish()  # it may have failed; its steps are repeated
        self.trainer = trainer
        self._step = OpenStep()
        self._phase: Phase | NoSpan | None = None
        found = otel_rl.current()
        self._own: bool = found is None
        self._options: dict[str, Any] = options
        if found is None:
            self._options = before._options | {"id": before.run.id} if before else _of_training(options)
            self.run: Run = otel_rl.init(**self._options)
            _trainings.setdefault(_place(self.run), 1)
            atexit.register(_finish_resting)  # before the run's own end, which does not wait for exporters
        else:
            logger.info("recording into run %s; the logger's own settings of exporters have no effect", found.id)
            self.run = _borrowed(found, trainer, after)
        self._recorded = otel_rl.current() or self.run
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Return whether it has neither finished nor failed."""
        return self in _open and otel_rl.current() is self._recorded

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

    def begin_step(self, number: int) -> None:
        """Begin a step, unless it is open. The previous one ends."""
        if number != self.number or not self.has_step:
            recorder_of(self._recorded).rests = False
            self.begin_phase()
            self._step.begin(self.run, number)

    def begin_phase(self, name: str = "") -> None:
        """End the open phase, and begin another one if a step is open and `name` is not empty."""
        with harmless("phase"):
            phase, self._phase = self._phase, None
            if phase is not None:
                phase.__exit__(None, None, None)
            if name and self.has_step:
                self._phase = self.run.phase(name)
                self._phase.__enter__()

    def end_step(self, error: BaseException | None = None) -> None:
        """End the open phase and the open step."""
        self.begin_phase()
        self._step.end(error)

    def abandon(self, error: BaseException | None = None) -> None:
        """End the training without its run: it raised an exception, which the script may catch."""
        self.end_step(error)
        _open.discard(self)

    def rest(self) -> None:
        """End the training. Its trainer may evaluate later, so the run ends with the next training or the process."""
        self.end_step()
        if self._own:
            recorder_of(self._recorded).rests = True
        else:
            _open.discard(self)

    def finish(self, timeout: float = 30.0) -> bool:
        """End the step, and the run if this recording began it; then wait for its exporters."""
        self.end_step()
        TIMED.end()
        _open.discard(self)
        return self.run.finish(timeout) if self._own else True


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
            recording.run.log(values, step=step)

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


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without texts, truth values and `None`."""
    return {name: value for name, value in values.items() if not isinstance(value, (str, bool)) and value is not None}


def flat(values: Mapping[str, Any], prefix: str = "", between: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, their names joined with slashes."""
    for name, value in values.items():
        full = f"{prefix}{between}{name}" if prefix else str(name)
        if isinstance(value, dict):
            yield from flat(value, full, between)
        else:
            yield full, value


_open: WeakSet[Recording] = WeakSet()


def _finish_resting() -> None:
    run = otel_rl.current()
    if run is not None and recorder_of(run).rests:
        run.finish()


_NAMES = {"log": "values", "table": "name", "queue": "name", "completions": "name", "trained": "", "dropped": ""}
"""The methods of a run that have a step, and their argument with names."""


class LaterTraining:
    """A run for a later training: its names have a prefix, and its steps follow those of earlier trainings.

    Args:
        run: The run.
        number: The number of the training, from 2.
    """

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._prefix = f"{number}/"
        recorder = recorder_of(run)
        self._first = 1 + max(recorder.last_begun, -1 if recorder.last_step is None else recorder.last_step)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._run, name)
        return partial(self._in_series, name, method) if name in _NAMES else method

    def step(self, number: int | None = None, /, *extra: Never, **attributes: object) -> StepSpan | NoSpan:
        """Return a context manager for a step."""
        return self._run.step(self._number(number), *extra, **attributes)

    def _in_series(
        self, name: str, method: Callable[..., None], *given: Any, step: int | None = None, **named: Any
    ) -> None:
        """Call a method of the run with the names and the step of this training."""
        try:
            argument = _NAMES[name]
            if name == "completions":
                named = {"name": name} | named
            if argument in named:
                named[argument] = self._renamed(named[argument])
            elif given and argument:
                given = (self._renamed(given[0]), *given[1:])
        except Exception as error:  # a foreign object's conversion may raise anything
            recorder_of(self._run).refuse_error(name, error)
        else:
            method(*given, step=self._number(step), **named)

    def _renamed(self, name: object) -> object:
        if isinstance(name, Mapping):
            return {f"{self._prefix}{one}": value for one, value in name.items()}
        return f"{self._prefix}{name}"

    def _number(self, step: int | None) -> int | None:
        try:
            return None if step is None else self._first + operator.index(step)
        except Exception:  # a foreign object's conversion may raise anything
            return step  # which the run refuses


def _of_training(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a training's run: the given ones, from the second training on with another id and name."""
    chosen = load({name: value for name, value in options.items() if name != "config"})
    if isinstance(chosen, JobSettings):  # `init` numbers the trainings of a job
        return options
    place = str(Path(chosen.dir).absolute()), chosen.project, chosen.id
    if place in _promised:
        _promised.remove(place)
        return options
    number = _next(place)
    if number == 1:
        return options
    run_id = f"{chosen.id}-{number}"
    logger.warning(
        "run %s has a training of this process already, and steps begin again; training %d is recorded as run %s",
        chosen.id,
        number,
        run_id,
    )
    return options | {"id": run_id, "name": f"{chosen.name}-{number}"}


def _borrowed(run: Run, trainer: object, after: Recording | None) -> Run:
    """Return the run for the first training and those that run together with it, or a `LaterTraining`."""
    others = [one for one in _open if one.is_of(run)]
    for one in [*others, *([after] if after is not None and after.is_of(run) else [])]:
        if one is after or trainer is None or one.trainer in (None, trainer):
            one.trainer = one.trainer or trainer
            return one.run
    if recorder_of(run).open_step is not None and not others:
        return run
    number = _next(_place(run))
    if number == 1:
        return run
    logger.warning(
        "run %s has a training already, and steps begin again; names of training %d begin with '%d/', and its "
        "steps go on after the last one",
        *(run.id, number, number),
    )
    return cast("Run", LaterTraining(run, number))


def elsewhere(options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `otel_rl.init` with which other processes record the next training of this process.

    Args:
        options: The keywords that are given. The environment and the settings file win over the others.

    Raises:
        SettingsError: A setting is wrong.
    """
    chosen = load({name: value for name, value in options.items() if name != "config"})
    place = {"project": chosen.project, "id": chosen.id, "name": chosen.name, "dir": str(Path(chosen.dir).absolute())}
    run = otel_rl.current()
    if run is not None and _place(run) == (place["dir"], place["project"], place["id"]):
        _trainings.setdefault(_place(run), 1)  # this process is its rank 0
    _promised.discard((place["dir"], place["project"], place["id"]))
    found = _of_training(options | place)
    _promised.add((found["dir"], found["project"], found["id"]))
    return found


def _next(place: Place) -> int:
    _trainings[place] = number = _trainings.get(place, 0) + 1
    return number


def _place(run: Run) -> Place:
    return str(run.dir.parent.parent), run.dir.parent.name, run.id
