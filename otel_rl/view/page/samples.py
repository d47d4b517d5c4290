"""Recorded tables, such as completions with their groups and rewards: the lines of the last steps that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.archive.json_texts import decoded

if TYPE_CHECKING:
    from otel_rl.archive.reader import RunReader

_MOST_BYTES = 1_500_000
_MOST_LINES = 500
_MOST_CHARACTERS = 6_000
"""Of one cell; the rest is left out, and counted."""
_TABLES = (
    "SELECT name, count(*) AS tables, min(step) AS first, max(step) AS last FROM texts GROUP BY name ORDER BY name"
)
_NEWEST = """
SELECT name, step, columns, cells, cut_rows FROM texts
QUALIFY row_number() OVER (PARTITION BY name ORDER BY step DESC, part DESC) <= 200 ORDER BY step DESC, name
"""


def samples_of(run: RunReader) -> list[dict[str, Any]]:
    """Return the tables, each with lines of its newest steps and what was left out."""
    known = run.sql(_TABLES)
    tables: dict[str, dict[str, Any]] = {
        name: {"name": name, "first": int(first), "last": int(last), "lines": [], "columns": [], "cut": 0}
        for name, first, last in zip(known["name"], known["first"], known["last"], strict=True)
    }
    if not tables:
        return []
    room = dict.fromkeys(tables, _MOST_BYTES // len(tables))
    found = run.sql(_NEWEST)
    texts = zip(found["name"], found["step"], found["columns"], found["cells"], found["cut_rows"], strict=True)
    for name, step, columns, cells, cut in texts:
        table, named = tables[name], [str(column) for column in decoded(columns) or []]
        table["columns"] += [column for column in named if column not in table["columns"]]
        table["cut"] += int(cut)
        for line in decoded(cells) or []:
            shown = {column: _shown(cell) for column, cell in zip(named, line, strict=False)}
            room[name] -= sum(len(cell) for cell in shown.values() if isinstance(cell, str)) + 16 * len(shown)
            if room[name] < 0 or len(table["lines"]) >= _MOST_LINES:
                table["cut"] += 1
                continue
            table["lines"].append([int(step), *(shown.get(column) for column in table["columns"])])
    return list(tables.values())


def _shown(cell: Any) -> str | float | int | bool | None:
    if cell is None or isinstance(cell, bool | int):
        return cell if not isinstance(cell, int) or abs(cell) < 1 << 53 else str(cell)
    if isinstance(cell, float) and cell - cell == 0:
        return cell
    text = str(cell)
    left_out = len(text) - _MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:_MOST_CHARACTERS]} … ({left_out:,} more characters)"
