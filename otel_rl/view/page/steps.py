"""The steps of a run and their times: the axis that all parts of the page share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.view.page.packed import packed, packed_steps, packed_times

if TYPE_CHECKING:
    from otel_rl.archive.reader import RunReader

_QUERY = f"""
WITH found AS (
    SELECT step, min(begun) AS begun, coalesce(max(ended), max(noted)) AS ended, max(attempt) AS attempt FROM (
        SELECT step, attempt, start_unix_nano AS begun, start_unix_nano + duration_ns AS ended, NULL AS noted
        FROM spans WHERE attempt IS NOT NULL AND step IS NOT NULL
        UNION ALL
        SELECT step, attempt, NULL, NULL, time_unix_nano FROM steps WHERE NOT late
    ) GROUP BY step
), times AS (
    SELECT step, avg(value) AS took FROM rows WHERE name = '{STEP_TIME}' AND isfinite(value) GROUP BY step
)
SELECT step, begun, ended, attempt, coalesce(took, (ended - begun) / 1e9) AS seconds
FROM found LEFT JOIN times USING (step) ORDER BY step
"""


class Steps(NamedTuple):
    """The steps of the valid history.

    Attributes:
        numbers: Their numbers, ascending.
        begun: When they began, in Unix nanoseconds; masked if nothing says it.
        ended: When they ended.
        attempts: The attempt of each.
        seconds: The time of each, of its slowest rank; masked if nothing says it.
    """

    numbers: np.ndarray[Any, Any]
    begun: np.ma.MaskedArray[Any, Any]
    ended: np.ndarray[Any, Any]
    attempts: np.ndarray[Any, Any]
    seconds: np.ma.MaskedArray[Any, Any]

    @property
    def first(self) -> int:
        """The first step; 0 without steps."""
        return int(self.numbers[0]) if len(self.numbers) else 0

    @property
    def last(self) -> int:
        """The last step; 0 without steps."""
        return int(self.numbers[-1]) if len(self.numbers) else 0

    def every(self, most: int) -> int:
        """Return how many step numbers share a point, so that there are at most this many points."""
        return max(1, -(-(self.last - self.first + 1) // max(1, most)))


def steps_of(run: RunReader) -> Steps:
    """Return the steps of a run."""
    found = run.sql(_QUERY)
    begun, seconds = np.ma.MaskedArray(found["begun"]), np.ma.MaskedArray(found["seconds"])
    return Steps(found["step"], begun, np.ma.getdata(found["ended"]), found["attempt"], seconds)


def drawn(steps: Steps, origin: int) -> dict[str, Any]:
    """Return the steps as the page needs them: numbers, seconds from the origin to their end, and their duration."""
    starts = np.flatnonzero(np.diff(steps.attempts, prepend=steps.attempts[:1]))
    return {
        "steps": packed_steps(steps.numbers),
        "ended": packed_times((steps.ended - origin) / 1e9),
        "seconds": packed(steps.seconds.filled(np.nan), "f4"),
        "resumed": [[int(steps.numbers[at]), int(steps.attempts[at])] for at in starts],
    }
