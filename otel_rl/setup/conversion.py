"""Convert a value that somebody gave for a setting, and say what is allowed if it is invalid."""

from __future__ import annotations

import importlib
import operator
import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from otel_rl.errors import SettingsError
from otel_rl.errors.texts import shown, text_of
from otel_rl.setup import head
from otel_rl.setup.settings import ExporterSpec
from otel_rl.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LISTS = ("rows.metrics", "rows.quantiles", "hardware.engines")


def convert(path: str, value: object, kind: Any, label: str, *, from_text: bool) -> Any:
    """Return a value of a setting as the type that the setting has.

    Args:
        path: The setting, such as `rank` or `rows.every`.
        value: What was given for it.
        kind: Type of the setting, with its bounds.
        label: The setting and the value as the user wrote them, for errors.
        from_text: If true, a text is converted to a number or a boolean: variables are texts.

    Raises:
        SettingsError: The value is invalid.
    """
    try:
        return _converted(path, _exact(value), kind, strict=not from_text)
    except msgspec.ValidationError as error:
        raise SettingsError(f"invalid {label}: {_allowed(kind) or error}") from None
    except Exception as error:  # a foreign object's methods may raise anything
        raise SettingsError(f"invalid {label}: {text_of(error)}") from None


def _exact(value: object) -> object:
    """Return a text or a number without the methods of a subclass."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__index__(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _converted(path: str, value: Any, kind: Any, *, strict: bool) -> object:
    if path == "exporters":
        return exporter_specs(value)
    if path == "rows.metrics" and callable(value):
        value = _name_of_function(value)
    if path == "reduce" and isinstance(value, str):
        parts = (part.partition("=") for part in value.split(",") if part.strip())
        value = {pattern.strip(): _one_or_several(chosen) for pattern, _, chosen in parts}
    if path in _LISTS and isinstance(value, str) and (path != "rows.metrics" or "," in value):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    found = msgspec.convert(value, kind, strict=strict)
    if isinstance(found, str):
        found.encode()  # a lone surrogate names no file and cannot be written as JSON
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        raise ValueError("must fit into 64 bits")
    if found != found:  # noqa: PLR0124 - NaN
        raise ValueError("must be a number, not NaN")
    if path == "reduce":
        _check_reducers(found)
    if path == "rows.metrics" and isinstance(found, str):
        function_at(found)
    if path == "head" and found:
        head.parse(found)
    return found


def _allowed(kind: Any) -> str:
    """Return which values a type with bounds allows; empty if it has none."""
    each = "each must be" if getattr(kind, "__origin__", None) is tuple else "must be"
    one = get_args(kind)[0] if each != "must be" else kind
    for bounds in getattr(one, "__metadata__", ()):
        if bounds.description is not None:
            return f"{each} {bounds.description}"
        number = "a whole number" if one.__origin__ is int else "a number"
        if bounds.le is not None:
            return f"{each} {number} between {bounds.ge} and {bounds.le}"
        return f"{each} {number} {f'above {bounds.gt}' if bounds.gt is not None else f'of at least {bounds.ge}'}"
    listed = [value for value in get_args(kind) if isinstance(value, str)]
    return f"must be one of {', '.join(map(repr, sorted(listed)))}" if listed else ""


def _one_or_several(text: str) -> str | tuple[str, ...]:
    several = tuple(part.strip() for part in text.split("|"))
    return several if len(several) > 1 else several[0]


def _check_reducers(reducers: Mapping[str, str | tuple[str, ...]]) -> None:
    for pattern, chosen in reducers.items():
        for statistic in (chosen,) if isinstance(chosen, str) else chosen:
            try:
                statistics.parse(statistic)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None


def exporter_specs(value: object) -> tuple[ExporterSpec, ...]:
    """Return the exporters that were asked for by names, mappings of options, or factories.

    Raises:
        ValueError: One is invalid, or named twice.
    """
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, (list, tuple)):
        raise ValueError("expected a list such as ['tensorboard', {'wandb': {'mode': 'offline'}}]")
    specs: list[ExporterSpec] = []
    for item in value:
        if isinstance(item, str):
            specs.append(ExporterSpec(item))
        elif isinstance(item, dict):
            specs.extend(_with_options(str(name), options) for name, options in item.items())
        elif (name := _importable_name(item)) is not None:
            specs.append(ExporterSpec(name))
        elif callable(item) or hasattr(item, "log_scalar") or hasattr(item, "export"):
            specs.append(ExporterSpec(f"in_process.{len(specs)}", factory=item))
        else:
            raise ValueError(f"{shown(item)} is neither a name, nor a mapping of options, nor a factory")
    names = [spec.name for spec in specs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is named twice")
    return tuple(specs)


def _with_options(name: str, options: object) -> ExporterSpec:
    if options is not None and not isinstance(options, dict):
        raise ValueError(f"the options of {name!r} must be a mapping such as {{'mode': 'offline'}}")
    return ExporterSpec(name, dict(options or {}))


def function_at(name: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]] | None:
    """Return the function that `module:qualname` names; `None` if the text has another form.

    Raises:
        ValueError: It cannot be imported or called.
    """
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        return None
    module, _, qualname = name.partition(":")
    try:
        found: Any = operator.attrgetter(qualname)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} is not a function")
    return cast("Callable[[Mapping[str, Any]], Mapping[str, Any]]", found)


def _name_of_function(function: object) -> str:
    name = _importable_name(function)
    if name is None:
        raise ValueError("the agent cannot import this function: define it at the top of a module")
    return name


def _importable_name(factory: object) -> str | None:
    """Return the name by which another process can import a factory; `None` if there is none."""
    module, qualname = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualname}" if found is factory and module != "__main__" else None
