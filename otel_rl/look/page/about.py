"""Tables: events, parameters, environment, the processes, and how the recording went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.look.insight.recorded import TROUBLE
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.event_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from otel_rl.look.reader.runs import RunReader

_MOST_EVENTS = 2_000
_FIRST_EVENTS, _LAST_EVENTS = 200, 100
"""Of each name; in a long run, checkpoints would be all that is seen."""
_MARK_PLACES, _MOST_MARKS = 400, 5_000
_MOST_PROCESSES = 300
_MOST_FILES = 50
_MOST_CHARACTERS, _LONGEST_NAME = 2_000, 200
_EVENTS = """
SELECT left(events.name, {longest}) AS name, time_unix_nano, step, rank, attributes FROM events
QUALIFY row_number() OVER (PARTITION BY events.name ORDER BY time_unix_nano) <= {first}
    OR row_number() OVER (PARTITION BY events.name ORDER BY time_unix_nano DESC) <= {last}
ORDER BY time_unix_nano, events.name, step, rank, attributes LIMIT {most}
"""
_MARKS = """
SELECT arg_min(step, time_unix_nano) AS step, min(time_unix_nano) AS time, name IN ({trouble}) AS bad FROM events
GROUP BY name, (time_unix_nano - (SELECT min(time_unix_nano) FROM events))
    // (1 + ((SELECT max(time_unix_nano) - min(time_unix_nano) FROM events) // {places}))
