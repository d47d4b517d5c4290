"""The tables of a run as CSV or Parquet, its valid history: a file for each table in one directory."""

from __future__ import annotations

import csv
import io
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from otel_rl.export import unreserved
from otel_rl.look.reader.runs import in_steps
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.tables import ROWS, SQL, TABLES
from otel_rl.recorder.files.atomic_files import replacing
from otel_rl.recorder.files.modes import make_directory

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.archive.tables import ArchiveTable, Column

_OPTIONS = {"csv": "FORMAT csv, HEADER true", "parquet": "FORMAT parquet, COMPRESSION zstd"}
_HEAD = ("step", "attempt", "time_unix_nano")
"""The columns of `rows.csv` before those of the metrics."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of a cell that a spreadsheet runs. Source: OWASP, "CSV Injection"."""


def write(
    run: RunReader,
    directory: Path,
    kind: Literal["csv", "parquet"],
    steps: tuple[int, int] | None,
    *,
    is_safe: bool = False,
) -> dict[str, int]:
    """Write the tables of a run into a directory; return the number of lines by the names of the files.

    In CSV, the table of rows has a line for each step and a column for each metric. With `is_safe`, a text that a
    spreadsheet would run as a formula begins with an apostrophe.

    Raises:
        OSError: A file cannot be written.
    """
    make_directory(directory)
    written = {}
    for table in TABLES:
        file = directory / f"{table.name}.{kind}"
        if kind == "csv" and table is ROWS:
            written[file.name] = _write_wide(run, file, steps, is_safe=is_safe)
        else:
            written[file.name] = run.copy(_lines(table, steps, is_safe=is_safe), file, _OPTIONS[kind])
    return written


def _lines(table: ArchiveTable, steps: tuple[int, int] | None, *, is_safe: bool) -> str:
    names = [column.name for column in table.columns]
    values = [_cell(column) if is_safe else column.name for column in table.columns]
    where = (in_steps(steps) if "step" in names else "") or "true"
    order = ", ".join(name for name in ("step", "start_unix_nano", "time_unix_nano", "place") if name in names)
    return f"SELECT {', '.join(values)} FROM {table.name} WHERE {where}" + (f" ORDER BY {order}" if order else "")


def _cell(column: Column) -> str:
    """Return the SQL of a column, whose texts no spreadsheet runs."""
    if SQL[column.kind] != "VARCHAR":
        return column.name
    first, name = ", ".join(map(literal, _FORMULA)), column.name
    return f"CASE WHEN {name}[1] IN ({first}) THEN chr(39) || {name} ELSE {name} END AS {name}"


def _write_wide(run: RunReader, file: Path, steps: tuple[int, int] | None, *, is_safe: bool) -> int:
    """Write a line for each step; only one is in memory at once."""
    where, count = in_steps(steps) or "true", 0
    names = run.sql(f"SELECT name FROM rows WHERE {where} GROUP BY name ORDER BY min(place), name")["name"].tolist()
    query = f"""SELECT step, attempt, time_unix_nano, name, value, integer, exact FROM rows WHERE {where}
        ORDER BY step, attempt, part"""
    with replacing(file) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
        lines = csv.writer(text)
        head = [unreserved(name, _HEAD) for name in names]
        lines.writerow([*_HEAD, *(f"'{name}" if is_safe and name.startswith(_FORMULA) else name for name in head)])
        for step, rows in groupby(chain.from_iterable(run.stream(query)), itemgetter(0)):
            values: dict[str, object] = {}
            attempt = time = 0
            for _, attempt, time, name, value, integer, exact in rows:  # noqa: B007 - those of the last value
                values[name] = int(value if exact is None else exact) if integer else value
            lines.writerow([step, attempt, time, *(values.get(name) for name in names)])
            count += 1
    return count
