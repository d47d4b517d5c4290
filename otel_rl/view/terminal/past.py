"""The past of a run, read from its archive with `open_run`: whole curves, one step of all ranks, all steps of one rank.

DuckDB takes a tenth of a second to load, so this is read behind the first screen.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.archive.now import Curve, EventNow, PhaseTime, ProcessNow, Progress
from otel_rl.archive.reader import open_run
from otel_rl.archive.runs import place_of
from otel_rl.archive.valid import literal
from otel_rl.export import Ended
from otel_rl.insight import facts_of
from otel_rl.journal.atomic_files import read_shown_json
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.shown_metrics import shown_metrics
from otel_rl.semconv.total_steps import total_steps
from otel_rl.view.terminal.phases import Phase, exclusive
from otel_rl.view.terminal.present import present_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.export import Outcome
    from otel_rl.insight import Facts
    from otel_rl.view.terminal.phases import Points
    from otel_rl.view.terminal.present import Present

_POINTS = 60
_STEPS_OF_RANK = 200
_PARTS = 1000
"""Parts of a curve: more than a terminal has columns of dots."""
_END_FILE = "run.end.json"
"""How the run ended, of runs without an archive."""


class Past:
    """The record of a run, as screens ask for it. It is used by one thread."""

    def __init__(self, path: str) -> None:
        self._run: RunReader = open_run(path)
        self._place = place_of(path)

    def facts(self) -> Facts:
        """Return what `insight` says."""
        return facts_of(self._run)

    def present(self) -> Present:
        """Return the present of a run, from what it recorded if no agent has written any."""
        known = present_of(self._place)
        return known if known.is_complete else present_of_archive(known)

    def names(self) -> list[str]:
        """Return the names of all metrics."""
        return [str(name) for name in self._run.sql("SELECT DISTINCT name FROM rows ORDER BY name")["name"]]

    def main_names(self) -> tuple[str, ...]:
        """Return the names of the main metrics, in the order of screens."""
        return shown_metrics(self.names())

    def curves(self, names: Iterable[str]) -> dict[str, Points]:
        """Return the values of metrics in all steps; of many steps, the lowest and the highest of each part."""
        found: dict[str, Points] = {name: [] for name in names}
        bounds = self.bounds()
        if not found or bounds is None:
            return found
        listed = ", ".join(literal(name) for name in found)
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
            found[str(name)] += sorted((one for one in part if one[0] is not None), key=lambda one: one[0])
        return found

    def step(self, number: int) -> list[Phase]:
        """Return the phases of all processes in a step, in the order in which they began."""
        return _phases(self._run, f"step = {number}")

    def rank(self, role: str, rank: int) -> list[Phase]:
        """Return the phases of a process in its last steps, or its last phases if it marks no steps."""
        who = f"rank = {int(rank)} AND coalesce(role, '') = {literal(role)}"
        found = self._run.sql(f"SELECT count(step) AS n, coalesce(max(step), 0) AS last FROM spans WHERE {who}")
        if found["n"][0]:
            return _phases(self._run, f"{who} AND step > {int(found['last'][0]) - _STEPS_OF_RANK}")
        phases = _phases(self._run, f"{who} AND step IS NULL")
        outer = sum(not one.depth for one in phases)
        numbered, number = [], -outer - 1
        for one in phases:
            number += not one.depth
            numbered.append(one._replace(step=number))
        return [one for one in numbered if one.step >= -_STEPS_OF_RANK]

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last step; `None` if there is none."""
        found = self._run.sql("SELECT min(step) AS first, max(step) AS last, count(*) AS n FROM steps")
        return (int(found["first"][0]), int(found["last"][0])) if found["n"][0] else None

    def values(self, step: int) -> dict[str, float | None]:
        """Return all values of a step."""
        rows = self._run.rows(steps=step)
        pairs = zip(rows["name"], rows["value"], strict=True)
        return {str(name): float(value) if math.isfinite(value) else None for name, value in pairs}


def _phases(run: RunReader, where: str) -> list[Phase]:
    found = run.sql(f"""
        SELECT coalesce(step, -1) AS step, coalesce(role, '') AS role, rank, phase,
               start_unix_nano AS start, duration_ns AS duration,
               coalesce(error, '') AS error, device_seconds, memory_end_bytes, attributes
        FROM spans WHERE phase IS NOT NULL AND rank IS NOT NULL AND {where}
        ORDER BY step, role, rank, start, duration DESC
    """)
    columns = [found[name].tolist() for name in found.columns]
    phases: list[Phase] = []
    open_until: list[int] = []
    who: object = None
    for step, role, rank, name, start, duration, error, device, memory, attributes in zip(*columns, strict=True):
        if who != (step, role, rank):
            who, open_until = (step, role, rank), []
        while open_until and open_until[-1] <= start:
            open_until.pop()
        told = {key: value for key, value in (("device seconds", device), ("memory at its end", memory)) if value}
        phases.append(
            Phase(step, role, rank, str(name), "", start, duration, len(open_until), error, told | _told(attributes))
        )
        open_until.append(start + duration)
    return phases


