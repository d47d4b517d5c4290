"""The steps of a run and their times: the axis that all parts of the page share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.step_rows import step_seconds
from otel_rl.look.page.packed import packed, packed_steps, packed_times

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader

_QUERY = f"""
WITH found AS (
    SELECT step, min(begun) AS begun, coalesce(max(ended), max(noted)) AS ended, max(attempt) AS attempt FROM (
        SELECT step, attempt, start_unix_nano AS begun, start_unix_nano + duration_ns AS ended, NULL AS noted
        FROM spans WHERE name = '{semconv.SPAN_LOOP}' AND step IS NOT NULL
        UNION ALL
        SELECT step, attempt, NULL, NULL, time_unix_nano FROM steps WHERE NOT late
    ) GROUP BY step
)
SELECT step, begun, ended, attempt FROM found ORDER BY step
"""


class StepAxis(NamedTuple):
    """The steps of the valid history."""

    numbers: np.ndarray[Any, Any]  # their numbers, ascending
    begun: np.ma.MaskedArray[Any, Any]  # when they began, in Unix nanoseconds; masked if nothing says it
    ended: np.ndarray[Any, Any]  # when they ended
    attempts: np.ndarray[Any, Any]  # the attempt of each
    seconds: np.ma.MaskedArray[Any, Any]  # the time of each, of its slowest rank; masked if nothing says it

    @property
    def first(self) -> int:
        """The first step; 0 without steps."""
        return int(self.numbers[0]) if len(self.numbers) else 0

    @property
    def last(self) -> int:
        """The last step; 0 without steps."""
        return int(self.numbers[-1]) if len(self.numbers) else 0

    @property
    def within(self) -> str:
        """The SQL condition that a line is about one of these steps: a run that goes on has more by now."""
        return f"step BETWEEN {self.first} AND {self.last}"

    def every(self, most: int) -> int:
        """Return how many step numbers share a point, so that there are at most this many points."""
        return max(1, -(-(self.last - self.first + 1) // max(1, most)))


def steps_of(run: RunReader) -> StepAxis:
    """Return the steps of a run."""
    rows = run.sql(_QUERY)
    known = dict(step_seconds(run))
    seconds = np.ma.masked_invalid([known.get(step, np.nan) for step in rows["step"].tolist()])
    return StepAxis(
        rows["step"], np.ma.MaskedArray(rows["begun"]), np.ma.getdata(rows["ended"]), rows["attempt"], seconds
    )


def drawn(steps: StepAxis, origin: int) -> dict[str, Any]:
    """Return the steps as the page needs them: numbers, seconds from the origin to their end, and their duration."""
    starts = np.flatnonzero(np.diff(steps.attempts, prepend=steps.attempts[:1]))
    return {
        "steps": packed_steps(steps.numbers),
        "ended": packed_times((steps.ended - origin) / 1e9),
        "seconds": packed(steps.seconds.filled(np.nan), "f4"),
        "resumed": [[int(steps.numbers[at]), int(steps.attempts[at])] for at in starts],
    }
