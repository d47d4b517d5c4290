"""Flattening of hyperparameters for trackers: plain values, with secrets redacted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.recorder.errors.texts import LONGEST_NAME, encodable_text, shown, text_of
from otel_rl.recorder.secrets import REDACTED, hides, redacted_name, redacted_start, without_secret_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Plain = bool | int | float | str | None

_LONGEST_TEXT = 2000
_DEEPEST = 50
_USERS = frozenset({"user", "username", "user_name", "login", "email", "account"})
"""Names that make a `pass` next to them a password."""
_NO_LISTS = (str, bytes, bytearray, memoryview, range)


def flatten(config: object, refuse: Callable[[str, str], None] = lambda _, __: None) -> dict[str, Plain]:
    """Flatten `config`: nested names are joined with `.`, and list items are named by their index.

    A value whose name is that of a secret, such as `api_key`, is replaced by "[redacted]", and so are secrets in texts
    and after options in a list, such as `--api-key`.

    Args:
        config: A mapping, dataclass, struct, pydantic model or object with `to_dict`, nested at will, or another object
            with fields. Other values in it become their text.
        refuse: Called with a reason and a message for values that cannot be read or contain themselves.
    """
    return dict(_flat("", config, refuse, ()))


def _flat(
    name: str, value: object, refuse: Callable[[str, str], None], above: tuple[int, ...]
) -> Iterator[tuple[str, Plain]]:
    if hides(name, value):
        yield name, REDACTED
        return
    try:
        nested = _nested(value) if above else fields(value)
        if nested is not None and (id(value) in above or len(above) > _DEEPEST):
            raise ValueError("contains itself, or has too many levels")
        items = None if nested is None else [(_key(key), item) for key, item in nested.items()]
    except Exception as error:  # fields of unknown objects can raise anything
        refuse("params", f"params: {name or type(value).__name__}: {text_of(error)}")
        return
    if items is not None:
        meant = _meant(items)
        for key, item in items:
            called = f"{name}.{key}" if name else key
            if hides(meant.get(key.lower(), ""), item):
                yield called, REDACTED
            else:
                yield from _flat(called, item, refuse, (*above, id(value)))
    elif len(name) > LONGEST_NAME:
        refuse("params", f"params: a name of {len(name)} characters, {shown(name)}: {LONGEST_NAME} at most")
    elif value is None or type(value) in (bool, int, float, str):
        yield name, redacted_start(value, _LONGEST_TEXT, name) if isinstance(value, str) else value  # type: ignore[misc]
    else:
        yield name, text_of(value)[:_LONGEST_TEXT]


def _meant(items: list[tuple[str, object]]) -> dict[str, str]:
    """Return what names mean next to others: `pass` of a user, and `value` of a name."""
    beside = {key.lower(): item for key, item in items}
    named = beside.get("name", beside.get("key"))
    return {"pass": "password" if _USERS & beside.keys() else "", "value": named if isinstance(named, str) else ""}


def _key(key: object) -> str:
    if type(key) is not str:
        return encodable_text(text_of(key))
    return encodable_text(redacted_name(key) if len(key) <= LONGEST_NAME else key)  # a longer one is refused


def fields(value: object) -> Mapping[Any, object]:
    """Return what an object holds by name: the items of a mapping, or the fields of another object.

    Raises:
        Exception: It has none, or they cannot be read.
    """
    if (nested := _nested(value)) is not None:
        return nested
    if attributes := {
        name: attribute for name, attribute in getattr(value, "__dict__", {}).items() if not name.startswith("_")
    }:
        return attributes
    raise ValueError("no fields; give a mapping, such as {'lr': 1e-6}")


def _nested(value: object) -> Mapping[Any, object] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=False))
    if isinstance(value, Sequence) and not isinstance(value, _NO_LISTS):
        return dict(enumerate(without_secret_options(value) if str in map(type, value) else value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return dict(msgspec.structs.asdict(value))
    for method in ("to_dict", "model_dump"):  # transformers' configurations; pydantic's models
        call = getattr(value, method, None)
        if callable(call) and not isinstance(value, type):
            nested = call()
            return nested if isinstance(nested, Mapping) else None
    return vars(value) if type(value).__name__ in ("Namespace", "SimpleNamespace") else None
