"""The past of a run, read from its archive with `open_run`: whole curves, one step of all ranks, all steps of one rank.

DuckDB takes a tenth of a second to load, so this is read behind the first screen.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.own_times import own_ns
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.state import extent_of, processes_of, standing
from otel_rl.look.insight.step_rows import step_rows
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.runs import open_run
from otel_rl.look.reader.valid import literal
from otel_rl.look.terminal.phases import PhaseSpan, own_seconds
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.now import Curve, EventNow, PhaseTime, Progress
from otel_rl.recorder.archive.present import present_of, stands
from otel_rl.recorder.archive.runs import place_of
from otel_rl.recorder.facts.event_text import text_of
from otel_rl.recorder.facts.own_time import closed
from otel_rl.recorder.facts.step_time import RECENT_STEPS, times
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.phase_categories import category_of
from otel_rl.semconv.shown_metrics import shown_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.look.insight import Facts
    from otel_rl.look.insight.why.answer import Why
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.look.terminal.phases import Points
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

_POINTS = 60
_STEPS_OF_RANK = 200
_PARTS = 1000
"""Parts of a curve: more than a terminal has columns of dots."""


class Past:
    """The record of a run, as screens ask for it. It is used by one thread."""

    def __init__(self, path: str) -> None:
        self._run: RunReader = open_run(path)
        self._place = place_of(path)

    def facts(self, at: int | None = None) -> Facts:
        """Return what `insight` says at a time in Unix nanoseconds; now by default."""
        return facts_of(self._run, at_unix_nano=at)

    def present(self, at: int | None = None) -> RunPresent:
        """Return the present of a run, from what it recorded if no agent has written any; `at` as above."""
        at = time.time_ns() if at is None else at
        known = present_of(self._place, at)
        return known if known.is_complete else present_of_archive(self._place, at)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._place.path

    def why(self, step: int | None, phase: str) -> Why | str:
        """Return why a step took its time, or why the run is slow, stuck or dead; a text if that cannot be said."""
        from otel_rl.look.insight.why.of_run import why

        try:
            return why(self._run, None if step is None else (step, step), phase)
        except ValueError as error:
            return str(error)

    def names(self) -> list[str]:
        """Return the names of all metrics."""
        return [str(name) for name in self._run.sql("SELECT DISTINCT name FROM rows ORDER BY name")["name"]]

    def curves(self, names: Iterable[str]) -> dict[str, Points]:
        """Return the values of metrics in all steps; of many steps, the lowest and the highest of each part."""
        points_of: dict[str, Points] = {name: [] for name in names}
        bounds = self.bounds()
        if not points_of or bounds is None:
            return points_of
        listed = ", ".join(literal(name) for name in points_of)
        # To DuckDB, NaN is larger than every number: without the filters, one NaN would be the highest value.
        rows = self._run.sql(f"""
            SELECT name, arg_min(step, value) FILTER (isfinite(value)) AS low_step,
                   min(value) FILTER (isfinite(value)) AS low,
                   arg_max(step, value) FILTER (isfinite(value)) AS high_step,
                   max(value) FILTER (isfinite(value)) AS high, min(step) FILTER (NOT isfinite(value)) AS lost_step
            FROM rows WHERE name IN ({listed})
            GROUP BY name, step // {-(-(bounds[1] - bounds[0] + 1) // _PARTS)} ORDER BY min(step)
        """)
        for name, *points in zip(*(rows[column].tolist() for column in rows.columns), strict=True):
            low_step, low, high_step, high, lost_step = points
            part = {(low_step, low), (high_step, high), (lost_step, None)}
            points_of[str(name)] += sorted(
                (point for point in part if point[0] is not None), key=lambda point: point[0]
            )
        return points_of

    def step(self, number: int) -> list[PhaseSpan]:
        """Return the phases of all processes in a step, in the order in which they began."""
        return _phases(self._run, f"step = {number}")

    def rank(self, role: str, rank: int) -> list[PhaseSpan]:
        """Return the phases of a process in its last steps, or its last phases if it marks no steps."""
        who = f"rank = {int(rank)} AND coalesce(role, '') = {literal(role)}"
        counted = self._run.sql(f"SELECT count(step) AS n, coalesce(max(step), 0) AS last FROM spans WHERE {who}")
        if counted["n"][0]:
            return _phases(self._run, f"{who} AND step > {int(counted['last'][0]) - _STEPS_OF_RANK}")
        phases = _phases(self._run, f"{who} AND step IS NULL")
        outer = sum(not phase.depth for phase in phases)
        numbered, number = [], -outer - 1
        for phase in phases:
            number += not phase.depth
            numbered.append(phase._replace(step=number))
        return [phase for phase in numbered if phase.step >= -_STEPS_OF_RANK]

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last step; `None` if there is none."""
        bounds = self._run.sql("SELECT min(step) AS first, max(step) AS last, count(*) AS n FROM steps")
        return (int(bounds["first"][0]), int(bounds["last"][0])) if bounds["n"][0] else None

    def values(self, step: int) -> dict[str, float | None]:
        """Return all values of a step."""
        rows = self._run.rows(steps=step)
        pairs = zip(rows["name"], rows["value"], strict=True)
        return {str(name): float(value) if math.isfinite(value) else None for name, value in pairs}


