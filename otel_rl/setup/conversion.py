"""Convert a value that somebody gave for a setting, and say what is allowed if it is invalid."""

from __future__ import annotations

import importlib
import inspect
import json
import operator
import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from otel_rl.errors import SettingsError
from otel_rl.errors.redaction.growth import slow_text
from otel_rl.errors.texts import shown, text_of
from otel_rl.setup import head
from otel_rl.setup.settings import ExporterSpec
from otel_rl.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LISTS = ("rows.metrics", "rows.quantiles", "hardware.engines", "redact.names")
_PATHS = ("dir", "local_dir")
"""Settings whose text may be any file name."""
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_PLAIN = {str: "a text", bool: "true or false (in the environment also 1 or 0, yes or no, on or off)"}


def convert(path: str, value: object, kind: Any, label: str, *, from_text: bool) -> Any:
    """Return a value of a setting as the type that the setting has.

    Args:
        path: The setting, such as `rank` or `rows.every`.
        value: What was given for it.
        kind: Type of the setting, with its bounds.
        label: The setting and the value as the user wrote them, for errors.
        from_text: If true, a text is converted to a number or a boolean: variables are texts, and 7e9 in YAML.

    Raises:
        SettingsError: The value is invalid.
    """
    try:
        return _converted(path, value, kind, strict=not from_text)
    except msgspec.ValidationError:
        raise SettingsError(f"invalid {label}: must be {_allowed(kind)}") from None
    except Exception as error:  # a foreign object's methods may raise anything
        raise SettingsError(f"invalid {label}: {text_of(error)}") from None


def _exact(value: object) -> object:
    """Return a text or a number, alone or in a list, as Python's own: those of NumPy have types of their own."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return [_exact(one) for one in value]
    if not isinstance(value, bool) and any(hasattr(type(value), name) for name in ("__index__", "__float__")):
        for name in ("item", "__index__", "__float__"):
            with suppress(Exception):  # an array of several elements, or a foreign object
                if type(found := getattr(value, name)()) in (bool, int, float):
                    return found
    return value


def _converted(path: str, value: Any, kind: Any, *, strict: bool) -> object:
    if path == "exporters":
        specs = exporter_specs(value)
        _check_encoding([spec.name for spec in specs])
        return specs
    value = _exact(value)
    if path in ("rows.metrics", "redact.function") and callable(value):
        value = _importable_name(value)
        if value is None:
            raise ValueError("other processes cannot import this function: define it at the top of a module")
    if path == "reduce" and isinstance(value, str):
        value = _reducers(value)
    if path in _LISTS and isinstance(value, str) and (path != "rows.metrics" or "," in value):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    if path == "redact.patterns" and isinstance(value, str):
        value = _expressions(value)
    if isinstance(value, os.PathLike) or (path in _PATHS and isinstance(value, bytes)):
        value = os.fsdecode(value)
    if kind is bool and isinstance(value, str) and not strict:
        value = _BOOLEANS.get(value.strip().lower(), value)
    found = msgspec.convert(value, kind, strict=strict)
    if path not in _PATHS:
        _check_encoding(found)
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        raise ValueError("must fit into 64 bits")
    if found and path in _CHECKS:
        _CHECKS[path](found)
    if path == "rows.metrics" and isinstance(found, str) and function_at(found) is None:
        _check_pattern(found)
    return found


def _check_encoding(value: object) -> None:
    """Raise if there is a lone surrogate at any depth: the agent gets settings as JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise ValueError("must be valid UTF-8") from None


