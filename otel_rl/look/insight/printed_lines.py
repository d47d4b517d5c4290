"""Printed lines of a run that somebody asks for: of steps, a process, a phase, a severity, a text or a time."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl import semconv
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts.processes import process_name

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader

_NS = 1_000_000_000
SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17, "fatal": 21}
"""The least number of OpenTelemetry's severities, by the names that people use."""
_AS_THEY_ARE = (
    *("time_unix_nano", "host", "stream", "logger", "step", "phase", "repeated", "cut", "left_out", "text"),
    *("number", "attempt"),
)
"""Columns that are fields of a line."""
_SERIOUS = r"\w*(Error|Exception)\b|^Traceback|\b(ERROR|FATAL|CRITICAL)\b"
"""Printed lines, which have no severity, that count as errors."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that somebody asks for."""

    steps: tuple[int, int] | None = None  # the first and the last step
    rank: int | None = None
    role: str = ""
    phase: str = ""
    severity: str = ""  # a name of `SEVERITIES`: these and worse ones
    pattern: str = ""  # a regular expression, as RE2 has them, whatever the case
    around_unix_nano: int | None = None  # the lines nearest to a time
    since_unix_nano: int | None = None  # those behind a time
    most: int = 100


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A printed line, or a message of logging."""

    time_unix_nano: int
    process: str  # such as `rank 3`; empty if it is unknown
    host: str
    stream: str
    severity: str  # such as `error`; empty if it is unknown
    logger: str
    step: int | None
    phase: str
    repeated: int
    cut: int
    left_out: int
    text: str
    stack: str  # the traceback of the exception that was logged
    number: int
    attempt: int


class Logs(msgspec.Struct, frozen=True):
    """Lines in the order of their times, and how many there are that were asked for."""

    total: int
    recorded: int  # the lines of the run
    lines: tuple[LogLine, ...]


def logs(run: RunReader, query: LogQuery) -> Logs:
    """Return the lines that are asked for: the last ones, or those nearest to a time.

    Raises:
        ValueError: The pattern is not a regular expression.
    """
    where = " AND ".join(_conditions(query)) or "true"
    ahead = "DESC" if query.since_unix_nano is None else ""
    order = f"time_unix_nano {ahead}, host, role, rank, number {ahead}"
    if query.around_unix_nano is not None:
        order = f"abs(time_unix_nano - {query.around_unix_nano}), number"
    found = run.sql(f"""SELECT role, rank, severity, attributes, {", ".join(_AS_THEY_ARE)},
            count(*) OVER () AS total, (SELECT count(*) FROM logs) AS recorded
        FROM logs WHERE {where} ORDER BY {order} LIMIT {query.most}""")
    lines = sorted((_line(values) for values in lines_of(found)), key=lambda one: (one.time_unix_nano, one.number))
    if not len(found):
        recorded = run.sql("SELECT count(*) AS recorded FROM logs")["recorded"][0]
        return Logs(0, int(recorded), ())
    return Logs(int(found["total"][0]), int(found["recorded"][0]), tuple(lines))


def time_in(text: str, near_unix_nano: int) -> int:
    """Return a time of day, `14:03:07` here, or a date with one, in nanoseconds; of several days, the nearest.

    Raises:
        ValueError: It is another text.
    """
    if match := re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", text.strip()):
        day = time.localtime(near_unix_nano / 1e9)
        hour, minute, second = (int(part or 0) for part in match.groups())
        there = time.mktime((*day[:3], hour, minute, second, *day[6:8], -1))
        nearest = min((there + 86_400 * days for days in (-1, 0, 1)), key=lambda at: abs(at - near_unix_nano / 1e9))
        return int(nearest) * _NS
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"):
        try:
            return int(time.mktime(time.strptime(text.strip(), form))) * _NS
        except (ValueError, OverflowError):
            continue
    raise ValueError(f"{text!r} is not a time: give HH:MM:SS, or a date and a time")


def _conditions(query: LogQuery) -> list[str]:
    conditions = []
    if query.steps is not None:
        conditions.append(f"step BETWEEN {query.steps[0]} AND {query.steps[1]}")
    if query.rank is not None:
        conditions.append(f"rank = {query.rank}")
    if query.role or query.rank is not None:
        conditions.append(f"role = {literal(query.role)}")
    if query.phase:
        conditions.append(f"phase = {literal(query.phase)}")
    if query.severity:
        least = SEVERITIES[query.severity]
        serious = f"severity >= {least}"
        if least <= SEVERITIES["error"]:
            serious = f"({serious} OR (severity = 0 AND regexp_matches(text, {literal(_SERIOUS)})))"
        conditions.append(serious)
    if query.pattern:
        conditions.append(f"regexp_matches(text, {literal(query.pattern)}, 'i')")
    if query.since_unix_nano is not None:
        conditions.append(f"time_unix_nano > {query.since_unix_nano}")
    return conditions


def _line(values: tuple[Any, ...]) -> LogLine:
    role, rank, severity, more, *as_they_are = values
    attributes = decoded(more)
    stack = attributes.get(semconv.EXCEPTION_STACKTRACE, "") if isinstance(attributes, dict) else ""
    return LogLine(
        process="" if rank is None else process_name(role, rank),
        severity=next((name for name, least in reversed(SEVERITIES.items()) if severity >= least), ""),
        stack=stack if isinstance(stack, str) else "",
        **dict(zip(_AS_THEY_ARE, as_they_are, strict=False)),
    )
