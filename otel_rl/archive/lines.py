"""Items as lines of tables, and lines as items: what is read back equals what was written, all fields."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields

from otel_rl.archive.json_texts import decoded, encoded
from otel_rl.archive.span_lines import LIMIT, span_of
from otel_rl.archive.tables import (
    ATTEMPTS,
    ENDS,
    ENVIRONMENT,
    EVENTS,
    MEASUREMENTS,
    MESSAGES,
    PARAMETERS,
    ROWS,
    SPANS,
    STEPS,
    TEXTS,
    TRAJECTORIES,
)
from otel_rl.export import (
    Ended,
    Environment,
    Event,
    Machine,
    Message,
    Params,
    Process,
    Row,
    Trajectory,
)
from otel_rl.export import Table as TextTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import msgspec

    from otel_rl.archive.tables import Column, Table
    from otel_rl.export import Item

Line = tuple[Any, ...]
"""The values of a line, in the order of the columns of its table."""


def fit(items: Sequence[Item]) -> bool:
    """Return whether the integers of items of one kind fit into the columns, which have 64 bits with a sign.

    Items come from the outbox, whose integers have at most 64 bits without a sign.
    """
    return all(max(filter(None, map(get, items)), default=0) < LIMIT for get in _integers(type(items[0])))


@cache
def _integers(kind: type[msgspec.Struct]) -> tuple[attrgetter[int | None], ...]:
    """Return functions that return the integers among the fields of an item."""
    return tuple(attrgetter(field.name) for field in fields(kind) if field.type in (int, int | None))


def _step(row: Row) -> Line:
    return (
        *(row.attempt, row.step, row.part, row.time_unix_nano, row.begins, row.late, row.partial),
        *(encoded(list(row.missing_ranks)), encoded(row.nonfinite), row.trace_id, row.span_id),
        row.digests or None,
    )


def _trajectory(one: Trajectory) -> Line:
    return (
        *(one.attempt, one.step, one.time_unix_nano, one.rank, one.outcome, one.policy_version),
        *(one.trace_id, one.span_id, one.reward, one.tokens, encoded(one.versions), one.number),
        *(one.prompt_id or None, one.group_id or None, one.row or None, one.advantage, one.loss),
        encoded(one.components),
    )


def _message(one: Message) -> Line:
    return (
        *(one.attempt, one.step, one.time_unix_nano, one.role, one.rank, one.trace_id, one.span_id, one.number),
        *(one.author, one.name, one.text, one.cut, one.calls or None, one.policy_version),
        *(array("i", one.tokens), array("d", one.logprobs), array("d", one.trainer_logprobs), array("B", one.mask)),
        one.pieces,
    )


def _process(one: Process) -> Line:
    return (
        *(one.attempt, one.role, one.rank, one.world_size, one.host, one.pid, one.started_unix_nano),
        *(encoded(one.devices), one.ended_unix_nano, one.outcome, one.error, one.exit_code),
    )


def _text(table: TextTable) -> Line:
    return (
        *(table.attempt, table.step, table.part, table.time_unix_nano, table.name),
        *(encoded(list(table.columns)) or "[]", encoded([list(row) for row in table.rows]) or "[]"),
        *(encoded(list(table.ranks)), table.cut_rows),
    )


LINES: dict[Table, Callable[[Any], Line]] = {
    STEPS: _step,
    TRAJECTORIES: _trajectory,
    EVENTS: lambda event: (
        *(event.name, event.time_unix_nano, event.step, event.rank, event.trace_id, event.span_id),
        encoded(event.attributes),
    ),
    PARAMETERS: lambda params: (params.time_unix_nano, encoded(params.values) or "{}"),
    ATTEMPTS: _process,
    ENDS: lambda ended: (ended.attempt, ended.time_unix_nano, ended.outcome, ended.error, ended.exit_code),
    ENVIRONMENT: lambda one: (one.attempt, one.time_unix_nano, one.host, encoded(one.values) or "{}"),
    TEXTS: _text,
    MESSAGES: _message,
}
"""Functions that return the one line of an item in a table; spans are made into columns at once."""
VALUE_HEADS: dict[Table, tuple[tuple[Column, ...], Callable[[Any], Line]]] = {
    ROWS: (
        tuple(
            column for column in ROWS.columns if column.name in ("attempt", "step", "part", "time_unix_nano", "late")
        ),
        lambda row: (row.attempt, row.step, row.part, row.time_unix_nano, row.late),
    ),
    MEASUREMENTS: (MEASUREMENTS.columns[:2], lambda machine: (machine.step, machine.time_unix_nano)),
}
"""Tables with a line for each value of an item: the columns that all lines share, and a function for their values."""


def items_of(lines: Mapping[Table, Sequence[Line]]) -> Iterator[Item]:
    """Yield the items of lines, those of one table in their order; the lines of `steps` say which rows there are."""
    values = _grouped(lines.get(ROWS, ()), 4)
    for line in lines.get(STEPS, ()):
        yield _row_of(line, values.get(line[:4], []))
    for (second, time), found in sorted(_grouped(lines.get(MEASUREMENTS, ()), 2).items(), key=_time_of):
        yield Machine(second, time, _values(found))
    for table, make in _ITEMS.items():
        yield from map(make, lines.get(table, ()))


def _time_of(entry: tuple[Line, object]) -> int:
    """Return the time of a measurement."""
    time: int = entry[0][1]
    return time


def _grouped(lines: Iterable[Line], width: int) -> dict[Line, list[Line]]:
    """Return the rest of the lines by the values of their first columns."""
    found: defaultdict[Line, list[Line]] = defaultdict(list)
    for line in lines:
        found[line[:width]].append(line[width:])
    return found


def _values(lines: Iterable[Line]) -> dict[str, int | float]:
    """Return values by name, in the order in which they were recorded."""
    return {
        name: (int(value) if exact is None else int(exact)) if integer else value
        for name, value, integer, _, exact in sorted(lines, key=itemgetter(-2))
    }


def _row_of(line: Line, values: list[Line]) -> Row:
    attempt, step, part, time, begins, late, partial, missing, nonfinite, trace_id, span_id, digests = line
    measured = tuple(value[0] for value in sorted(values, key=itemgetter(-2)) if value[2])
    return Row(
        step,
        time,
        _values([(name, value, *rest) for name, value, _, _, *rest in values]),
        attempt,
        tuple(decoded(missing) or ()),
        late,
        trace_id,
        span_id,
        decoded(nonfinite) or {},
        measured,
        part,
        partial,
        begins,
        digests or "",
    )


def _trajectory_of(line: Line) -> Trajectory:
    known, (generated, number, prompt_id, group_id, row, advantage, loss, components) = line[:10], line[10:]
    versions = tuple((version, count) for version, count in decoded(generated) or ())
    scores = (math.nan if one is None else one for one in (advantage, loss))
    named = prompt_id or "", group_id or "", row or ""
    return Trajectory(*(*known, versions, number, *named, *scores, decoded(components) or {}))


def _message_of(line: Line) -> Message:
    known, (calls, policy_version, *lists, pieces) = line[:12], line[12:]
    packed = (array(code, many or ()).tobytes() for code, many in zip("iddB", lists, strict=True))
    return Message(*(*known, calls or "", policy_version, *packed, tuple(pieces or ())))


def _process_of(line: Line) -> Process:
    attempt, role, rank, world_size, host, pid, started, devices, ended, outcome, error, exit_code = line
    return Process(
        attempt,
        role,
        rank,
        world_size,
        host,
        pid,
        started,
        tuple(decoded(devices) or ()),
        ended,
        outcome,
        error,
        exit_code,
    )


def _event_of(line: Line) -> Event:
    name, time, step, rank, trace_id, span_id, attributes = line
    return Event(name, time, decoded(attributes) or {}, step, rank, trace_id, span_id)


def _text_of(line: Line) -> TextTable:
    attempt, step, part, time, name, columns, cells, ranks, cut_rows = line
    rows = tuple(tuple(row) for row in decoded(cells) or ())
    return TextTable(
        name, step, time, tuple(decoded(columns) or ()), rows, attempt, tuple(decoded(ranks) or ()), cut_rows, part
    )


_ITEMS: dict[Table, Callable[[Line], Item]] = {
    SPANS: span_of,
    TRAJECTORIES: _trajectory_of,
    EVENTS: _event_of,
    PARAMETERS: lambda line: Params(line[0], decoded(line[1])),
    ATTEMPTS: _process_of,
    ENDS: lambda line: Ended(line[1], line[0], *line[2:]),
    ENVIRONMENT: lambda line: Environment(line[0], line[1], line[2], decoded(line[3])),
    TEXTS: _text_of,
    MESSAGES: _message_of,
}
"""Functions that return the item of a line."""
