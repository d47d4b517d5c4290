"""Trainers with named timers, one of them for the step: verl, SkyRL, NeMo-RL, OpenRLHF."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.patches import harmless
from otel_rl.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import FrameType

    from otel_rl.trainer.no_span import NoSpan
    from otel_rl.trainer.phase import Phase

_BETWEEN = ("otel_rl", "contextlib", "wrapt")
"""The packages whose frames are between a timer and the function that calls it."""


class Timers:
    """The timers of a framework: each name is a phase, with its part behind a slash; one of them is the step.

    A step lasts until the next one begins, because trainers validate after their timer of the step has ended. Beginning
    the open step again has no effect.

    Args:
        step: The name under which steps are timed.
        number: Returns the step's number from the variables of the function that calls the timer.
        before: Phases of a step that the framework times before its timer of the step. They begin the step.
        module: The framework's module of the timer, if one of its functions calls another one.
    """

    def __init__(
        self,
        step: str,
        number: Callable[[Mapping[str, Any]], object],
        *,
        before: Collection[str] = (),
        module: str = "",
    ) -> None:
        self._step = step
        self._number = number
        self._beginnings = {step, *before}
        self._module = module

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the body under a name."""
        phase = self.begin(name)
        try:
            yield
        except BaseException as error:
            self.end(name, phase, error)
            raise
        self.end(name, phase)

    @contextmanager
    def around(self, name: str, timer: AbstractContextManager[Any]) -> Iterator[Any]:
        """Record the body under a name, inside the framework's own timer."""
        with self.timed(name), timer as value:
            yield value

    def begin(self, name: str) -> Phase | NoSpan | None:
        """Begin a phase and return it, or begin a step and return `None`."""
        with harmless("timer"):
            run = otel_rl.current()
            if run is not None and name in self._beginnings:
                number = self._number_here()
                step = recorder_of(run).open_step
                if step is None or step.number != number:
                    end_step()
                    if number is not None:
                        run.step(number).__enter__()
            if run is not None and name != self._step:
                name, _, part = name.partition("/")
                phase = run.phase(name)
                return (phase.part(part) if part else phase).__enter__()
        return None

    def end(self, name: str, phase: Phase | NoSpan | None, error: BaseException | None = None) -> None:
        """End the phase that `begin` returned, or a step that failed."""
        with harmless("timer"):
            if phase is not None:
                phase.__exit__(None if error is None else type(error), error, None)
        if name == self._step and error is not None:
            end_step(error)

    def _number_here(self) -> int | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and self._is_between(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        number = None if frame is None else self._number(frame.f_locals)
        return number if isinstance(number, int) else None

    def _is_between(self, module: str) -> bool:
        return module == self._module or module.partition(".")[0] in _BETWEEN


def attribute_of_self(name: str) -> Callable[[Mapping[str, Any]], object]:
    """Return a function that reads the step's number from an attribute of the trainer whose method is timed."""
    return lambda variables: getattr(variables.get("self"), name, None)


def end_step(error: BaseException | None = None) -> None:
    """End the open step, if there is one."""
    with harmless("step"):
        run = otel_rl.current()
        step = None if run is None else recorder_of(run).open_step
        if step is not None:
            step.__exit__(None if error is None else type(error), error, None)
