"""`@traced`, which records the calls of a function as phases of the run of this process."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.trainer.current import current
from otel_rl.recorder.trainer.no_span import NO_SPAN, NoSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.recorder.trainer.phase import Phase

F = TypeVar("F", bound="Callable[..., Any]")


@overload
def traced(function: F, /) -> F: ...
@overload
def traced(name: str = "", /, **attributes: object) -> Callable[[F], F]: ...
def traced(name: Any = "", /, **attributes: object) -> Any:
    """Record each call of a function as a phase; without a run it does nothing.

    It decorates functions, methods, coroutine functions and other callables, with or without parentheses: `@traced`,
    `@traced("generate")`, `@traced(host="a")`.

    Args:
        name: Name of the phase; by default that of the function.
        attributes: Attributes of its span.

    Raises:
        TypeError: It decorates a generator, whose call does no work yet, a class, or no function; the message names
            the fix.
    """
    if isinstance(name, str):
        called = name if str.__len__(name) else attributes.pop("name", "")
        return functools.partial(_decorated, name=called, attributes=attributes)
    if callable(name) or hasattr(type(name), "__get__"):
        return _decorated(cast("Callable[..., Any]", name), "", attributes)
    return functools.partial(_decorated, name=name, attributes=attributes)


def _decorated(function: F, name: object, attributes: dict[str, object]) -> F:
    if isinstance(function, (staticmethod, classmethod)):
        return cast("F", type(function)(_decorated(function.__func__, name, attributes)))
    if inspect.isclass(function) or not callable(function) or hasattr(function, "remote"):  # as Ray's functions
        raise TypeError(f"@traced cannot record {shown(function)}; use it on a function or on methods of a class")
    is_named = not isinstance(name, str) or str.__len__(name)
    called: Any = name if is_named else getattr(function, "__name__", type(function).__name__)
    is_plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    body = function if is_plain else type(function).__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        itself = getattr(function, "__qualname__", called)
        raise TypeError(f"{itself} is a generator; use `with run.phase({shown(called)})` inside it")

    def phase() -> Phase | NoSpan:
        return NO_SPAN if (run := current()) is None else run.phase(called, **attributes)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with phase():
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with phase():
            return await function(*args, **kwargs)

    return cast("F", call_async if inspect.iscoroutinefunction(body) else call)
