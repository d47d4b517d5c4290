"""Finds the rank that is slow, and the phase in which it falls behind; ranks that merely wait are not blamed.

A rank that is slow before a collective makes all others wait in it, so the durations of the others are long. The
measure is by how much a rank becomes later than the others between entering and leaving a phase: a rank that waits
does not become later. Times count from the rank's own first phase in the step, since the clocks of machines differ.

A rank is reported when two things are true. It matters: the median over twenty steps of what it falls behind is more
than 10 % of what the phase takes, 0.25 % of the step, and 10 ms. And it is not an accident: a healthy rank is
reported in at most 5 % of the runs, whatever their length. The hypothesis is that ranks are exchangeable and steps
independent; whatever the distribution is, a rank is then among the c of W ranks that fall far behind in a
step with probability c / W. A bet against it, at odds t, multiplies its wealth by t / (1 + (t - 1) c / W) in such a
step and by 1 / (1 + (t - 1) c / W) in any other: 1 on average. So is the sum of bets that begin at each step n with
1 / n(n + 1), which finds a rank that becomes slow late. A wealth above 1 / p comes about with probability p at any
time (Ville's inequality; Ramdas et al. 2023, "Game-theoretic statistics and safe anytime-valid inference",
Statistical Science 38; the sum over beginnings: Shin, Ramdas and Rinaldo 2024, "E-detectors", The New England Journal
of Statistics in Data Science 2), and p is shared out: 6 / (π² i²) of it to the i-th phase, in which each
rank has the same part.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.analysis import Analysis, Conclusion, Point
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.state import host_of
from otel_rl.recorder.convert.known_names import KnownNames
from otel_rl.recorder.facts.delay import delays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.analysis import Basis
    from otel_rl.export import AttributeValue, Span
    from otel_rl.recorder.agent.steps.closed import Closed
    from otel_rl.recorder.facts.delay import Stay

_WINDOW = 20
_LEAST_STEPS = 5
_MOST_PHASES = 200
_LEAST_SCORE = 0.1
_LEAST_SHARE = 0.0025
"""Minimum share of the step by which a rank must fall behind."""
_LEAST_SECONDS = 0.01
_ERROR = 0.05
"""Probability that any healthy rank is reported in a run, over all phases."""
_BETS = ((10.0, 0.3), (1000.0, 0.7))
"""Odds, and the part of the wealth that is bet at them: low ones win in much noise, high ones soon in little."""
_TOGETHER = 0.25
"""Part of the time by which ranks came apart within which they leave a phase together, as in `why`."""
_LEAST_MEETINGS = 3
_MOSTLY = 0.8
"""Share of the meetings that ranks leave together: on a busy machine, one of them may wake up late."""
_WEALTHY = 1e100
_SHORTEST = 1e-3
"""Seconds: of a phase that takes the ranks less, or nothing, the score is relative to this."""


class Straggler(NamedTuple):
    """A rank that falls behind in a phase: the median delay per step, in seconds and as a share of the phase."""

    phase: str
    rank: int
    score: float
    seconds: float


class _Pace:
    """The history of a rank in a phase: its recent delays, and the wealth of the bets on it."""

    def __init__(self) -> None:
        self.behind: deque[float] = deque(maxlen=_WINDOW)
        self.steps = 0
        self.wealth = [0.0] * len(_BETS)
        self.reported = False

    def add(self, seconds: float, *, is_far: bool, share: float) -> None:
        """Add a step in which this share of the ranks fell far behind, with or without this rank."""
        self.behind.append(seconds)
        self.steps += 1
        begins = 1 / (self.steps * (self.steps + 1))
        for index, (odds, part) in enumerate(_BETS):
            factor = (odds if is_far else 1.0) / (1 + (odds - 1) * share)
            self.wealth[index] = min(_WEALTHY, (self.wealth[index] + begins * part) * factor)


class _Phase:
    """The history of a phase and its ranks: the durations, in seconds, of the phase and of the last steps.

    `number` is the position of the phase in order of first use, from 1.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.takes: deque[float] = deque(maxlen=_WINDOW)
        self.of_step: deque[float] = deque(maxlen=_WINDOW)
        self.paces: dict[int, _Pace] = defaultdict(_Pace)
        self._meetings = deque[bool](maxlen=_WINDOW)
        self._left: dict[int, int] = {}

    @property
    def is_together(self) -> bool:
        """Whether all ranks leave it together when they have come apart."""
        return len(self._meetings) >= _LEAST_MEETINGS and sum(self._meetings) >= _MOSTLY * len(self._meetings)

    def add(self, stays: Mapping[int, Stay], began: Mapping[int, int], step: float) -> None:
        """Add a step of this many seconds; `began` is when each rank began its first phase."""
        takes = median(left - entered for entered, left in stays.values()) / 1e9
        self._meet({rank: (began[rank] + entered, began[rank] + left) for rank, (entered, left) in stays.items()})
        self.takes.append(takes)
        self.of_step.append(step)
        behind = delays(stays)
        far = _least(takes, step) / 2
        share = sum(seconds > far for seconds in behind.values()) / len(behind)
        for rank, seconds in behind.items():
            self.paces[rank].add(seconds, is_far=seconds > far, share=share)

    def _meet(self, stays: Mapping[int, Stay]) -> None:
        """Add whether ranks that came apart left together.

        Times count from when each rank left this phase the step before: that cancels out how far clocks differ, and
        nothing that a rank does alone gets into it.
        """
        before, self._left = self._left, {rank: left for rank, (_, left) in stays.items()}
        if before.keys() == stays.keys():
            since = [(entered - before[rank], left - before[rank]) for rank, (entered, left) in stays.items()]
            came, left = ((max(of) - min(of)) / 1e9 for of in zip(*since, strict=True))
            if max(came, left) > _LEAST_SECONDS:
                self._meetings.append(left <= _TOGETHER * came)

    def report(self) -> list[int]:
        """Return the ranks that have become stragglers; one that has recovered may become one again."""
        least = _least(median(self.takes), median(self.of_step))
        enough = len(self.paces) * self.number**2 * math.pi**2 / 6 / _ERROR
        ranks = []
        for rank, pace in self.paces.items():
            if pace.reported:
                if median(pace.behind) < least / 2:
                    pace.reported, pace.wealth = False, [0.0] * len(_BETS)
            elif sum(pace.wealth) >= enough and len(pace.behind) >= _LEAST_STEPS and median(pace.behind) > least:
                pace.reported = True
                ranks.append(rank)
        return ranks

    def straggler(self, name: str, rank: int) -> Straggler:
        """Return how far a rank falls behind."""
        seconds = median(self.paces[rank].behind)
        return Straggler(name, rank, seconds / max(_SHORTEST, median(self.takes)), seconds)


