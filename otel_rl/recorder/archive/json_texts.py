"""JSON texts of values that read back with their types, NaN and the infinities included."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import msgspec

from otel_rl.recorder.convert.strict_json import SPELLED, spelled

_FLOAT = "$float"
"""The key of an object that stands for a float that JSON cannot represent."""
DEEPEST = 500
"""Levels of a text that is decoded: at some 900, Python raises `RecursionError`, depending on the caller."""
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')
_encode = msgspec.json.Encoder().encode


def encoded(value: Any) -> str | None:
    """Return a value as JSON; `None` if it is empty."""
    if not value:
        return None
    text = _encode(value).decode()
    return text if "null" not in text else _encode(_marked(msgspec.to_builtins(value))).decode()


def decoded(text: str | None) -> Any:
    """Return the value of a JSON text; `None` if it is empty.

    Raises:
        ValueError: It is not JSON, or nests too deeply.
    """
    if not text:
        return None
    try:
        return json.loads(text, object_hook=_unmarked)
    except RecursionError:
        raise ValueError("a JSON text nests too deeply") from None


def is_too_deep(text: str) -> bool:
    """Return whether a JSON text has more than `DEEPEST` levels."""
    marks = (match[0] for match in _STRING_OR_BRACKET.finditer(text))
    steps = (1 if mark in "[{" else -1 for mark in marks if mark[0] != '"')
    return any(depth > DEEPEST for depth in itertools.accumulate(steps))


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: spelled(value)}
    if isinstance(value, dict):
        return {name: _marked(element) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(element) for element in value]
    return value


def _unmarked(fields: dict[str, Any]) -> Any:
    """Return the float that an object stands for; others are as a program has named its own values."""
    spelling = fields.get(_FLOAT)
    return SPELLED.get(spelling, fields) if len(fields) == 1 and isinstance(spelling, str) else fields
