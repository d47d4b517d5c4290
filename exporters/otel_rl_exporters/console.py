"""A line per row and the first rows of each table, for people at a terminal."""

from __future__ import annotations

import shutil
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from otel_rl.export import Event, Refused, Row, Table
from otel_rl.recorder.convert.cells import cell_len, fit
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.export import Cell, Item, RunInfo

_MOST_VALUES = 8
_LONGEST_CELL = 200
_GAP = "   "


class ConsoleExporter:
    """Prints one short line for each row and each event, and the first rows of each table.

    Args:
        run: The run.
        names: Patterns of the values to print, as in a shell; by default the first eight of a row.
        table_rows: The largest number of rows of a table to print; 0 prints no tables.
    """

    def __init__(self, run: RunInfo, *, names: list[str] | None = None, table_rows: int = 4) -> None:
        self._names = names
        self._table_rows = table_rows

    def export(self, items: Sequence[Item]) -> None:
        """Print the rows, the events and the tables among `items`.

        Raises:
            Refused: The reader of standard output has closed it.
        """
        lines = [one_line(line) for item in items for line in self._lines(item)]
        if not lines:
            return
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        # A terminal may lack characters of a name, and `print` would raise (tests/exporters/test_console.py).
        text = "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)
        try:
            print(text, flush=True)  # noqa: T201 - it is what a console is for
        except BrokenPipeError as error:
            raise Refused("standard output is closed") from error

    def shutdown(self) -> None:
        """Do nothing: others use standard output too."""

    def _lines(self, item: Item) -> Iterable[str]:
        if isinstance(item, Row):
            yield "  ".join(self._row(item))
        elif isinstance(item, Event):
            yield "  ".join(_event(item))
        elif isinstance(item, Table) and self._table_rows:
            yield from _table(item, self._table_rows)

    def _row(self, row: Row) -> Iterable[str]:
        yield f"step {row.step}"
        if row.late:
            yield "(late)"
        if row.missing_ranks:
            yield f"(without ranks {', '.join(map(str, row.missing_ranks))})"
        if self._names is None:
            yield from _first(row.values)
            return
        for name, value in row.values.items():
            if any(fnmatchcase(name, pattern) for pattern in self._names):
                yield _pair(name, value)


def _event(event: Event) -> Iterable[str]:
    yield event.name
    if event.step is not None:
        yield f"step {event.step}"
    if event.rank is not None:
        yield f"rank {event.rank}"
    yield from _first(event.attributes)


def _table(table: Table, most: int) -> Iterable[str]:
    shown = table.rows[:most]
    left_out = table.cut_rows + len(table.rows) - len(shown)
    yield f"table {_literal(table.name)}  step {table.step}" + (f"  +{left_out} rows" if left_out else "")
    texts = [[*map(_literal, row)] for row in (table.columns, *shown)]
    widths = _fitted([max(map(cell_len, column)) for column in zip(*texts, strict=True)])
    lines = [_GAP.join(map(fit, row, widths)) for row in texts]
    lines.insert(1, "-" * cell_len(lines[0]))
    yield from (f" {line}".rstrip() for line in lines)


def _fitted(widths: Sequence[int]) -> list[int]:
    """Return the widths of columns that the terminal has room for: the widest become narrower."""
    room = shutil.get_terminal_size((120, 24)).columns - 1 - len(_GAP) * (len(widths) - 1)
    longest = max(widths, default=0)
    while longest > 1 and sum(min(width, longest) for width in widths) > room:
        longest -= 1
    return [min(width, longest) for width in widths]


def _literal(cell: Cell) -> str:
    text = "" if cell is None else wording.number(cell) if isinstance(cell, float) else str(cell)
    return one_line(text[:_LONGEST_CELL])


def _first(values: Mapping[str, object]) -> Iterable[str]:
    for name in list(values)[:_MOST_VALUES]:
        yield _pair(name, values[name])
    if len(values) > _MOST_VALUES:
        yield f"+{len(values) - _MOST_VALUES}"


def _pair(name: str, value: object) -> str:
    return f"{name} {wording.number(value)}" if isinstance(value, float) else f"{name} {value}"
