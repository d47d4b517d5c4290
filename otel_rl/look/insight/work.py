"""The work of phases, without the time in which ranks wait for others in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.recorded import PHASE, in_sample

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_MOST_STEPS = 128
"""Steps of a range that are looked at, so that a long run is read as fast as a short one."""
_TOGETHER = 0.25
"""Part of the difference of durations within which ranks that waited for each other leave a phase."""


def works(recorded: RecordedRun, steps: tuple[int, int]) -> dict[str, float]:
    """Return the median over steps of the seconds that a step spends on each phase.

    Where all ranks leave a phase together, the one that entered last did not wait: its time is the work. Of other
    phases, the slowest rank counts. Phases inside other ones are left out.

    Args:
        recorded: The run.
        steps: The first and the last step; of many, three ranges inside are looked at.
    """
    query = f"""
        WITH found AS (
            SELECT step, rank, phase, span_id, parent_id, start_unix_nano AS began,
                start_unix_nano + duration_ns AS ended, duration_ns, {PHASE} AS is_whole
            FROM spans WHERE phase IS NOT NULL AND role IS NULL AND {recorded.whole_steps}
                AND {in_sample(*steps, _MOST_STEPS, 3)}
        ), outermost AS (
            SELECT f.* FROM found AS f ANTI JOIN found AS o ON f.parent_id = o.span_id AND f.step = o.step
            WHERE f.is_whole
        ), of_rank AS (
            SELECT step, rank, phase, sum(duration_ns) AS took, max(ended) AS ended FROM outermost GROUP BY 1, 2, 3
        )
        SELECT step, phase, max(took)::DOUBLE AS longest, min(took)::DOUBLE AS shortest,
            (max(ended) - min(ended))::DOUBLE AS apart, count(*) AS ranks
        FROM of_rank GROUP BY 1, 2"""
    seconds = recorded.run.sql(query)
    longest, shortest = seconds["longest"] / 1e9, seconds["shortest"] / 1e9
    waits = (seconds["apart"] / 1e9 < _TOGETHER * (longest - shortest)) & (seconds["ranks"] > 1)
    took = np.where(waits, shortest, longest)
    phases, number = seconds["phase"], len(np.unique(seconds["step"]))
    times: dict[str, float] = {}
    for phase in sorted(set(phases.tolist())):
        of_phase = took[phases == phase]
        if len(of_phase) * 2 > number:  # not an evaluation or a checkpoint of few steps
            times[phase] = float(np.median(of_phase))
    return times
