"""The text of an event: its attributes in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 200
"""Characters of a text."""
_ELSEWHERE = (semconv.HOST_NAME, semconv.ROLE)
"""Attributes that say whose the event is, which is next to it."""
_WHOLE = (semconv.AUTOPSY_VERDICT,)
"""Attributes that are sentences, and say all."""


def text_of(attributes: Mapping[str, object], most: int = _LONGEST) -> str:
    """Return the attributes of an event as a text, each named in a word, in at most so many characters.

    One that is a sentence stands alone.
    """
    for name in _WHOLE:
        if name in attributes:
            return str(attributes[name])[:most]
    parts = (f"{wording.attribute(key)}={_shown(value)}" for key, value in attributes.items() if key not in _ELSEWHERE)
    return ", ".join(parts)[:most]


def _shown(value: object) -> str:
    if isinstance(value, float):
        return wording.number(value)
    return wording.names([str(item) for item in value]) if isinstance(value, list | tuple) else str(value)
