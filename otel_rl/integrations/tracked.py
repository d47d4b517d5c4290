"""Trainers that log through a `Tracking` and time what they do under names, the step among them: verl and SkyRL."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_rl.phase import Phase
    from otel_rl.run import Run
    from otel_rl.spans import NoSpan

_STEP = "step"
_FRAMES = 8


def patch_tracking(module: Any, patches: Patches, *, dialect: str, arguments: Sequence[str]) -> None:
    """Record what goes through every `Tracking`.

    Args:
        module: That holds the class.
        patches: Where the hooks are kept.
        dialect: What its names mean.
        arguments: What the class is made with, in order; `project_name`, `experiment_name` and `config` among it.
    """
    recordings: dict[int, Recording] = {}

    def begin(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)
        with harmless("Tracking"):
            told = dict(zip(arguments, args, strict=False)) | kwargs
            place = {"project": str(told["project_name"]), "name": str(told["experiment_name"])}
            recording = recordings[id(tracking)] = Recording(**place, dialect=dialect)
            if told.get("config"):
                recording.run.params(told["config"])

    def log(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("Tracking.log"):
            if (recording := recordings.get(id(tracking))) is not None:
                told = dict(zip(("data", "step"), args, strict=False)) | kwargs
                recording.run.log(_numbers(told["data"]), step=told["step"])
        return answer

    def end(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with harmless("Tracking"):
            if (recording := recordings.pop(id(tracking), None)) is not None:
                _end_step()
                recording.finish()
        return function(*args, **kwargs)

    patches.wrap(module, "Tracking.__init__", begin)
    patches.wrap(module, "Tracking.log", log)
    for name in ("finish", "__del__"):
        if name in vars(module.Tracking):
            patches.wrap(module, f"Tracking.{name}", end)


@contextmanager
def timed(name: str, attribute: str) -> Iterator[None]:
    """Record what is timed under a name.

    What is called `step` begins a step, which lasts until the next one: trainers validate after their timer of the step
    has ended. Its number is what an attribute of the trainer says, the object whose method is being timed.
    """
    phase = begin(name, attribute)
    try:
        yield
    except BaseException as error:
        end(name, phase, error)
        raise
    end(name, phase)


def begin(name: str, attribute: str) -> Phase | NoSpan | None:
    """Begin what `timed` records; return the phase, if it is one."""
    with harmless("timer"):
        run = otel_rl.current()
        if run is not None and name != _STEP:
            return run.phase(name).__enter__()
        if run is not None:
            _begin_step(run, attribute)
    return None


def end(name: str, phase: Phase | NoSpan | None, error: BaseException | None = None) -> None:
    """End it."""
    with harmless("timer"):
        if phase is not None:
            phase.__exit__(None if error is None else type(error), error, None)
    if name == _STEP and error is not None:
        _end_step(error)


def _begin_step(run: Run, attribute: str) -> None:
    _end_step()
    number = _number_of_step(attribute)
    if number is not None:
        run.step(number).__enter__()


def _end_step(error: BaseException | None = None) -> None:
    with harmless("step"):
        run = otel_rl.current()
        if run is not None and run.open_step is not None:
            run.open_step.__exit__(None if error is None else type(error), error, None)


def _number_of_step(attribute: str) -> int | None:
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        number = getattr(frame.f_locals.get("self"), attribute, None)
        if isinstance(number, int):
            return number
    return None


def _numbers(data: Any) -> dict[str, Any]:
    return {name: value for name, value in data.items() if not isinstance(value, (str, bool)) and value is not None}
