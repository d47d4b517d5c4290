"""A run as a small table, for notebooks: its names, and how many lines each table has."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from otel_rl.recorder.archive.tables import TABLES
from otel_rl.recorder.errors.sinks import one_line

if TYPE_CHECKING:
    from otel_rl.look.reader.result import Result
    from otel_rl.recorder.archive.runs import Place

COUNTS = f"""
SELECT {", ".join(f"(SELECT count(*) FROM {table.name}) AS {table.name}" for table in TABLES)},
    (SELECT count(DISTINCT step) FROM steps) AS number, (SELECT max(step) FROM steps) AS last
"""
"""The query for the number of lines of each table, and of steps."""


def html_of(place: Place, counts: Result) -> str:
    """Return a run as a table in HTML, in which all names are escaped."""
    firsts = {name: counts[name][0] for name in counts}
    lines = "".join(
        f"<tr><td><code>{table.name}</code></td><td>{int(firsts[table.name]):,}</td><td>{table.plural}</td></tr>"
        for table in TABLES
    )
    last = f", the last is {int(firsts['last']):,}" if firsts["number"] else ""
    names = escape(one_line(f"{place.project} · {place.name}"))
    title = f"<b>{names}</b>: {int(firsts['number']):,} steps{last}"
    head = "<tr><th>table</th><th>lines</th><th>of</th></tr>"
    how = f"<code>otel_rl.report({escape(ascii(str(place.path)))})</code> shows its report."
    return f"<div><p>{title}</p><table>{head}{lines}</table><p>{how}</p></div>"
