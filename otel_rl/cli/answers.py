"""Answers for programs: JSON that is never larger than a limit, and says what it leaves out.

NaN and the infinities are null. Characters that act on a terminal or are invisible are escaped; parsed, they are the
recorded ones.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl.recorder.errors.sinks import ACTIVE, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 1 << 20
"""The largest answer of a command in bytes."""
_NO_LIMIT = 1 << 60
_LISTS, _TEXTS = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16), (4000, 1000, 250, 60)
"""Lengths to which lists and texts are cut."""
_ACTIVE = re.compile(f"[{ACTIVE}]")


def bounded(answer: msgspec.Struct, most_bytes: int = MOST_BYTES) -> bytes:
    """Return an answer as JSON, with `left_out`: how many items and characters of which field it does not have.

    Lists begin with what matters most, so their ends are left out: all lists are cut to one length, and if that is not
    enough, all texts to another one.

    Raises:
        ValueError: The answer cannot be cut that far.
    """
    for limits in _limits():
        left_out: Counter[str] = Counter()
        answered = _cut(answer, limits, "", left_out)
        text = msgspec.json.encode({**answered, "left_out": dict(left_out)}).decode()
        encoded = _ACTIVE.sub(_escaped, text).encode()
        if len(encoded) <= most_bytes:
            return encoded
    raise ValueError(f"the answer is larger than {most_bytes} bytes: ask for less")


class _Limits(NamedTuple):
    items: int
    characters: int


def _limits() -> Iterator[_Limits]:
    yield _Limits(_NO_LIMIT, _NO_LIMIT)
    for characters in _TEXTS:  # a list with fewer items says more than one of texts that are cut
        yield from (_Limits(items, characters) for items in _LISTS)
    yield from (_Limits(items, _TEXTS[-1]) for items in (8, 4, 2, 1))


def _cut(value: Any, limits: _Limits, place: str, left_out: Counter[str]) -> Any:
    if isinstance(value, str):
        left_out.update({place: over} if (over := len(value) - limits.characters) > 0 else {})
        kept = value[: limits.characters] + ("…" if over > 0 else "")
        return kept.encode("utf-8", "backslashreplace").decode()  # paths can have bytes that are not UTF-8
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        fields = {name: _cut(getattr(value, name), limits, f"{place}.{name}".lstrip("."), left_out) for name in names}
        return [*fields.values()] if value.__struct_config__.array_like else fields
    if isinstance(value, dict):
        kept = _first([*value.items()], limits, place, left_out)
        return {shortened(str(key), limits.characters): _cut(part, limits, place, left_out) for key, part in kept}
    if isinstance(value, list | tuple):
        return [_cut(part, limits, place, left_out) for part in _first(value, limits, place, left_out)]
    return value


def _first(items: Any, limits: _Limits, place: str, left_out: Counter[str]) -> Any:
    if len(items) > limits.items:
        left_out[place] += len(items) - limits.items
    return items[: limits.items]


def _escaped(match: re.Match[str]) -> str:
    # JSON escapes UTF-16: a character beyond the first 65,536 is two escapes.
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
