"""Flattening of hyperparameters for trackers: plain values, with secrets redacted."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.errors.texts import LONGEST_NAME, encodable_text, shown, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Plain = bool | int | float | str | None

REDACTED = "[redacted]"
_LONGEST_TEXT = 2000
_DEEPEST = 50
_NO_LISTS = (str, bytes, bytearray, memoryview, range)
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET = re.compile(  # "token" is a secret or a piece of text, depending on the word before it
    r"api_?key|secret|passw(or)?d|passphrase|credential|(private|access|signing|encryption)_?key|"
    r"(^|_)(auth(orization|entication)?|cookies?)(_|$)|^token$|"
    r"(^|_)(access|auth|api|hf|hub|huggingface|refresh|bearer|session|security|user|bot|service|login|"
    r"gh|github|gitlab|slack|wandb|swanlab|mlflow|comet|neptune)_?token$"
)


def flatten(config: object, refuse: Callable[[str, str], None] = lambda _, __: None) -> dict[str, Plain]:
    """Flatten `config`: nested names are joined with `.`, and list items are named by their index.

    A value whose name is that of a secret, such as `api_key`, is replaced by "[redacted]".

    Args:
        config: A mapping, dataclass, struct, pydantic model or object with `to_dict`, nested at will. Other values
            become their text.
        refuse: Called with a reason and a message for values that cannot be read or contain themselves.
    """
    return dict(_flat("", config, refuse, ()))


def _flat(
    name: str, value: object, refuse: Callable[[str, str], None], above: tuple[int, ...]
) -> Iterator[tuple[str, Plain]]:
    if is_secret(name.rpartition(".")[2]):
        yield name, REDACTED
        return
    try:
        nested = _nested(value)
        if nested is not None and (id(value) in above or len(above) > _DEEPEST):
            raise ValueError("contains itself, or has too many levels")
        items = None if nested is None else [(_key(key), item) for key, item in nested.items()]
    except Exception as error:  # fields of unknown objects can raise anything
        refuse("params", f"params: {name or type(value).__name__}: {text_of(error)}")
        return
    if items is not None:
        for key, item in items:
            yield from _flat(f"{name}.{key}" if name else key, item, refuse, (*above, id(value)))
    elif len(name) > LONGEST_NAME:
        refuse("params", f"params: a name of {len(name)} characters, {shown(name)}: {LONGEST_NAME} at most")
    elif value is None or type(value) in (bool, int, float, str):
        yield name, value[:_LONGEST_TEXT] if isinstance(value, str) else value  # type: ignore[misc]
    else:
        yield name, text_of(value)[:_LONGEST_TEXT]


def _key(key: object) -> str:
    return encodable_text(key if type(key) is str else text_of(key))


def is_secret(key: str) -> bool:
    """Return whether a name is that of a secret, such as `api_key` or `authToken`."""
    return _SECRET.search(_WORD_BOUNDARY.sub("_", key).lower()) is not None


def _nested(value: object) -> Mapping[Any, object] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Sequence) and not isinstance(value, _NO_LISTS):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return dict(msgspec.structs.asdict(value))
    for method in ("to_dict", "model_dump"):  # transformers' configurations; pydantic's models
        call = getattr(value, method, None)
        if callable(call) and not isinstance(value, type):
            found = call()
            return found if isinstance(found, Mapping) else None
    return vars(value) if type(value).__name__ == "Namespace" else None
