"""The times of steps, and the rows that they come from, read from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.facts.step_time import StepRow, times
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader


def step_seconds(run: RunReader) -> list[tuple[int, float]]:
    """Return the steps of the valid history with their wall times in seconds, in their order."""
    return times(step_rows(run))


def step_rows(run: RunReader, last: int | None = None) -> list[StepRow]:
    """Return the rows of the valid history in the order of their steps: all, or so many of the last ones."""
    limit = "" if last is None else f"LIMIT {last}"
    rows = run.sql(f"""
        WITH ends AS (SELECT step, max(attempt) AS attempt, max(time_unix_nano) AS ended FROM steps WHERE NOT late
                      GROUP BY step ORDER BY step DESC {limit}),
            times AS (SELECT step, avg(value) AS seconds FROM rows
                      WHERE name = '{STEP_TIME}' AND step >= (SELECT min(step) FROM ends) GROUP BY step)
        SELECT step, attempt, ended, seconds FROM ends LEFT JOIN times USING (step) ORDER BY step""")
    return [StepRow(*row) for row in zip(*(rows[name].tolist() for name in rows.columns), strict=True)]
