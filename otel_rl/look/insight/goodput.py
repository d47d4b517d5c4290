"""Where the wall time of a run went: the attempts and steps of its archive, for the rule of the facts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from otel_rl import semconv
from otel_rl.look.insight.phases import by_category
from otel_rl.look.insight.step_rows import step_rows
from otel_rl.recorder.facts import goodput as rule
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.facts.step_time import times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.insight.facts import PhaseShare
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.facts.outcome import RunExtent
    from otel_rl.recorder.facts.standing import Standing

_NS = 1_000_000_000
_StepsOfAttempt = tuple[int, int, int]
"""When the first whole step of an attempt began, when its last one ended, and the nanoseconds in at least one."""


def goodput_of(
    recorded: RecordedRun, standing: Standing, extent: RunExtent, shares: Sequence[PhaseShare]
) -> dict[str, float]:
    """Return the parts of the wall time of a run, which sum to 1; none if no phase says what steps are spent on."""
    if recorded.steps is None:
        return {}
    every = _steps(recorded.every)
    valid = _steps(recorded.run) if len(every) > 1 else every
    last = max(every, default=0)
    is_open = goes_on(standing.state)
    started: dict[int, int] = {}
    ended: dict[int, int] = defaultdict(int)
    for member in recorded.members:
        if not member.role:
            started[member.attempt] = min(member.started_unix_nano, started.get(member.attempt, 1 << 62))
            ended[member.attempt] = max(member.ended_unix_nano or 0, ended[member.attempt])
    attempts = []
    for attempt in sorted({*started, *every}):
        first, until, in_all = every.get(attempt, (None, 0, 0))
        in_steps = valid.get(attempt, (0, 0, 0))[2]
        began = started.get(attempt, first or 0)
        end = max(ended[attempt], until)
        after: Literal["between", "end", "open"] = "end"
        if attempt == last:
            end = recorded.at_unix_nano if is_open else max(end, extent.last_unix_nano)
            after = "open" if is_open else "between" if standing.state == "finished" else "end"
        attempts.append(rule.AttemptTime(began, end, first, until, in_steps, max(0, in_all - in_steps), after))
    return rule.goodput(attempts, recorded.hung, by_category(shares))


def _steps(run: RunReader) -> Mapping[int, _StepsOfAttempt]:
    """Return the time of the whole steps of each attempt: of spans, or of a trainer that only logs, of rows."""
    spans = run.sql(f"""
        WITH roots AS (SELECT attempt, start_unix_nano AS began, start_unix_nano + duration_ns AS ended,
            max(start_unix_nano + duration_ns) OVER (PARTITION BY attempt ORDER BY start_unix_nano
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM spans WHERE name = '{semconv.SPAN_LOOP}' AND attempt IS NOT NULL
                AND (attempt, step) NOT IN (SELECT (attempt, step) FROM steps WHERE partial))
        SELECT attempt, min(began), max(ended),
            sum(greatest(0, ended - greatest(began, coalesce(before, began))))::BIGINT
        FROM roots GROUP BY attempt""")
    if len(spans):
        return {line[0]: line[1:] for line in zip(*(spans[name].tolist() for name in spans.columns), strict=True)}
    rows = step_rows(run)
    seconds = dict(times(rows))
    steps: dict[int, _StepsOfAttempt] = {}
    for row in rows:
        if row.step in seconds:
            took = round(seconds[row.step] * _NS)
            first, _, spent = steps.get(row.attempt, (row.time_unix_nano - took, 0, 0))
            steps[row.attempt] = first, row.time_unix_nano, spent + took
    return steps
