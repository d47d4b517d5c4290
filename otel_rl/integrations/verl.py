"""verl: what its `Tracking` gets, and its timers.

    otel-rl run -- python -m verl.trainer.main_ppo …

or, in the trainer's process before verl's trainer is imported, `otel_rl.integrations.instrument.instrument("verl")`.
verl's own backends stay as they are. Rows have verl's names at verl's steps; the configuration is hyper-parameters.
`marked_timer("step", …)` begins a step, whose number is the trainer's `global_steps` and which lasts until the next
one, so that `testing` is in it; what else is timed are phases: `gen`, `reward`, `old_log_prob`, `adv`, `update_actor` …

`main_ppo` runs the trainer in a Ray actor, which must have the variables that `otel-rl run` sets: a Ray that the driver
starts on this machine hands them on, elsewhere they belong into `runtime_env`. The trainer itself needs GPUs and was
not run; its tracking and its timers were, called as it calls them.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.run import Run

_STEP = "step"
_FRAMES = 8
_ARGUMENTS = ("project_name", "experiment_name", "default_backend", "config")


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record what goes through every `Tracking`."""
    recordings: dict[int, Recording] = {}

    def begin(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)
        with harmless("Tracking"):
            told = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
            recording = recordings[id(tracking)] = Recording(
                project=str(told["project_name"]), name=str(told["experiment_name"]), dialect="verl"
            )
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


def patch_timers(module: Any, patches: Patches) -> None:
    """Make steps and phases of what `marked_timer` and `simple_timer` time."""

    def timed(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(kwargs.get("name", args[0] if args else ""))
        return _recorded(name, function(*args, **kwargs))

    for name in ("marked_timer", "simple_timer"):
        if hasattr(module, name):
            patches.wrap(module, name, timed)


@contextmanager
def _recorded(name: str, timer: Any) -> Iterator[Any]:
    with ExitStack() as opened:
        with harmless("marked_timer"):
            run = otel_rl.current()
            if run is not None and name == _STEP:
                _begin_step(run)
            elif run is not None:
                opened.enter_context(run.phase(name))
        try:
            with timer as value:
                yield value
        except BaseException as error:
            if name == _STEP:
                _end_step(error)
            raise


def _begin_step(run: Run) -> None:
    """Begin a step, and end the one before: verl validates after its timer of the step has ended."""
    _end_step()
    number = _global_steps()
    if number is not None:
        run.step(number).__enter__()


def _end_step(error: BaseException | None = None) -> None:
    with harmless("step"):
        run = otel_rl.current()
        if run is not None and run.open_step is not None:
            run.open_step.__exit__(None if error is None else type(error), error, None)


def _global_steps() -> int | None:
    """Return the trainer's number of the step: of the object whose method is timed."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        number = getattr(frame.f_locals.get("self"), "global_steps", None)
        if isinstance(number, int):
            return number
    return None


def _numbers(data: Any) -> dict[str, Any]:
    return {name: value for name, value in data.items() if not isinstance(value, (str, bool)) and value is not None}
