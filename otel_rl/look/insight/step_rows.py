"""The times of steps, and the rows that they come from, read from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.runs import RunReader
from otel_rl.recorder.facts.step_time import StepRow, slower, times
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = "(attempt, step) NOT IN (SELECT (attempt, step) FROM steps WHERE partial)"
"""The condition, in SQL, that no process died inside a step: otherwise it was not done, and has no time."""
_SECONDS = f"SELECT attempt, step, max(value) AS seconds FROM rows WHERE name = '{STEP_TIME}'"


def step_seconds(run: RunReader) -> list[tuple[int, float]]:
    """Return the steps of the valid history with their wall times in seconds, in their order."""
    return times(step_rows(run))


def step_rows(run: RunReader, last: int | None = None) -> list[StepRow]:
    """Return the rows of whole steps in the order of attempts and steps: all, or so many of the last ones."""
    limit = "" if last is None else f"LIMIT {last}"
    rows = run.sql(f"""
        WITH ends AS (SELECT attempt, step, max(time_unix_nano) AS ended FROM steps WHERE NOT late AND {WHOLE}
                      GROUP BY ALL ORDER BY attempt DESC, step DESC {limit}),
            times AS ({_SECONDS} AND step >= (SELECT min(step) FROM ends) GROUP BY ALL)
        SELECT step, attempt, ended, seconds FROM ends LEFT JOIN times USING (attempt, step) ORDER BY attempt, step""")
    late = late_seconds(run)
    known = (StepRow(*row) for row in lines_of(rows))
    return [row._replace(seconds=slower(row.seconds, late.get((row.attempt, row.step)))) for row in known]


def late_seconds(run: RunReader) -> Mapping[tuple[int, int], float]:
    """Return the times of ranks that came late to their step, by attempt and step.

    The valid history lacks them: there, a value that comes late never replaces one that left in time.
    """
    if not run.sql("SELECT count(*) AS n FROM steps WHERE late")["n"][0]:
        return {}
    rows = RunReader([run.place], "all").sql(f"{_SECONDS} AND late GROUP BY ALL")
    return {(attempt, step): seconds for attempt, step, seconds in lines_of(rows)}
