"""Where the wall time of a run went: the attempts and steps of its archive, for the rule of the facts."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from otel_rl import semconv
from otel_rl.look.insight.phases import by_category
from otel_rl.look.insight.step_rows import WHOLE, late_seconds, step_rows
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import goodput as rule
from otel_rl.recorder.facts.goodput import AttemptTime
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.facts.step_time import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.look.insight.facts import PhaseShare
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.facts.outcome import RunExtent
    from otel_rl.recorder.facts.standing import Standing

_NS = 1_000_000_000
_StepsOfAttempt = tuple[int, int, int]
"""When the first whole step of an attempt began, when its last one ended, and the nanoseconds in at least one."""


def goodput_of(
    recorded: RecordedRun, attempts: Iterable[AttemptTime], shares: Sequence[PhaseShare]
) -> dict[str, float]:
    """Return the parts of the wall time of a run, which sum to 1; none if no phase says what steps are spent on."""
    return {} if recorded.steps is None else rule.goodput([*attempts], recorded.hung, by_category(shares))


def attempt_times(recorded: RecordedRun, standing: Standing, extent: RunExtent) -> dict[int, AttemptTime]:
    """Return the times of each attempt by its number; one without a recorded end lasts until its last whole step."""
    of_steps = _steps_of_rows if recorded.lacks_spans else _steps
    every = of_steps(recorded.every)
    valid = of_steps(recorded.run) if len(every) > 1 else every
    is_open = goes_on(standing.state)
    started: dict[int, int] = {}
    ended: dict[int, int] = defaultdict(int)
    without_end: set[int] = set()
    for member in recorded.members:
        if not member.role:
            started[member.attempt] = min(member.started_unix_nano, started.get(member.attempt, 1 << 62))
            ended[member.attempt] = max(member.ended_unix_nano or 0, ended[member.attempt])
            if member.ended_unix_nano is None:
                without_end.add(member.attempt)
    attempts = {}
    last = max({*started, *every}, default=0)
    for attempt in sorted({*started, *every}):
        first, until, in_all = every.get(attempt, (None, 0, 0))
        in_steps = valid.get(attempt, (0, 0, 0))[2]
        began = started.get(attempt, first or 0)
        end = max(ended[attempt], until)
        after: Literal["between", "end", "open"] = "end"
        if attempt == last:
            has_end = attempt in started and attempt not in without_end  # workers may be ended later
            end = recorded.at_unix_nano if is_open else end if has_end else max(end, extent.last_unix_nano)
            after = "open" if is_open else "between" if standing.state == "finished" else "end"
        attempts[attempt] = AttemptTime(began, end, first, until, in_steps, max(0, in_all - in_steps), after)
    return attempts


def _steps(run: RunReader) -> Mapping[int, _StepsOfAttempt]:
    """Return the time of the whole steps of each attempt: of spans, or of a trainer that only logs, of rows."""
    late = [(attempt, step, round(seconds * _NS)) for (attempt, step), seconds in late_seconds(run).items()]
    spans = run.sql(f"""
        WITH late (attempt, step, took) AS (VALUES {", ".join(map(str, late or [(-1, -1, 0)]))}),
            steps_done AS (SELECT attempt, start_unix_nano AS began,
                start_unix_nano + greatest(duration_ns, took) AS ended
                FROM spans LEFT JOIN late USING (attempt, step)
                WHERE name = '{semconv.SPAN_LOOP}' AND attempt IS NOT NULL AND {WHOLE}),
            roots AS (SELECT *, max(ended) OVER (PARTITION BY attempt ORDER BY began
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM steps_done)
        SELECT attempt, min(began), max(ended),
            sum(greatest(0, ended - greatest(began, coalesce(before, began))))::BIGINT
        FROM roots GROUP BY attempt""")
    if len(spans):
        return {line[0]: line[1:] for line in lines_of(spans)}
    return _steps_of_rows(run)


def _steps_of_rows(run: RunReader) -> Mapping[int, _StepsOfAttempt]:
    """Return the time of the whole steps of each attempt, by their rows alone."""
    steps: dict[int, _StepsOfAttempt] = {}
    for attempt, of_attempt in groupby(step_rows(run), key=lambda row: row.attempt):
        rows = [*of_attempt]
        seconds = dict(times(rows))
        done = [(row.time_unix_nano, round(seconds[row.step] * _NS)) for row in rows if row.step in seconds]
        if done:
            (ended, took), (last, _) = done[0], done[-1]
            steps[attempt] = ended - took, last, sum(took for _, took in done)
    return steps
