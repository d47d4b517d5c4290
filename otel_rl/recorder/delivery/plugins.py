"""Finds exporters and metric readers by name, and checks them before a run depends on them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
import typing
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any

from otel_rl.export import ENTRY_POINT_GROUP
from otel_rl.recorder.delivery.log_scalar import adapted
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.texts import meant, shown, text_of
from otel_rl.recorder.interrupts import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import Exporter

Factory = Any
"""A class or a function; called as `factory(run, **options)`."""
_IS_INTERNAL = re.compile(r"head|.+_(attached|logs|traces)").fullmatch
"""What otel-rl adds to the exporters that a user names."""
OTLP = "otlp_traces", "otlp_logs"
"""The exporters that a user names `otlp`."""


def public(group: str) -> list[str]:
    """Return the names in an entry point group that a user can give."""
    return sorted(name for name in importlib.metadata.entry_points(group=group).names if not _IS_INTERNAL(name))


def find(group: str, name: str) -> Factory:
    """Return the factory registered as `name` in an entry point group, or importable as `module:qualname`.

    Raises:
        SettingsError: There is none, or its module raises; the message lists the known names, or the error.
    """
    known = {point.name: point for point in importlib.metadata.entry_points(group=group)}
    if ":" not in name and name not in known:
        raise SettingsError(
            f"exporters: unknown exporter {name!r}{meant(name, {'prometheus', 'otlp', *public(group)})}"
        )
    try:
        return pkgutil.resolve_name(name) if ":" in name else known[name].load()
    except Exception as error:  # its module may raise anything
        let_pass(error)
        raise SettingsError(f"the exporter {name!r} cannot be imported: {text_of(error)}") from error


def find_exporter(name: str) -> Callable[..., Exporter]:
    """Return the factory of the exporter of this name.

    Raises:
        SettingsError: There is none, or it is not an exporter.
    """
    return adapted(find(ENTRY_POINT_GROUP, name))


def check(group: str, name: str, options: Mapping[str, object]) -> None:
    """Raise if the exporter cannot be built: it is unknown, its package is missing, or an option is invalid.

    Raises:
        SettingsError: The message names the fix.
    """
    factory = find(group, name)
    for module in getattr(factory, "requires", ()):
        if not _is_installed(module):
            raise SettingsError(
                f"the exporter {name!r} needs the package {module!r}, which is not installed; "
                f"pip install 'otel-rl[{getattr(factory, 'extra', name)}]'"
            )
    check_options(name, adapted(factory) if group == ENTRY_POINT_GROUP else factory, options)
    if callable(own := getattr(factory, "check", None)):
        try:
            own(**options)
        except ValueError as error:
            raise SettingsError(f"exporter {name!r}: {error}") from None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def check_options(name: str, factory: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raise if a factory cannot be called with the run and these options.

    Raises:
        SettingsError: The message lists the known options.
    """
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a class written in C
        return
    try:
        signature.bind(None, **options)
    except TypeError as error:
        accepted = ", ".join(list(signature.parameters)[1:]) or "none"
        raise SettingsError(f"exporter {name!r}: {error}; its options are: {accepted}") from None
    for option, value in options.items():
        choices = _choices(factory, getattr(signature.parameters.get(option), "annotation", object))
        if choices and not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
            allowed = ", ".join(map(repr, choices))
            raise SettingsError(f"exporter {name!r}: {option}={shown(value)} must be one of {allowed}")


def _choices(factory: object, annotation: object) -> list[object]:
    """Return the values that an option may have if its type is a `Literal`, or one and `None`; otherwise none."""
    module = vars(sys.modules.get(getattr(factory, "__module__", ""), typing))
    try:
        kind = typing.get_type_hints(SimpleNamespace(__annotations__={"option": annotation}), module)["option"]
    except (NameError, TypeError, SyntaxError, AttributeError):  # it exists for type checkers only
        return []
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else (kind,)
    if any(typing.get_origin(kind) is not typing.Literal and kind is not type(None) for kind in kinds):
        return []
    return [value for kind in kinds for value in typing.get_args(kind) or (None,)]
