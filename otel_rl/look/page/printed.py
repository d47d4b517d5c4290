"""The lines that processes printed last, each with a link to its step and process on the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.printed_lines import LogQuery, logs
from otel_rl.look.page.about import table_of
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.printed_lines import LogLine
    from otel_rl.look.reader.runs import RunReader

_LAST, _ERRORS = 200, 50
_TITLES = ("after", "process", "step", "phase", "line")


def printed_of(run: RunReader, origin: int) -> Markup | None:
    """Return the last lines, and the last errors if they came before those; `None` if nothing printed is recorded."""
    last = logs(run, LogQuery(most=_LAST))
    if not last.lines:
        return None
    errors = logs(run, LogQuery(severity="error", most=_ERRORS)) if last.total > _LAST else None
    shown = {(line.attempt, line.process, line.host, line.number) for line in last.lines}
    before = [
        line
        for line in (() if errors is None else reversed(errors.lines))
        if (line.attempt, line.process, line.host, line.number) not in shown
    ]
    rest = f"The last {_LAST} of {wording.count(last.total, 'line')}; `otel-rl logs` has the others."
    newest_first = tuple(reversed(last.lines))
    return joined(
        tag("p", f"The newest first. {rest if last.total > _LAST else ''}", class_="note"),
        tag("h3", "Errors before these") if before else "",
        _table(before, origin, "Errors") if before else "",
        tag("h3", "Last lines") if before else "",
        _table(newest_first, origin, "Printed lines"),
    )


def _table(lines: tuple[LogLine, ...] | list[LogLine], origin: int, caption: str) -> Markup:
    return table_of(_TITLES, [_cells(line, origin) for line in lines], caption, numbers=(0, 2))


def _cells(line: LogLine, origin: int) -> tuple[str, ...]:
    where = "" if line.step is None else f"#step={line.step}"
    rank = line.process.removeprefix("rank ")
    where += f"&rank={rank}" if where and rank.isdecimal() else ""
    of_logger = f"{line.severity.upper()} {line.logger}: " if line.logger else ""
    again = f" ({line.repeated:,} times)" if line.repeated > 1 else ""
    text = tag("code", f"{of_logger}{line.text}{again}")
    stack = tag("details", tag("summary", "traceback"), tag("pre", line.stack, class_="text", tabindex="0"))
    return (
        wording.seconds(max(0.0, (line.time_unix_nano - origin) / 1e9)),
        line.process or line.host,
        "" if line.step is None else tag("a", f"{line.step:,}", href=where),
        line.phase,
        joined(text, stack) if line.stack else text,
    )