def _told(attributes: object) -> dict[str, object]:
    import msgspec

    if not isinstance(attributes, str):
        return {}
    found = msgspec.json.decode(attributes)
    return dict(found) if isinstance(found, dict) else {}


def present_of_archive(present: Present) -> Present:
    """Return the present of a run of which no agent has written anything: older ones, and plain rows."""
    run = open_run(present.path)
    rows = run.sql("SELECT step, attempt, time_unix_nano AS time FROM steps WHERE NOT late ORDER BY step")
    steps = [int(step) for step in rows["step"]]
    processes = _processes(run)
    ends = run.sql("SELECT outcome, error, time_unix_nano AS time FROM ends ORDER BY time")
    end = read_shown_json(Path(present.path, _END_FILE), Ended) if not len(ends) else None
    times = [int(time) for time in (*rows["time"], *ends["time"])]
    names = [str(name) for name in run.sql("SELECT DISTINCT name FROM rows")["name"]]
    first = steps[-_POINTS] if len(steps) >= _POINTS else (steps[0] if steps else 0)
    curves = _curves(run, names, first)
    outcome: Outcome | None = ends["outcome"][-1] if len(ends) else (end.outcome if end else None)
    seconds = next((one for one in curves if one.name == STEP_TIME), None)
    known = sorted(value for _, value in seconds.points if value is not None) if seconds else []
    progress = Progress(
        first_step=steps[0] if steps else None,
        last_step=steps[-1] if steps else None,
        steps=len(steps),
        total_steps=total_steps(run.parameters),
        step_seconds=known[len(known) // 2] if known else None,
        shares=_shares(run, steps[-20:]),
        curves=curves,
        events=_events(run),
        outcome=outcome,
        error=str(ends["error"][-1]) if len(ends) else (end.error if end else ""),
    )
    state = outcome or ("lost" if steps else "empty")
    reason = progress.error or ("" if outcome or not steps else "no end was recorded")
    return replace(
        present,
        state=state,
        reason=reason,
        last_unix_nano=max(times, default=0),
        at=max(times, default=0),
        progress=progress,
        processes=processes,
        is_complete=True,
    )


def _curves(run: RunReader, names: Sequence[str], first: int) -> tuple[Curve, ...]:
    main = dict.fromkeys((*shown_metrics(names), *([STEP_TIME] if STEP_TIME in names else [])))
    points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in main}
    rows = run.sql("SELECT * FROM rows WHERE step >= " + str(first) + " ORDER BY step")
    for name, step, value in zip(rows["name"], rows["step"], rows["value"], strict=True):
        if name in points:
            points[name].append((int(step), float(value) if math.isfinite(value) else None))
    return tuple(Curve(name, tuple(found[-_POINTS:])) for name, found in points.items() if found)


def _shares(run: RunReader, steps: Sequence[int]) -> tuple[PhaseTime, ...]:
    if not steps:
        return ()
    phases = _phases(run, f"step BETWEEN {steps[0]} AND {steps[-1]} AND coalesce(role, '') = ''")
    return tuple(exclusive(phases))


def _processes(run: RunReader) -> tuple[ProcessNow, ...]:
    found = run.sql("""
        SELECT DISTINCT ON (role, rank) attempt, role, rank, host, pid, started_unix_nano AS started,
               ended_unix_nano AS ended, outcome, error
        FROM attempts WHERE attempt = (SELECT max(attempt) FROM attempts) ORDER BY role, rank, ended DESC NULLS LAST
    """)
    columns = [found[name].tolist() for name in found.columns]
    return tuple(
        ProcessNow(
            attempt=attempt,
            role=role,
            rank=rank,
            host=host,
            pid=pid,
            step=None,
            step_started_unix_nano=None,
            phases=(),
            last_unix_nano=ended or started,
            outcome=outcome,
            error=error or "",
        )
        for attempt, role, rank, host, pid, started, ended, outcome, error in zip(*columns, strict=True)
    )


def _events(run: RunReader) -> tuple[EventNow, ...]:
    found = run.sql(
        "SELECT time_unix_nano AS time, name, attributes, step, rank FROM events ORDER BY time DESC LIMIT 20"
    )
    columns = [found[name].tolist() for name in found.columns]
    events = [
        EventNow(
            *(time, name, " ".join(f"{key}={value}" for key, value in told.items())[:200], step, rank),
            role=str(told.get(semconv.ROLE, "")),
        )
        for time, name, told, step, rank in ((*one[:2], _told(one[2]), *one[3:]) for one in zip(*columns, strict=True))
    ]
    return tuple(reversed(events))
