"""Trainers with named timers, one of them for the step: verl, SkyRL, NeMo-RL, ROLL, Trinity-RFT, Tunix, OpenRLHF."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.frames import read
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import TIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from types import FrameType

    from otel_rl.frameworks.patches import Patches
    from otel_rl.recorder.trainer.no_span import NoSpan
    from otel_rl.recorder.trainer.phase import Phase

_BETWEEN = ("otel_rl", "contextlib", "wrapt")
"""The packages whose frames are between a timer and the function that calls it."""
_OPEN = "_otel_rl_open"


class Timers:
    """The timers of a framework: each name is a phase, with its part behind a slash; one of them is the step.

    A step lasts until the next one begins, because trainers validate after their timer of the step has ended. Beginning
    the open step again has no effect.

    Args:
        step: The name under which steps are timed.
        number: Returns the step's number from the variables of the function that calls the timer; `None` if it is not
            a trainer's.
        before: Phases of a step that the framework times before its timer of the step. They begin the step. If `None`,
            every phase begins it.
        module: The framework's module of the timer, if one of its functions calls another one.
    """

    def __init__(
        self,
        step: str,
        number: Callable[[Mapping[str, Any]], object],
        *,
        before: Collection[str] | None = (),
        module: str = "",
    ) -> None:
        self._step = step
        self._number = number
        self._beginnings = None if before is None else {step, *before}
        self._module = module

    def hook_timer(
        self, patches: Patches, owner: Any, path: str, name: Callable[[Any], str], *, awaited: bool = False
    ) -> None:
        """Record each `with` block of a timer.

        Args:
            patches: Gets the hooks.
            owner: The module of the timer's class.
            path: The class.
            name: Returns the name of a timer; an empty one is not recorded.
            awaited: If true, `async with` blocks are recorded too.
        """

        def enter(function: Callable[..., Any], timer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with harmless("timer"):
                if of_timer := name(timer):
                    timer.__dict__[_OPEN] = of_timer, self.begin(of_timer)
            return function(*args, **kwargs)

        def leave(function: Callable[..., Any], timer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            # A timer has none if it has no name, or was entered before the hook was put in.
            of_timer, phase = timer.__dict__.pop(_OPEN, ("", None))
            self.end(of_timer, phase, args[1] if len(args) > 1 else None)
            return function(*args, **kwargs)

        for letter in ("", "a") if awaited else ("",):
            patches.wrap(owner, f"{path}.__{letter}enter__", enter)
            patches.wrap(owner, f"{path}.__{letter}exit__", leave)

    def hook_context(self, patches: Patches, owner: Any, path: str) -> None:
        """Record the context managers that a function returns, under its first argument, `name`."""

        def call(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._around(str(kwargs.get("name", args[0] if args else "")), function(*args, **kwargs))

        patches.wrap(owner, path, call)

    def hook_method(self, patches: Patches, owner: Any, path: str, phase: str = "") -> None:
        """Record the calls of a method as a phase, by default with the method's name."""
        patches.wrap(owner, path, partial(self._call, phase or path.rpartition(".")[2]))

    def begin_step(self, number: int) -> None:
        """Begin a step, unless it is open."""
        with harmless("timer"):
            if (run := otel_rl.current()) is not None:
                TIMED.begin(run, number)

    def begin(self, name: str) -> Phase | NoSpan | None:
        """Begin a phase and return it, or begin a step and return `None`."""
        with harmless("timer"):
            if (run := otel_rl.current()) is None:
                return None
            if (self._beginnings is None or name in self._beginnings) and (number := self.number_here()) is not None:
                TIMED.begin(run, number)
            if name != self._step:
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
            TIMED.end(error)

    def number_here(self) -> int | None:
        """Return the number of the step in the function that calls the timer; `None` if it is not a trainer's."""
        number = self.look(self._number)
        return number if isinstance(number, int) else None

    def look(self, at: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Return what `at` finds among the variables of the framework's function that calls otel-rl's hook."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and self._is_between(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        return None if frame is None else read(frame, at)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the body as a phase."""
        phase = self.begin(name)
        try:
            yield
        except BaseException as error:
            self.end(name, phase, error)
            raise
        self.end(name, phase)

    @contextmanager
    def _around(self, name: str, timer: Any) -> Iterator[Any]:
        """Record the body, inside the framework's own timer."""
        with self.timed(name), timer as value:
            yield value

    def _call(
        self, name: str, function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with self.timed(name):
            return function(*args, **kwargs)

    def _is_between(self, module: str) -> bool:
        return module == self._module or module.partition(".")[0] in _BETWEEN


def attribute_of_self(name: str) -> Callable[[Mapping[str, Any]], object]:
    """Return a function that reads the step's number from an attribute of the trainer whose method is timed."""
    return lambda variables: getattr(variables.get("self"), name, None)
