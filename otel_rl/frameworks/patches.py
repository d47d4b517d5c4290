"""Hooks into other packages that can be removed again, and that never break the package."""

from __future__ import annotations

import atexit
from functools import partial
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.recorder.errors.guard import Guard
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = log_of("otel_rl")

Wrapper = "Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]"
"""A replacement for a function. It gets the function, the object that it is bound to, and its arguments."""


class Patches:
    """Replaced attributes of other packages, restored at exit: some `__del__` run after modules are cleared.

    Attributes:
        active: If false, the wrappers only call the original function. Other code may keep a wrapper after `undo`.
    """

    def __init__(self) -> None:
        self.active = True
        self._undo: list[Callable[[], None]] = []
        atexit.register(self.undo)

    def wrap(self, owner: Any, path: str, wrapper: Callable[..., Any]) -> None:
        """Put a wrapper around a function. If the function does not exist, log a warning and continue.

        Args:
            owner: A module or a class.
            path: Name of the function in it, with dots.
            wrapper: Called as `wrapper(function, instance, args, kwargs)`.
        """
        import wrapt  # where something is instrumented

        from otel_rl.frameworks.wrappers import Wrapped

        try:
            parent, name, original = wrapt.resolve_path(owner, path)
        except AttributeError:
            logger.warning("%s has no %s; calls of it are not recorded", getattr(owner, "__name__", owner), path)
            return

        def call(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return wrapper(function, instance, args, kwargs) if self.active else function(*args, **kwargs)

        replaced = Wrapped(original, call)
        setattr(parent, name, replaced)
        self._undo.append(lambda: _restore(parent, name, replaced, original))

    def observe(
        self,
        owner: Any,
        path: str,
        names: Sequence[str],
        record: Callable[[Any, dict[str, Any]], object],
        *,
        what: str = "",
        first: bool = False,
    ) -> None:
        """Call `record` after each call of a function, with its arguments and answer. Errors of `record` are counted.

        Args:
            owner: A module, a class or an object.
            path: Name of the function in it, with dots.
            names: Names of the positional arguments, in order.
            record: Gets the object that the function is bound to, and the arguments by name, with the answer as
                "return".
            what: The name under which errors are counted; by default the last part of `path`.
            first: If true, `record` is called before the function.
        """

        def call(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            answer = {} if first else {"return": function(*args, **kwargs)}
            with harmless(what or path.rpartition(".")[2]):
                record(instance, dict(zip(names, args, strict=False)) | kwargs | answer)
            return function(*args, **kwargs) if first else answer["return"]

        self.wrap(owner, path, call)

    def at_undo(self, restore: Callable[[], None]) -> None:
        """Call a function when the hooks are removed."""
        self._undo.append(restore)

    def undo(self) -> None:
        """Restore the original functions, except where other code has replaced them since."""
        self.active = False
        # The last one first: a wrapper around another one has that one as its original.
        while self._undo:
            self._undo.pop()()


def wrap_method(instance: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put a wrapper around a method of one object, if it has the method and no wrapper yet.

    It is never removed: `Patches` would keep the object, and the model of a trainer, until the process ends.
    """
    from otel_rl.frameworks.wrappers import Wrapped

    if hasattr(instance, name) and not isinstance(vars(instance).get(name), Wrapped):
        setattr(instance, name, Wrapped(getattr(instance, name), wrapper))


def _restore(parent: Any, name: str, replaced: Any, original: Any) -> None:
    if vars(parent).get(name) is replaced:
        setattr(parent, name, original)


def harmless(what: str) -> Guard:
    """Return a guard that keeps exceptions of its block away from the trainer. The current run counts them."""
    return Guard(partial(_count, what))


def _count(what: str, error: Exception) -> None:
    run = otel_rl.current()
    if run is None:
        logger.warning("%s: %s", what, error, exc_info=error)
    else:
        recorder_of(run).refuse_error(what, error)
