"""How a value that somebody gave for a setting becomes the value of the setting; the types of settings say which way.

Variables of the environment are texts, settings files have lists and mappings, and `init` gets any object.
"""

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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from otel_rl.recorder.errors.texts import shown, text_of
from otel_rl.recorder.secrets.growth import slow_text
from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Convert(NamedTuple):
    """The way of a setting's value, in the annotation of its type."""

    prepare: Callable[[Any], object] = lambda value: value  # before msgspec converts it to the type
    check: Callable[[Any], object] = bool  # raises `ValueError` if a value that is not empty is invalid
    is_complete: bool = False  # whether `prepare` returns the value itself, which may hold any object
    is_path: bool = False  # whether the text is a file name, of any bytes


class ExporterSpec(msgspec.Struct, frozen=True):
    """An exporter as the user asked for it."""

    name: str  # a registered name, or `module:qualname` of a factory
    options: dict[str, Any] = {}  # keyword arguments of the factory, in addition to the run
    factory: Any = None  # if only this process can call it; the exporter then runs in a thread here


def exact(value: object) -> object:
    """Return a text or a number, alone or in a list, as Python's own: those of NumPy have types of their own."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if not isinstance(value, bool) and any(hasattr(type(value), name) for name in ("__index__", "__float__")):
        for name in ("item", "__index__", "__float__"):
            with suppress(Exception):  # an array of several elements, or a foreign object
                if type(number := getattr(value, name)()) in (bool, int, float):
                    return number
    return value


def check_encoding(value: object) -> None:
    """Raise if there is a lone surrogate at any depth: the agent gets settings as JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise ValueError("must be valid UTF-8") from None


def listed(value: object) -> object:
    """Return the parts of a text that has commas between them."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def path_text(value: object) -> object:
    """Return a file name as a text."""
    return os.fsdecode(value) if isinstance(value, bytes) else value


def function_name(value: object) -> object:
    """Return the name by which another process can import a function.

    Raises:
        ValueError: None can.
    """
    if not callable(value):
        return value
    if (name := _importable_name(value)) is None:
        raise ValueError("other processes cannot import this function: define it at the top of a module")
    return name


def metrics(value: object) -> object:
    """Return the metrics that a text lists, or the name of a function of the values."""
    value = function_name(value)
    return listed(value) if isinstance(value, str) and "," in value else value


def check_metrics(value: str | tuple[str, ...]) -> None:
    """Raise if a text is neither a word, a pattern nor a function: one name is probably a mistake."""
    is_pattern = not isinstance(value, str) or value in ("usual", "full") or bool(set(value) & set("*?[!"))
    if not is_pattern and function_at(str(value)) is None:
        expected = f"'usual', 'full', a pattern such as 'time/*', or a list of names such as [{value!r}]"
        raise ValueError(f"must be {expected}")


def reducers(value: object) -> object:
    """Return the reducers in a text such as `tokens=sum,reward=mean|p95`."""
    if not isinstance(value, str):
        return value
    statistics_of: dict[str, str | list[str]] = {}
    for part in filter(str.strip, value.split(",")):
        pattern, _, chosen = (text.strip() for text in part.partition("="))
        if not pattern or not chosen:
            raise ValueError(f"{part!r}: expected pattern=statistic; several statistics with |, as in reward=mean|p95")
        statistics_of[pattern] = [text.strip() for text in chosen.split("|")] if "|" in chosen else chosen
    return statistics_of


def check_reducers(reducers: Mapping[str, str | tuple[str, ...]]) -> None:
    """Raise if a statistic is unknown."""
    for pattern, chosen in reducers.items():
        if not chosen:
            raise ValueError(f"{pattern!r}: name at least one statistic")
        for statistic in (chosen,) if isinstance(chosen, str) else chosen:
            try:
                statistics.parse(statistic)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None


def expressions(value: object) -> object:
    """Return the expressions of a variable: a list in JSON, or one expression, which may contain commas."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.lstrip().startswith('["') else [value]


def check_expressions(patterns: Iterable[str]) -> None:
    """Raise if a pattern is not an expression, matches an empty text, or takes exponential time."""
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


def check_function(name: str) -> None:
    """Raise if a name is not that of a function of a text and a name."""
    function = function_at(name)
    if function is None:
        raise ValueError("must be 'module:qualname', such as 'my_project.secrets:clean'")
    try:
        inspect.signature(function).bind("text", "name")
    except TypeError as error:
        raise ValueError(f"{name} must take a text and a name: {error}") from None


def check_reaction(text: str) -> None:
    """Raise if a text is neither a command whose program exists nor the URL of a webhook."""
    words = shlex.split(text)
    if not re.match(r"https?://[^/\s]", text) and shutil.which(words[0] if words else "") is None:
        raise ValueError(f"there is no program {words[0] if words else ''!r} on the PATH; give a command or a URL")


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
    check_encoding(names)
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
    plain = os.fspath(value) if isinstance(value, os.PathLike) else exact(value)
    if plain is value:
        raise TypeError(f"{shown(value)} is not a text, number, list or mapping")
    return plain


def function_at(name: str) -> Callable[..., Any] | None:
    """Return the function that `module:qualname` names; `None` if the text has another form.

    Raises:
        ValueError: It cannot be imported or called.
    """
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        return None
    module, _, qualname = name.partition(":")
    try:
        function: Any = operator.attrgetter(qualname)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}") from None
    if not callable(function):
        raise ValueError(f"{name} is not a function")
    return cast("Callable[..., Any]", function)


def _importable_name(factory: object) -> str | None:
    """Return the name by which another process can import a factory; `None` if there is none."""
    module, qualname = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    target: object = sys.modules.get(module)
    for part in qualname.split("."):
        target = getattr(target, part, None)
    is_found = target is not None and target is factory and module != "__main__"
    return f"{module}:{qualname}" if is_found else None