def _allowed(kind: Any) -> str:
    """Return which values a type allows."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    for bounds in getattr(kind, "__metadata__", ()):
        if bounds.description is not None:
            return str(bounds.description)
        number = "a whole number" if kind.__origin__ is int else "a number"
        most = "" if bounds.le is None else f"{bounds.le:g}".replace("e+0", "e").replace("e+", "e")
        if bounds.ge is not None:
            return f"{number} between {bounds.ge} and {most}" if most else f"{number} of at least {bounds.ge}"
        return f"{number} above {bounds.gt}, at most {most}" if most else f"{number} above {bounds.gt}"
    return f"one of {', '.join(map(repr, sorted(get_args(kind))))}"


def _reducers(text: str) -> dict[str, str | list[str]]:
    """Return the reducers in a text such as `tokens=sum,reward=mean|p95`."""
    found: dict[str, str | list[str]] = {}
    for part in filter(str.strip, text.split(",")):
        pattern, _, chosen = (one.strip() for one in part.partition("="))
        if not pattern or not chosen:
            raise ValueError(f"{part!r}: expected pattern=statistic; several statistics with |, as in reward=mean|p95")
        found[pattern] = [one.strip() for one in chosen.split("|")] if "|" in chosen else chosen
    return found


def _check_reducers(reducers: Mapping[str, str | tuple[str, ...]]) -> None:
    for pattern, chosen in reducers.items():
        if not chosen:
            raise ValueError(f"{pattern!r}: name at least one statistic")
        for statistic in (chosen,) if isinstance(chosen, str) else chosen:
            try:
                statistics.parse(statistic)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None


def _expressions(text: str) -> list[str]:
    """Return the expressions of a variable: a list in JSON, or one expression, which may contain commas."""
    return json.loads(text) if text.lstrip().startswith('["') else [text]


def _check_expressions(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            matches_nothing = re.compile(pattern).search("") is not None
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        if matches_nothing:
            raise ValueError(f"{pattern!r} matches an empty text")
        if slow := slow_text(pattern):
            raise ValueError(
                f"{pattern!r} takes exponential time for {slow[1]} times {slow[0]!r}: write a+ instead of (a+)+"
            )


def _check_function(name: str) -> None:
    function = function_at(name)
    if function is None:
        raise ValueError("must be 'module:qualname', such as 'my_project.secrets:clean'")
    try:
        inspect.signature(function).bind("text", "name")
    except TypeError as error:
        raise ValueError(f"{name} must take a text and a name: {error}") from None


def _check_reaction(text: str) -> None:
    """Raise if a text is neither a command whose program exists nor the URL of a webhook."""
    words = shlex.split(text)
    if not re.match(r"https?://[^/\s]", text) and shutil.which(words[0] if words else "") is None:
        raise ValueError(f"there is no program {words[0] if words else ''!r} on the PATH; give a command or a URL")


_CHECKS: dict[str, Callable[[Any], object]] = {
    "reduce": _check_reducers,
    "redact.patterns": _check_expressions,
    "redact.function": _check_function,
    "head": head.parse,
    "on_event": _check_reaction,
}
"""Further checks of settings, which raise `ValueError`."""


def _check_pattern(text: str) -> None:
    """Raise if a text is neither a word nor a pattern: one name is probably a mistake."""
    if text and text not in ("usual", "full") and not set(text) & set("*?[!"):
        raise ValueError(f"must be 'usual', 'full', a pattern such as 'time/*', or a list of names such as [{text!r}]")


def exporter_specs(value: object) -> tuple[ExporterSpec, ...]:
    """Return the exporters that were asked for by names, mappings of options, or factories.

    Raises:
        ValueError: One is invalid, or named twice.
    """
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()] if value.strip() != "none" else []
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list such as ['tensorboard', {'wandb': {'mode': 'offline'}}]")
    specs: list[ExporterSpec] = []
    for item in value:
        if isinstance(item, str):
            specs.append(ExporterSpec(str.__str__(item)))
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
    try:
        held = json.loads(
            json.dumps(dict(options or {}), default=_for_json, allow_nan=False, ensure_ascii=False).encode()
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"the options of {name!r} go to the agent as JSON: {text_of(error)}") from None
    return ExporterSpec(name, held)


def _for_json(value: object) -> object:
    found = os.fspath(value) if isinstance(value, os.PathLike) else _exact(value)
    if found is value:
        raise TypeError(f"{shown(value)} is not a text, number, list or mapping")
    return found


def function_at(name: str) -> Callable[..., Any] | None:
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
    return cast("Callable[..., Any]", found)


def _importable_name(factory: object) -> str | None:
    """Return the name by which another process can import a factory; `None` if there is none."""
    module, qualname = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    is_found = found is not None and found is factory and module != "__main__"
    return f"{module}:{qualname}" if is_found else None
