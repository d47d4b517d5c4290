"""The number of objects that a request would become, counted in its bytes before any is built.

Two bytes of protobuf can be a message of a hundred bytes in memory, and so can two characters of JSON.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_OBJECTS = 1 << 20
"""The largest number of messages, or of elements of JSON, in a request: 10,000 rows of 40 values in protobuf."""
OBJECT_BYTES = 128
"""The memory of a message and of the Python objects that are made of it, on average."""
_MOST_FIELDS = 4 * MOST_OBJECTS
"""The largest number of fields: a data point has five. Fields of two bytes in 64 MiB would take 6 s of CPU to count."""
_COUNTED_FROM = 1 << 18
"""Bytes; in a smaller request, the number of objects is small whatever they are."""
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 3: 0, 4: 0, 5: 4}
"""Bytes of the other types of fields; groups are fields that begin and end, and hold others."""
_MORE = 0x80
_Field = Any
"""The table of a message; `None` for repeated texts; the bytes of an element for packed numbers."""


class TooManyError(ValueError):
    """A request with more objects than `MOST_OBJECTS`, or too many fields."""

    def __init__(self) -> None:
        super().__init__(f"it has more than {MOST_OBJECTS} messages, fields or elements: send less at once")


def objects(content: bytes | bytearray, kind: Any) -> int:
    """Return the number of objects in a protobuf message of the type that a descriptor describes.

    Malformed bytes are counted up to the place where a parser stops.

    Raises:
        TooManyError: There are too many.
    """
    if len(content) < _COUNTED_FROM:
        return len(content) // 8
    try:
        return _objects(content, _table(kind))
    except (IndexError, KeyError):
        return len(content) // 8  # the parser will refuse it


def elements(content: bytes | bytearray) -> int:
    """Return the number of objects, lists and their elements in JSON; those in texts count too.

    Raises:
        TooManyError: There are too many.
    """
    found = content.count(b"{") + content.count(b"[") + content.count(b",")
    if found > MOST_OBJECTS:
        raise TooManyError
    return found


def _objects(content: bytes | bytearray, table: Mapping[int, _Field]) -> int:  # noqa: PLR0912 - calls are slow
    found, fields, place, end = 0, 0, 0, len(content)
    around: list[tuple[int, Mapping[int, _Field]]] = []
    while True:
        while place >= end:
            if not around:
                return found
            end, table = around.pop()
        fields += 1
        if fields > _MOST_FIELDS:
            raise TooManyError
        tag = content[place]  # nearly all numbers have one byte, and a call takes longer than all the rest
        place += 1
        if tag >= _MORE:
            tag, place = _number(content, place - 1)
        wire = tag & 7
        if wire == _BYTES:
            size = content[place]
            place += 1
            if size >= _MORE:
                size, place = _number(content, place - 1)
            if size > end - place:
                return found  # malformed, as the parser will find
            if tag not in table:
                place += size
                continue
            field = table[tag]
            found += 1
            if isinstance(field, int):
                found += size // field
            if found > MOST_OBJECTS:
                raise TooManyError
            if isinstance(field, dict):
                around.append((end, table))
                end, table = place + size, field
            else:
                place += size
        elif wire == _VARINT:
            _, place = _number(content, place)
        else:
            place += _FIXED[wire]  # no other type is valid


def _number(content: bytes | bytearray, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it."""
    found = content[place]
    place += 1
    if found < _MORE:
        return found, place
    found &= _MORE - 1
    shift = 7
    while True:
        byte = content[place]
        place += 1
        found |= (byte & (_MORE - 1)) << shift
        if byte < _MORE or shift > 63:
            return found, place
        shift += 7


@cache
def _table(kind: Any) -> dict[int, _Field]:
    """Return the fields of a message that become objects, by their tag."""
    table: dict[int, _Field] = {}
    _known[kind.full_name] = table  # before its fields: a value can hold values
    for field in kind.fields:
        tag = field.number << 3 | _BYTES
        repeated = field.is_repeated
        if field.message_type is not None:
            inner = field.message_type
            table[tag] = _known[inner.full_name] if inner.full_name in _known else _table(inner)
        elif repeated and field.cpp_type == field.CPPTYPE_STRING:
            table[tag] = None
        elif repeated:
            table[tag] = 8  # an eighth of an object for each byte at most
    return table


_known: dict[str, dict[int, _Field]] = {}