class Stragglers:
    """Scores of the last twenty steps. A new agent starts from zero."""

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = {}
        self._known = KnownNames("phases that stragglers are looked for in", _MOST_PHASES)

    def add(self, spans: Iterable[Span]) -> list[Straggler]:
        """Add the spans of a step; return the new stragglers."""
        stragglers: list[Straggler] = []
        of_step, began = _stays(spans)
        step = _seconds(of_step)
        for name, stays in of_step.items():
            if len(stays) > 1 and self._known.admits(name):
                phase = self._phases.setdefault(name, _Phase(len(self._phases) + 1))
                phase.add(stays, began, step)
                stragglers += [phase.straggler(name, rank) for rank in phase.report()]
        return stragglers

    @property
    def together(self) -> set[str]:
        """The phases that all ranks leave together: each waits in them for the last one."""
        return {name for name, phase in self._phases.items() if phase.is_together}

    def worst(self) -> list[Straggler]:
        """Return for each phase the rank that falls behind most, the worst phase first."""
        stragglers: list[Straggler] = []
        for name, phase in self._phases.items():
            rank = max(phase.paces, key=lambda rank: (median(phase.paces[rank].behind), rank))
            stragglers.append(phase.straggler(name, rank))
        return sorted(stragglers, key=lambda one: one.seconds, reverse=True)

    def points(self) -> list[Point]:
        """Return score, seconds and rank of the worst rank in each phase, to bound the number of series."""
        points: list[Point] = []
        for one in self.worst():
            phase = ((semconv.PHASE, one.phase),)
            points.append(Point(semconv.METRIC_STRAGGLER_SCORE, one.score, phase))
            points.append(Point(semconv.METRIC_STRAGGLER_DELAY, one.seconds, phase))
            points.append(Point(semconv.METRIC_STRAGGLER_RANK, one.rank, phase))
        return points


class StragglersAnalysis(Analysis):
    """Reports ranks that become stragglers when a step closes."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._stragglers = Stragglers()

    def close(self, step: Closed, values: Mapping[str, float]) -> Conclusion:
        """Return an event for each new straggler."""
        new = self._stragglers.add(step.step.spans)
        self.basis.together = frozenset(self._stragglers.together)
        return Conclusion(items=[self._event(straggler, step) for straggler in new])

    def points(self) -> list[Point]:
        """Return the worst rank of each phase."""
        return self._stragglers.points()

    def _event(self, straggler: Straggler, step: Closed) -> Event:
        attributes: dict[str, AttributeValue] = {
            semconv.PHASE: straggler.phase,
            semconv.HOST_NAME: host_of(self.basis.state, step.attempt, straggler.rank),
            semconv.STRAGGLER_SCORE: straggler.score,
            semconv.STRAGGLER_DELAY: straggler.seconds,
        }
        return Event(semconv.EVENT_STRAGGLER, step.step.time, attributes, step.number, straggler.rank)


def _stays(spans: Iterable[Span]) -> tuple[dict[str, dict[int, Stay]], dict[int, int]]:
    """Return when each rank entered each phase first and left it last, counted from its first phase, and that time."""
    by_phase: dict[str, dict[int, Stay]] = {}
    began: dict[int, int] = {}
    for span in spans:
        phase, rank = span.attributes.get(semconv.PHASE), span.attributes.get(semconv.RANK)
        if semconv.ROLE in span.attributes or semconv.PHASE_PART in span.attributes:
            continue
        if isinstance(phase, str) and isinstance(rank, int):
            of_phase = by_phase.setdefault(phase, {})
            before = of_phase.get(rank, (span.start_unix_nano, span.end_unix_nano))
            of_phase[rank] = (min(before[0], span.start_unix_nano), max(before[1], span.end_unix_nano))
            began[rank] = min(began.get(rank, span.start_unix_nano), span.start_unix_nano)
    since = {
        phase: {rank: (entered - began[rank], left - began[rank]) for rank, (entered, left) in stays.items()}
        for phase, stays in by_phase.items()
    }
    return since, began


def _seconds(of_step: Mapping[str, Mapping[int, Stay]]) -> float:
    """Return how many seconds a step took the ranks, from the first phase of each to the end of its last."""
    ends: dict[int, int] = {}
    for stays in of_step.values():
        for rank, (_, left) in stays.items():
            ends[rank] = max(ends.get(rank, 0), left)
    return median(ends.values()) / 1e9 if ends else 0.0


def _least(takes: float, step: float) -> float:
    """Return by how many seconds a rank has to fall behind to matter."""
    return max(_LEAST_SCORE * takes, _LEAST_SHARE * step, _LEAST_SECONDS)
