"""`@traced`, which records the calls of a function as phases of the run of this process."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from otel_rl.trainer.current import current
from otel_rl.trainer.no_span import NO_SPAN, NoSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.trainer.phase import Phase

F = TypeVar("F", bound="Callable[..., Any]")


def traced(name: str, /, **attributes: object) -> Callable[[F], F]:
    """Return a decorator that records each call of a function as a phase; without a run it does nothing.

    Args:
        name: Name of the phase.
        attributes: Attributes of its span.

    Raises:
        TypeError: The function is a generator, whose call does no work yet.
    """

    def decorate(function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator; use `with run.phase({name!r})` inside it")

        def phase() -> Phase | NoSpan:
            return NO_SPAN if (run := current()) is None else run.phase(name, **attributes)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with phase():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with phase():
                return await function(*args, **kwargs)

        return cast("F", call_async if inspect.iscoroutinefunction(function) else call)

    return decorate
