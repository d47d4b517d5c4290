"""Which steps are slow, and which are usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.recorded import PHASE
from otel_rl.look.insight.span_work import ENDED
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.reader.runs import RunReader

_FENCE = 4.0
"""A step is slow if it is above the median by so many times the distance of the lower quartile, where none is slow."""
_LEAST = 0.1
"""And if it is above the median by this fraction."""
_NEAR = 200
"""Steps among which the usual ones of a step are chosen: in a long run, the times of all change."""
MOST_EXPLAINED = 8
"""Steps that are explained together."""


class StepWall(NamedTuple):
    """The number, the begin and the end of a step, in nanoseconds."""

    step: int
    began: int
    ended: int

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return (self.ended - self.began) / 1e9


def walls(run: RunReader, phase: str = "") -> list[StepWall]:
    """Return the steps with a span, in their order; of a phase, if one is given."""
    of_phase = f"{PHASE} AND phase = {literal(phase)} AND role IS NULL AND rank IS NOT NULL"
    rows = run.sql(f"""SELECT step, min(start_unix_nano) AS began, max({ENDED}) AS ended
        FROM spans WHERE step IS NOT NULL AND {of_phase if phase else f"name = '{semconv.SPAN_LOOP}'"}
        GROUP BY step ORDER BY step""")
    return [StepWall(*line) for line in lines_of(rows)]


def slow_of(walls: Sequence[StepWall]) -> list[StepWall]:
    """Return slow steps, the slowest first; none if no step is much slower than the others."""
    if len(walls) < 4:
        return []
    times = np.array([wall.seconds for wall in walls])
    low, middle = np.quantile(times, [0.25, 0.5])
    limit = max(middle + _FENCE * (middle - low), middle * (1 + _LEAST))
    return sorted((wall for wall in walls if wall.seconds > limit), key=lambda wall: -wall.seconds)


def usual_of(walls: Sequence[StepWall], explained: Sequence[StepWall], most: int) -> list[StepWall]:
    """Return usual steps: of those near the explained ones that are not slow, the middle half by their time, evenly."""
    center = float(np.median([wall.step for wall in explained]))
    without = {wall.step for wall in (*explained, *slow_of(walls))}
    near = sorted((wall for wall in walls if wall.step not in without), key=lambda wall: abs(wall.step - center))[
        :_NEAR
    ]
    if not near:
        return []
    low, high = np.quantile([wall.seconds for wall in near], [0.25, 0.75])
    middle = [wall for wall in near if low <= wall.seconds <= high] or near
    picked = np.unique(np.linspace(0, len(middle) - 1, min(most, len(middle))).round().astype(int))
    return sorted(middle[n] for n in picked)
