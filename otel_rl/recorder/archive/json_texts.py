"""JSON texts of values that read back with their types, NaN and the infinities included."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from otel_rl.recorder.convert.strict_json import SPELLED, spelled

_FLOAT = "$float"
"""The key of an object that stands for a float that JSON cannot represent."""
_encode = msgspec.json.Encoder().encode


def encoded(value: Any) -> str | None:
    """Return a value as JSON; `None` if it is empty."""
    if not value:
        return None
    text = _encode(value).decode()
    return text if "null" not in text else _encode(_marked(msgspec.to_builtins(value))).decode()


def decoded(text: str | None) -> Any:
    """Return the value of a JSON text; `None` if it is empty."""
    if not text:
        return None
    return json.loads(text, object_hook=_unmarked)


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: spelled(value)}
    if isinstance(value, dict):
        return {name: _marked(element) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(element) for element in value]
    return value


def _unmarked(fields: dict[str, Any]) -> Any:
    return SPELLED[fields[_FLOAT]] if set(fields) == {_FLOAT} else fields
