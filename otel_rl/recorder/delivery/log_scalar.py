"""Adapts objects that only have `log_scalar(event, value, **kwargs)` and `close()` to exporters.

This is the protocol of google/metrax's logging backends, which Tunix uses.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from otel_rl.export import Exporter, Row
from otel_rl.recorder.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, RunInfo


@runtime_checkable
class LogsScalars(Protocol):
    """A backend that accepts one value at a time."""

    def log_scalar(self, event: str, value: float, **kwargs: Any) -> None:
        """Log the value of `event`; `step` is among the keywords."""

    def close(self) -> None:
        """Write buffered values."""


class LogScalarExporter:
    """Passes each value of each row to a backend, with its step."""

    def __init__(self, backend: LogsScalars) -> None:
        self._backend = backend

    def export(self, items: Sequence[Item]) -> None:
        """Log the values of the rows."""
        for item in items:
            if isinstance(item, Row):
                for name, value in item.values.items():
                    self._backend.log_scalar(name, value, step=item.step)

    def shutdown(self) -> None:
        """Close the backend."""
        self._backend.close()


def adapted(factory: Any) -> Callable[..., Exporter]:
    """Return a factory for an exporter that a user gave.

    The user may give a class or function that is called with the run or without arguments, or an object.

    Raises:
        SettingsError: The result is neither an exporter nor a backend with `log_scalar`.
    """
    if isinstance(factory, type) and not hasattr(factory, "log_scalar"):
        return factory
    if not callable(factory):
        _exporter(factory)
        return lambda run: _exporter(factory)
    if isinstance(factory, type):
        missing = [name for name in ("log_scalar", "close") if not callable(getattr(factory, name, None))]
        if missing:
            raise SettingsError(f"exporters: {factory!r} has no method {missing[0]}()")
    elif _takes_run(factory):
        return factory  # type: ignore[no-any-return]

    def build(run: RunInfo, **options: Any) -> Exporter:
        return _exporter(factory(**options))

    with contextlib.suppress(ValueError):  # a class written in C
        own = inspect.signature(factory)
        run = inspect.Parameter("_run", inspect.Parameter.POSITIONAL_ONLY)
        build.__signature__ = own.replace(parameters=[run, *own.parameters.values()])  # type: ignore[attr-defined]
    return build


def _takes_run(factory: Callable[..., object]) -> bool:
    parameters = inspect.signature(factory).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def _exporter(built: object) -> Exporter:
    if isinstance(built, Exporter):
        return built
    if isinstance(built, LogsScalars):
        return LogScalarExporter(built)
    raise SettingsError(f"exporters: {built!r} has neither export() and shutdown(), nor log_scalar() and close()")