def _phases(run: RunReader, where: str) -> list[PhaseSpan]:
    where = f"phase IS NOT NULL AND rank IS NOT NULL AND {where}"
    spans = run.sql(f"""
        SELECT coalesce(step, -1) AS step, coalesce(role, '') AS role, rank, phase,
               start_unix_nano AS start, duration_ns AS duration,
               coalesce(error, '') AS error, device_seconds, memory_end_bytes, attributes,
               coalesce({own_ns(run, where)}, 0)::BIGINT AS own
        FROM spans WHERE {where}
        ORDER BY step, role, rank, start, duration DESC
    """)
    phases: list[PhaseSpan] = []
    open_until: list[int] = []
    who: object = None
    for step, role, rank, name, start, duration, error, device, memory, attributes, own in lines_of(spans):
        if who != (step, role, rank):
            who, open_until = (step, role, rank), []
        while open_until and open_until[-1] <= start:
            open_until.pop()
        details = {key: value for key, value in (("device seconds", device), ("memory at its end", memory)) if value}
        phases.append(
            PhaseSpan(
                step,
                role,
                rank,
                str(name),
                "",
                start,
                duration,
                len(open_until),
                error,
                details | _known_attributes(attributes),
                own,
            )
        )
        open_until.append(start + duration)
    return phases


def _known_attributes(attributes: object) -> dict[str, object]:
    known = decoded(attributes if isinstance(attributes, str) else None)
    return dict(known) if isinstance(known, dict) else {}


def present_of_archive(place: Place, at: int) -> RunPresent:
    """Return the present of a run of which no agent has written anything: older ones, and plain rows."""
    recorded = RecordedRun(open_run(place.path), at)
    run, extent, processes = recorded.run, extent_of(recorded), processes_of(recorded)
    names = [str(name) for name in run.sql("SELECT DISTINCT name FROM rows")["name"]]
    steps = [row.step for row in step_rows(run, _POINTS)]
    attempt = max((process.attempt for process in processes), default=0)
    return replace(
        stands(place, standing(recorded), extent, at),
        progress=Progress(
            attempt=attempt,
            first_step=extent.first_step,
            last_step=extent.last_step,
            steps=extent.steps,
            total_steps=extent.total_steps,
            resumed_at=extent.resumed_at,
            recent_step_seconds=extent.recent_step_seconds,
            recent_shares=_shares(run, steps[-RECENT_STEPS:]),
            curves=_curves(run, names, steps[0] if steps else 0),
            events=_events(run),
        ),
        processes=tuple(process for process in processes if process.attempt == attempt),
    )


def _curves(run: RunReader, names: Sequence[str], first: int) -> tuple[Curve, ...]:
    main = dict.fromkeys((*shown_metrics(names), *([STEP_TIME] if STEP_TIME in names else [])))
    points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in main}
    rows = run.sql("SELECT * FROM rows WHERE step >= " + str(first) + " ORDER BY step")
    for name, step, value in zip(rows["name"], rows["step"], rows["value"], strict=True):
        if name in points:
            points[name].append((int(step), float(value) if math.isfinite(value) else None))
    return tuple(Curve(name, tuple(values[-_POINTS:])) for name, values in points.items() if values)


def _shares(run: RunReader, steps: Sequence[int]) -> tuple[PhaseTime, ...]:
    if not steps:
        return ()
    phases = _phases(run, f"step IN ({', '.join(map(str, steps))}) AND coalesce(role, '') = ''")
    ranks = Counter(step for step, _ in {(phase.step, phase.rank) for phase in phases})
    total = sum(ranks[step] * seconds for step, seconds in times(step_rows(run, len(steps) + 1)))
    known = closed(((phase.name, phase.seconds) for phase in own_seconds(phases)), total) if phases else {}
    longest_first = sorted(known.items(), key=lambda share: -share[1])
    return tuple(PhaseTime(name, category_of(name) if name else "none", seconds) for name, seconds in longest_first)


def _events(run: RunReader) -> tuple[EventNow, ...]:
    newest = run.sql(
        "SELECT time_unix_nano AS time, name, attributes, step, rank FROM events ORDER BY time DESC LIMIT 20"
    )
    events = [
        EventNow(
            *(time, name, text_of(details), step, rank),
            role=str(details.get(semconv.ROLE, "")),
        )
        for time, name, details, step, rank in (
            (*row[:2], _known_attributes(row[2]), *row[3:]) for row in lines_of(newest)
        )
    ]
    return tuple(reversed(events))
