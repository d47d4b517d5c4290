"""Tables as JSON files in the run directory, one for each table and step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from otel_rl.export import Table
from otel_rl.recorder.convert.strict_json import spelled
from otel_rl.recorder.errors.sinks import at, shortened
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl_exporters.table_places import TablePlaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

_LONGEST_NAME = 180  # of the 255 bytes that file systems give a file name


class SidecarExporter:
    """Writes each table whole, as `{"columns": [...], "data": [[...], ...]}`.

    A file is strict JSON in UTF-8 with a row on each line. Non-finite numbers are strings: `"NaN"`, `"Infinity"`,
    `"-Infinity"`. An unknown cell is `null`. A file appears complete or not at all. A step that is recorded again after
    a restart replaces its file. Rows of ranks that report late get another file, with `.part-1` and so on before the
    suffix, or with `.ranks-` and the first and last of these ranks if the parts have no numbers.

    Args:
        run: The run.
        path: The path of the files, relative to the run directory. `{name}` is the name of the table,
            with all characters percent-encoded but ASCII letters, digits, spaces and `_.-~`. `{step}` and
            `{attempt}` are numbers and can have a format, as in `{step:06d}`.

    Raises:
        ValueError: `path` has other fields than these, or lacks `{name}` or `{step}`.
    """

    def __init__(self, run: RunInfo, *, path: str = "tables/{name}_step_{step:06d}.json") -> None:
        self._directory = run.directory
        self._pattern = _checked(path)
        self._places = TablePlaces()

    def export(self, items: Sequence[Item]) -> None:
        """Write the tables among `items`."""
        for item in items:
            if isinstance(item, Table):
                name = self._pattern.format(name=_file_name(item.name), step=item.step, attempt=item.attempt)
                place = Path(self._directory, name)
                # Where the file system ignores case, `Loss` and `loss` would be one file (security/test_sinks.py).
                place = at(place.parent, place.name)
                suffix = self._places.suffix(str(place), item)
                make_directory(place.parent)
                write_atomically(place.with_suffix(f"{suffix}{place.suffix}") if suffix else place, _json(item))
                self._places.wrote(str(place), item)

    def shutdown(self) -> None:
        """Do nothing: every file is complete."""


def _checked(pattern: str) -> str:
    try:
        places = {pattern.format(name=name, step=step, attempt=0) for name, step in (("a", 1), ("b", 1), ("a", 2))}
    except (LookupError, ValueError) as error:
        raise ValueError(f"path={pattern!r}: the fields are {{name}}, {{step}} and {{attempt}}") from error
    if len(places) < 3:
        raise ValueError(f"path={pattern!r} has to hold {{name}} and {{step}}, or one table would replace another")
    return pattern


def _file_name(name: str) -> str:
    """Return the name so that `urllib.parse.unquote` gives it back; one that is too long ends with its hash."""
    safe = quote(name, safe=" ", errors="surrogatepass")
    # A name such as `.hidden` would hide its file (tests/exporters/test_sidecar.py).
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    return shortened(safe, _LONGEST_NAME)


def _json(table: Table) -> bytes:
    rows = ",\n".join(_dumps([spelled(cell) for cell in row]) for row in table.rows)
    text = f'{{"columns": {_dumps(list(table.columns))}, "data": [\n{rows}\n]}}\n'
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate becomes JSON's own escape


def _dumps(values: list[Any]) -> str:
    return json.dumps(values, allow_nan=False, ensure_ascii=False)
