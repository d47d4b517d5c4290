"""The delays of ranks in SQL, for all steps of a run: as `otel_rl.recorder.facts.delay` has them, a test says."""

from __future__ import annotations

from otel_rl.look.insight.own_times import IN_STEPS
from otel_rl.look.insight.recorded import PHASE

_MIDDLE = "CASE count(*) WHEN 2 THEN min({0}) ELSE median({0}) END"
OF_RANKS = f"{IN_STEPS} AND {PHASE} AND rank IS NOT NULL AND role IS NULL"
"""The condition, in SQL, that a span is a whole phase of a rank inside of a step."""


def delays(where: str) -> str:
    """Return the query for step, phase, rank, `delay` in seconds, and `took`, the time of the rank in the step.

    Args:
        where: A condition, in SQL, on the spans.
    """
    return f"""
        WITH stays AS (
            SELECT step, phase, rank, min(start_unix_nano) AS came, max(start_unix_nano + duration_ns) AS gone
            FROM spans WHERE {OF_RANKS} AND {where} GROUP BY ALL
        ), counted AS (
            SELECT step, phase, rank, came - min(came) OVER own AS came, gone - min(came) OVER own AS gone,
                (max(gone) OVER own - min(came) OVER own) / 1e9 AS took
            FROM stays WINDOW own AS (PARTITION BY step, rank)
        ), middle AS (
            SELECT step, phase, {_MIDDLE.format("came")} AS came, {_MIDDLE.format("gone")} AS gone
            FROM counted GROUP BY ALL HAVING count(*) > 1
        )
        SELECT step, phase, rank, took, (greatest(0, counted.gone - middle.gone)
            - greatest(0, counted.came - middle.came))::DOUBLE / 1e9 AS delay
        FROM counted JOIN middle USING (step, phase)"""
