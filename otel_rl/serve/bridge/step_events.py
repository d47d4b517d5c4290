"""Decoding of the log events `rl.step.metrics`, `rl.table`, `rl.run.config` and `rl.run.ended` to items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from otel_rl import semconv
from otel_rl.export import Ended, Event, Outcome, Params, Row, RunInfo, Table
from otel_rl.recorder.errors.sinks import at, file_name
from otel_rl.recorder.errors.texts import shown

if TYPE_CHECKING:
    from pathlib import Path


def item_of(name: str, time: int, attributes: Mapping[str, Any], body: Any) -> Row | Params | Table | Ended | None:
    """Decode the row, table, parameters or end in a log event; return `None` for other events.

    The time is in Unix nanoseconds. Numbers in attributes may have any OTLP type.

    Raises:
        KeyError: An attribute is missing.
        TypeError: An attribute has a wrong type.
        ValueError: An attribute has an invalid value.
    """
    if name == semconv.EVENT_STEP_METRICS:
        return Row(
            step=_integer(attributes, semconv.LOOP_ITERATION),
            time_unix_nano=time,
            values={key: _number(key, value) for key, value in _map(attributes, semconv.STEP_VALUES).items()},
            attempt=_integer(attributes, semconv.RUN_ATTEMPT, 0),
            missing_ranks=tuple(map(int, attributes.get(semconv.STEP_MISSING_RANKS, ()))),
            late=bool(attributes.get(semconv.STEP_LATE, False)),
            part=_integer(attributes, semconv.STEP_PART, 0),
            partial=bool(attributes.get(semconv.STEP_PARTIAL, False)),
        )
    if name == semconv.EVENT_TABLE:
        columns, rows = tuple(map(str, attributes[semconv.TABLE_COLUMNS])), tuple(map(tuple, body or ()))
        if any(len(row) != len(columns) for row in rows):
            raise ValueError(f"{name}: each row must have {len(columns)} cells, one for each column")
        return Table(
            name=str(attributes[semconv.TABLE_NAME]),
            step=_integer(attributes, semconv.LOOP_ITERATION),
            time_unix_nano=time,
            columns=columns,
            rows=rows,
            attempt=_integer(attributes, semconv.RUN_ATTEMPT, 0),
            ranks=tuple(map(int, attributes.get(semconv.TABLE_RANKS, ()))),
            cut_rows=_integer(attributes, semconv.TABLE_CUT_ROWS, 0),
            part=_integer(attributes, semconv.TABLE_PART, 0),
        )
    if name == semconv.EVENT_RUN_CONFIG:
        return Params(time, dict(_map(attributes, semconv.RUN_CONFIG_VALUES)))
    if name == semconv.EVENT_RUN_ENDED:
        return Ended(
            time_unix_nano=time,
            attempt=_integer(attributes, semconv.RUN_ATTEMPT, 0),
            outcome=_outcome(attributes[semconv.RUN_OUTCOME]),
            error=str(attributes.get(semconv.EXCEPTION_MESSAGE, "")),
            exit_code=_integer(attributes, semconv.RUN_EXIT_CODE, 0),
        )
    return None


def event_of(name: str, time: int, attributes: Mapping[str, Any], trace_id: str, span_id: str) -> Event:
    """Decode any other log event; step and rank come from its attributes."""
    own = (semconv.LOOP_ITERATION, semconv.RANK)
    step, rank = (_integer(attributes, key) if attributes.get(key) is not None else None for key in own)
    kept = {
        key: value
        for key, value in attributes.items()
        if key not in own and isinstance(value, (bool, int, float, str, list))
    }
    return Event(name, time, kept, step, rank, trace_id, span_id)


def run_of(resource: Mapping[str, Any], directory: Path) -> RunInfo:
    """Return the run that a resource names with `rl.run.id`, `rl.run.project` and `rl.run.name` or `service.name`.

    Its directory is `<project>/<id>` in `directory`.
    """
    service = resource.get("service.name", "unknown_service")
    id_, project = resource.get(semconv.RUN_ID, service), resource.get(semconv.RUN_PROJECT, service)
    path = at(at(directory.absolute(), file_name(str(project))), file_name(str(id_)))
    return RunInfo(str(id_), str(project), str(resource.get(semconv.RUN_NAME, id_)), str(path), dict(resource))


def _outcome(value: Any) -> Outcome:
    if value not in (known := get_args(Outcome)):
        raise ValueError(f"{semconv.RUN_OUTCOME} must be one of {', '.join(known)}, not {shown(value)}")
    return cast("Outcome", value)


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"value {name!r} must be a number, not {type(value).__name__}")
    return value


def _integer(attributes: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = attributes[name] if default is None else attributes.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JavaScript has no integers
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"attribute {name}={shown(value)} must be an integer")
    return value


def _map(attributes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = attributes[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"attribute {name} must be a map of names to values, not {type(value).__name__}")
    return value
