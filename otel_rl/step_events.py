"""What the log events `rl.step.metrics`, `rl.table` and `rl.run.config` carry, as items again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl import semconv
from otel_rl.export import Event, Params, Row, RunInfo, Table

if TYPE_CHECKING:
    from collections.abc import Mapping


def item_of(name: str, time: int, attributes: Mapping[str, Any], body: Any) -> Row | Params | Table | None:
    """Return the row, the table or the parameters in a log event; `None` if it is another event.

    Args:
        name: The event's name.
        time: Unix nanoseconds.
        attributes: Its attributes; numbers may be of any type that OTLP has.
        body: Its body.

    Raises:
        KeyError: An attribute is missing.
        TypeError: One has another type.
        ValueError: One has a wrong value.
    """
    if name == semconv.EVENT_STEP_METRICS:
        return Row(
            step=int(attributes[semconv.LOOP_ITERATION]),
            time_unix_nano=time,
            values={key: _number(key, value) for key, value in dict(attributes[semconv.STEP_VALUES]).items()},
            attempt=int(attributes.get(semconv.RUN_ATTEMPT, 0)),
            missing_ranks=tuple(map(int, attributes.get(semconv.STEP_MISSING_RANKS, ()))),
            late=bool(attributes.get(semconv.STEP_LATE, False)),
        )
    if name == semconv.EVENT_TABLE:
        return Table(
            name=str(attributes[semconv.TABLE_NAME]),
            step=int(attributes[semconv.LOOP_ITERATION]),
            time_unix_nano=time,
            columns=tuple(map(str, attributes[semconv.TABLE_COLUMNS])),
            rows=tuple(map(tuple, body or ())),
            attempt=int(attributes.get(semconv.RUN_ATTEMPT, 0)),
            ranks=tuple(map(int, attributes.get(semconv.TABLE_RANKS, ()))),
            cut_rows=int(attributes.get(semconv.TABLE_CUT_ROWS, 0)),
        )
    if name == semconv.EVENT_RUN_CONFIG:
        return Params(time, dict(attributes[semconv.RUN_CONFIG_VALUES]))
    return None


def event_of(name: str, time: int, attributes: Mapping[str, Any], trace_id: str, span_id: str) -> Event:
    """Return any other log event as it is, with the step and the rank that it names."""
    kept = {key: value for key, value in attributes.items() if key not in (semconv.LOOP_ITERATION, semconv.RANK)}
    step, rank = attributes.get(semconv.LOOP_ITERATION), attributes.get(semconv.RANK)
    return Event(
        name,
        time,
        {key: value for key, value in kept.items() if isinstance(value, (bool, int, float, str, list))},
        None if step is None else int(step),
        None if rank is None else int(rank),
        trace_id,
        span_id,
    )


def run_of(resource: Mapping[str, Any], directory: Path | None = None) -> RunInfo:
    """Return the run that a resource names: `rl.run.id`, `rl.run.project`, `rl.run.name`, or `service.name`.

    Its directory is the project and the id in `directory`, by default in `OTEL_RL_DIR` (`runs`).
    """
    service = resource.get("service.name", "unknown_service")
    id_, project = resource.get(semconv.RUN_ID, service), resource.get(semconv.RUN_PROJECT, service)
    place = directory or Path(os.environ.get("OTEL_RL_DIR", "runs"))
    path = place.absolute() / _file_name(str(project)) / _file_name(str(id_))
    return RunInfo(str(id_), str(project), str(resource.get(semconv.RUN_NAME, id_)), str(path), dict(resource))


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: {type(value).__name__} where a number is expected")
    return value


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-") or "run"
