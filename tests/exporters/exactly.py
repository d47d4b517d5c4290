"""Equality to the last bit: NaN equals NaN, 0.0 is not -0.0, 1 is not 1.0."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def bits(value: int | float) -> int | bytes:
    """Return what is equal only for the same number of the same type."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def exactly(rows: Iterable[Mapping[str, int | float]]) -> list[dict[str, int | bytes]]:
    """Return the values of rows, comparable with `==`."""
    return [{name: bits(value) for name, value in values.items()} for values in rows]
