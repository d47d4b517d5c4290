"""The signs of a run and how far it is, for the rules of the facts: as its agents wrote them, else from its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from otel_rl.look.insight.step_rows import step_rows
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.archive import reports
from otel_rl.recorder.archive.now import ProcessNow
from otel_rl.recorder.directory.last_start import last_start
from otel_rl.recorder.facts import standing as rule
from otel_rl.recorder.facts.outcome import RunExtent, plausible_total
from otel_rl.recorder.facts.processes import cause_of
from otel_rl.recorder.facts.signs import AgentReport, AttemptEnd, RunSigns
from otel_rl.recorder.facts.step_time import RECENT_STEPS, recent
from otel_rl.semconv.total_steps import total_steps

if TYPE_CHECKING:
    from otel_rl.export import Outcome
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.standing import Standing


def standing(recorded: RecordedRun) -> Standing:
    """Return the state of a run."""
    return rule.standing(signs_of(recorded), recorded.at_unix_nano)


def signs_of(recorded: RecordedRun) -> RunSigns:
    """Return the signs of a run."""
    if recorded.now:
        return reports.signs_of(recorded.place.path, recorded.now, recorded.at_unix_nano)
    processes = tuple(map(reports.known_process, processes_of(recorded)))
    ends = tuple(
        AttemptEnd(end.attempt, cast("Outcome", end.outcome), end.error, end.time_unix_nano) for end in recorded.ends
    )
    known = reports.signs_of(recorded.place.path, (), recorded.at_unix_nano)
    return known._replace(
        agents=(AgentReport(0, True, processes),), ends=ends or known.ends, has_steps=recorded.steps is not None
    )


def extent_of(recorded: RecordedRun) -> RunExtent:
    """Return how far a run is."""
    if recorded.now:
        extent = reports.extent_of(recorded.now)
        is_known = extent.recent_step_seconds is not None  # earlier agents did not write it
        return extent if is_known else extent._replace(recent_step_seconds=_recent_step_seconds(recorded))
    processes, steps = processes_of(recorded), recorded.steps
    known_processes = [*map(reports.known_process, processes)]
    attempt = max((process.attempt for process in processes), default=0)
    times = [process.last_unix_nano for process in processes] + [end.time_unix_nano for end in signs_of(recorded).ends]
    times += [steps.last_unix_nano] if steps else []
    start = last_start(recorded.place.path)
    last = max(times, default=0 if start is None else start.time_unix_nano)
    started = min((member.started_unix_nano for member in recorded.members), default=last)
    firsts = recorded.firsts if processes else []
    return RunExtent(
        started_unix_nano=started,
        last_unix_nano=last,
        first_step=steps.first if steps else None,
        last_step=steps.last if steps else None,
        steps=steps.number if steps else 0,
        total_steps=plausible_total(total_steps(recorded.parameters), steps.last if steps else None),
        resumed_at=tuple(first for of, first, _ in firsts if of > firsts[0][0]),
        recent_step_seconds=_recent_step_seconds(recorded),
        hosts=rule.hosts_of(known for known in known_processes if known.attempt == attempt),
        before=rule.down_before(known_processes, attempt),
    )


def processes_of(recorded: RecordedRun) -> list[ProcessNow]:
    """Return the processes of all attempts, as the archive has them."""
    rows = recorded.run.sql("""
        SELECT attempt, role, rank, host, pid, coalesce(ended_unix_nano, started_unix_nano) AS last_unix_nano, outcome,
               coalesce(error, '') AS error, ended_unix_nano, exit_code, cause, ended_step,
               coalesce(ended_phase, '') AS ended_phase, coalesce(down_order, 0) AS down_order
        FROM attempts ORDER BY attempt, role, rank, started_unix_nano""")
    known: list[dict[str, Any]] = [dict(zip(rows.columns, line, strict=True)) for line in lines_of(rows)]
    return [
        ProcessNow(step=None, step_started_unix_nano=None, phases=(), **values | {"cause": cause_of(values["cause"])})
        for values in known
    ]


def _recent_step_seconds(recorded: RecordedRun) -> float | None:
    return recent(step_rows(recorded.run, RECENT_STEPS + 1))
