"""Lines of tables, as tools return them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from otel_rl.look.reader.result import Result

MOST_LINES = 1000
"""The largest number of lines of an answer."""


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a table."""

    columns: tuple[str, ...]  # names of the columns
    lines: tuple[tuple[Any, ...], ...]  # the values of each line, in the order of the columns
    has_more: bool  # whether there are more lines than were asked for


def lines_of(result: Result, most: int) -> Lines:
    """Return the first lines of a result; it has one more if there are more."""
    columns = [result[name].tolist() for name in result.columns]
    lines = tuple(tuple(_plain(value) for value in line) for line in zip(*columns, strict=True))
    return Lines(columns=tuple(result.columns), lines=lines[:most], has_more=len(lines) > most)


def _plain(value: Any) -> Any:
    """Return a value of DuckDB as one that JSON has."""
    if isinstance(value, Decimal):  # the type of sums of integers
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, str | int | float | list | dict | None) else str(value)
