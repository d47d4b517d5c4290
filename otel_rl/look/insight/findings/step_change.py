"""A change of the time of a step: its phases before and after, and whether a metric changed with one of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.phases import logged_phases, works
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Series
    from otel_rl.look.insight.shifts import Shift

    _Range = tuple[int, int]

_BESIDES = 20
"""Steps on each side of a sudden change in which its cause has to change, too."""
_TOGETHER = 0.1
"""The smallest change of a metric that counts as one that comes with it, as a fraction."""
EXPLAINS = 0.5
"""Share of the growth of a phase, in logarithms, that a metric needs to explain it. Time grows with tokens, at most
with their square."""


class ChangeCause(NamedTuple):
    """The cause of a change: in words, the phases, the names of metrics, what to do, and the findings about it."""

    text: str = ""
    phases: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    advice: str = ""
    covers: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


class GrownPhase(NamedTuple):
    """A phase that changed: its name, its seconds before and after."""

    phase: str
    was: float
    now: float

    @property
    def growth(self) -> float:
        """The logarithm of the factor; 0 of one that came or went."""
        return math.log(self.now / self.was) if self.was > 0 and self.now > 0 else 0.0

    @property
    def verb(self) -> str:
        """The direction in words."""
        return "grew" if self.now > self.was else "fell"

    @property
    def text(self) -> str:
        """The change in words."""
        if not self.was:
            return f"{self.phase} takes {wording.seconds(self.now)}, and was not there before"
        if not self.now:
            return f"{self.phase} took {wording.seconds(self.was)}, and is gone"
        return f"{self.phase} {self.verb} from {wording.seconds(self.was)} to {wording.seconds(self.now)}"

    @property
    def times(self) -> str:
        """The times before and after."""
        return f"{wording.seconds(self.was)} → {wording.seconds(self.now)}"


class Change(NamedTuple):
    """A change of the time of a step, and the steps before and after that are compared.

    `is_sudden` is false for a trend, which comes bit by bit.
    """

    recorded: RecordedRun
    shift: Shift
    before: _Range
    after: _Range
    is_sudden: bool

    def phases(self) -> list[GrownPhase]:
        """Return all phases with their times; those that the trainer logged, if it has no spans of phases."""
        was, now = (works(self.recorded, steps) or _logged(self.recorded, steps) for steps in (self.before, self.after))
        return [GrownPhase(phase, was.get(phase, 0.0), now.get(phase, 0.0)) for phase in {**was, **now}]

    def explains(self, series: Series, grown: GrownPhase) -> tuple[float, float] | None:
        """Return the medians of a metric before and after if it changed as much as a phase, and at the same steps."""
        old, new = series.between(*self.before).median, series.between(*self.after).median
        if not (_explains(old, new, grown.growth) and abs(math.log(new / old)) >= math.log1p(_TOGETHER)):
            return None
        if self.is_sudden:
            first, since, last = self.before[0], self.after[0], self.after[1]
            near = (max(first, since - _BESIDES), since - 1), (since, min(last, since + _BESIDES - 1))
            was, now = (works(self.recorded, steps).get(grown.phase, 0.0) for steps in near)
            growth = GrownPhase("", was, now).growth or grown.growth
            if not _explains(series.between(*near[0]).median, series.between(*near[1]).median, growth):
                return None
        return old, new


def _explains(old: float, new: float, growth: float) -> bool:
    return old > 0 and new > 0 and growth != 0 and math.log(new / old) / growth >= EXPLAINS


def _logged(recorded: RecordedRun, steps: _Range) -> dict[str, float]:
    """Return the median times of phases that the trainer logged, by the names of the metrics."""
    medians = {name: recorded.series(name).between(*steps).median for name in logged_phases(recorded)}
    return {name: median for name, median in medians.items() if median > 0}


def fifths(series: Series, shift: Shift) -> tuple[_Range, _Range]:
    """Return the first and the last fifth of the steps of a trend."""
    steps = series.between(shift.first, shift.last).finite.steps
    fifth = max(1, len(steps) // 5)
    return (int(steps[0]), int(steps[fifth - 1])), (int(steps[-fifth]), int(steps[-1]))