ORDER BY time, step, bad LIMIT {most}
"""
_PROCESSES = """
SELECT * FROM attempts ORDER BY attempt, (outcome IS NOT NULL AND outcome <> 'finished') DESC, role, rank LIMIT {most}
"""


def events_of(run: RunReader, origin: int) -> tuple[Markup, list[list[Any]]]:
    """Return the table of events, and their marks: step (-1 for none), seconds, and true for trouble."""
    count = int(run.sql("SELECT count(*) AS count FROM events")["count"][0])
    if not count:
        return tag("p", "No event was recorded.", class_="nothing"), []
    rows = run.sql(_EVENTS.format(longest=_LONGEST_NAME, first=_FIRST_EVENTS, last=_LAST_EVENTS, most=_MOST_EVENTS))
    steps, ranks = (np.ma.MaskedArray(rows[name]).filled(-1).tolist() for name in ("step", "rank"))
    lines = []
    every = zip(rows["name"], rows["time_unix_nano"].tolist(), steps, ranks, rows["attributes"], strict=True)
    for name, time, step, rank, attributes in every:
        where = f"#step={step}" + (f"&rank={rank}" if rank >= 0 else "")
        lines.append(
            (
                wording.seconds(max(0.0, (time - origin) / 1e9)),
                tag("a", f"{step:,}", href=where) if step >= 0 else "",
                str(rank) if rank >= 0 else "",
                name,
                text_of(decoded(attributes) or {}, _MOST_CHARACTERS),
            )
        )
    more = count - len(lines)
    table = table_of(("after", "step", "rank", "event", "with"), lines, "Events", numbers=(0, 1, 2))
    summary = f"{len(lines):,} of {count:,} events: of each name the first {_FIRST_EVENTS} and the last {_LAST_EVENTS}."
    note = tag("p", summary, class_="note") if more > 0 else ""
    return joined(note, table), _marks(run, origin)


def _marks(run: RunReader, origin: int) -> list[list[Any]]:
    trouble = ", ".join(map(literal, TROUBLE))
    rows = run.sql(_MARKS.format(places=_MARK_PLACES, most=_MOST_MARKS, trouble=trouble))
    steps, seconds = np.ma.MaskedArray(rows["step"]).filled(-1), (rows["time"] - origin) / 1e9
    return [list(mark) for mark in zip(steps.tolist(), seconds.tolist(), rows["bad"].tolist(), strict=True)]


def values_of(values: Mapping[str, Any], caption: str) -> Markup:
    """Return names and values as a table."""
    if not values:
        return tag("p", "None were recorded." if caption == "Parameters" else "It was not recorded.", class_="nothing")
    lines = [(name, _text(value)) for name, value in sorted(values.items())]
    return table_of(("name", "value"), lines, caption)


def processes_of(run: RunReader, origin: int) -> Markup:
    """Return the processes of all attempts, those that did not finish first."""
    count = int(run.sql("SELECT count(*) AS count FROM attempts")["count"][0])
    if not count:
        return tag("p", "No process was recorded.", class_="nothing")
    rows = run.sql(_PROCESSES.format(most=_MOST_PROCESSES))
    ended = np.ma.MaskedArray(rows["ended_unix_nano"]).filled(0).tolist()
    names = ("attempt", "role", "rank", "host", "pid", "started_unix_nano", "outcome", "error", "exit_code", "devices")
    lines = []
    for line, end in zip(zip(*(rows[name].tolist() for name in names), strict=True), ended, strict=True):
        attempt, role, rank, host, pid, started, outcome, error, code, devices = line
        how = f"{outcome or 'running'}{f' ({code})' if code else ''}{f': {error}' if error else ''}"
        after = wording.seconds(max(0.0, (started - origin) / 1e9))
        lasted = wording.seconds((end - started) / 1e9) if end else ""
        used = ", ".join(map(str, decoded(devices) or []))
        lines.append((str(attempt), f"{role} {rank}".strip(), host, str(pid), after, lasted, how, used))
    titles = ("attempt", "process", "host", "pid", "started after", "lasted", "ended", "devices")
    rest = f"{len(lines):,} of {count:,} processes; those that did not finish come first." if count > len(lines) else ""
    return joined(tag("p", rest, class_="note") if rest else "", table_of(titles, lines, "Processes", numbers=(0, 3)))


def recording_of(run: RunReader, path: Path) -> Markup:
    """Return what is missing or damaged, and how far the exporters are."""
    paragraphs: list[Markup] = []
    damaged = run.damaged
    if damaged:
        names = [str(file.relative_to(path) if file.is_relative_to(path) else file) for file in damaged]
        paragraphs.append(tag("p", f"{wording.count(len(names), 'file')} cannot be read; their lines are left out:"))
        paragraphs.append(tag("ul", *(tag("li", tag("code", name)) for name in names[:_MOST_FILES])))
    holes = run.holes
    if holes:
        lines = [(hole.machine, hole.table, f"{hole.first:,}", f"{hole.end - 1:,}") for hole in holes[:_MOST_FILES]]
        paragraphs.append(tag("p", f"{wording.count(len(holes), 'range')} of items that no intact file has:"))
        paragraphs.append(table_of(("machine", "table", "first item", "last item"), lines, "Missing", numbers=(2, 3)))
    if not paragraphs:
        paragraphs.append(tag("p", "All files of the archive are intact, and nothing is missing.", class_="nothing"))
    exporters = [
        (
            exporter.name,
            f"{exporter.accepted:,}",
            f"{exporter.waiting:,}",
            f"{exporter.failures:,}",
            exporter.last_error,
        )
        for now in read_now(path)
        for exporter in now.exporters
    ]
    if exporters:
        titles = ("exporter", "accepted", "waiting", "failures", "last error")
        paragraphs.append(table_of(titles, exporters, "Exporters", numbers=(1, 2, 3)))
    for now in read_now(path):
        paragraphs += [tag("p", f"{reason}: {count:,}") for reason, count in now.lost.items()]
        paragraphs += [tag("p", warning) for warning in now.warnings]
    return joined(*paragraphs)


def table_of(
    titles: Sequence[str], lines: Iterable[Sequence[str]], caption: str, numbers: Sequence[int] = ()
) -> Markup:
    """Return a table; columns of numbers are aligned to the right."""
    kinds = ["number" if at in numbers else None for at in range(len(titles))]
    head = tag("tr", *(tag("th", title, scope="col", class_=kind) for title, kind in zip(titles, kinds, strict=True)))
    cells = ([tag("td", cell, class_=kind) for cell, kind in zip(line, kinds, strict=True)] for line in lines)
    body = [tag("tr", *line) for line in cells]
    made = tag("table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", *body))
    return tag("div", made, class_="scrolled", tabindex="0", role="region", aria_label=f"{caption}, a table")


def _text(value: Any) -> str:
    text = wording.number(value) if isinstance(value, float) and abs(value) < 1e-4 else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} … ({len(text):,} characters)"
