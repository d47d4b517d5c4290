"""Which rank is slow, and in which phase: the one that falls behind there, not those that wait for it.

A rank that is slow before a collective makes all others wait in it, so durations show the others. What tells
is by how much a rank becomes later than the others between entering and leaving a phase; who was early and
waits becomes no later by that. Times count from the rank's own first phase in the step, since the clocks of
several machines differ.
"""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.agent.hardware.points import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.export import Span

_WINDOW = 20
_LEAST_STEPS = 5
_THRESHOLD = 0.1
_OFTEN = 0.8
"""In which part of the steps a rank has to fall behind: one slow step makes no straggler."""

Stay = tuple[int, int]
"""When a rank entered and left a phase, in nanoseconds."""


class Straggler(NamedTuple):
    """A rank that falls behind in a phase.

    Attributes:
        phase: Where.
        rank: Who.
        score: By how much in a step, as a part of what the phase takes the ranks; the median over the window.
        seconds: The same in seconds.
    """

    phase: str
    rank: int
    score: float
    seconds: float


class Stragglers:
    """Keeps score of the last twenty steps; lives in the agent alone, a new agent begins anew."""

    def __init__(self) -> None:
        self._behind: dict[str, dict[int, deque[float]]] = defaultdict(
            lambda: defaultdict(lambda: deque(maxlen=_WINDOW))
        )
        self._takes: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOW))
        self._told: set[tuple[str, int]] = set()

    def take(self, spans: Iterable[Span]) -> list[Straggler]:
        """Take in the spans of a step; return the stragglers that were none before."""
        for phase, stays in _stays(spans).items():
            if len(stays) > 1:
                self._takes[phase].append(median(left - entered for entered, left in stays.values()) / 1e9)
                for rank, seconds in falls_behind(stays).items():
                    self._behind[phase][rank].append(seconds)
        found = [one for one in self.worst() if self._is_one(one)]
        fresh = [one for one in found if (one.phase, one.rank) not in self._told]
        self._told = {(one.phase, one.rank) for one in found}
        return fresh

    def worst(self) -> list[Straggler]:
        """Return for each phase the rank that falls behind most, the worst phase first."""
        found: list[Straggler] = []
        for phase, of_ranks in self._behind.items():
            takes = median(self._takes[phase])
            if takes > 0:
                seconds, rank = max((median(behind), rank) for rank, behind in of_ranks.items())
                found.append(Straggler(phase, rank, seconds / takes, seconds))
        return sorted(found, key=lambda one: one.seconds, reverse=True)

    def points(self) -> list[Point]:
        """Return score, seconds and rank of the worst one in each phase: as many series for any number of ranks."""
        found: list[Point] = []
        for one in self.worst():
            phase = ((semconv.PHASE, one.phase),)
            found.append(Point(semconv.METRIC_STRAGGLER_SCORE, one.score, phase))
            found.append(Point(semconv.METRIC_STRAGGLER_DELAY, one.seconds, phase))
            found.append(Point(semconv.METRIC_STRAGGLER_RANK, one.rank, phase))
        return found

    def _is_one(self, one: Straggler) -> bool:
        behind = self._behind[one.phase][one.rank]
        least = _THRESHOLD * median(self._takes[one.phase]) / 2
        often = sum(seconds > least for seconds in behind) >= _OFTEN * len(behind)
        return one.score > _THRESHOLD and len(behind) >= _LEAST_STEPS and often


def falls_behind(stays: Mapping[int, Stay]) -> dict[int, float]:
    """Return by how many seconds each rank became later than the median of the ranks while it was in a phase."""
    entering = median(entered for entered, _ in stays.values())
    leaving = median(left for _, left in stays.values())
    return {
        rank: (max(0.0, left - leaving) - max(0.0, entered - entering)) / 1e9 for rank, (entered, left) in stays.items()
    }


def _stays(spans: Iterable[Span]) -> dict[str, dict[int, Stay]]:
    """Return when each rank entered each phase first and left it last, counted from its first phase of the step."""
    found: dict[str, dict[int, Stay]] = {}
    began: dict[int, int] = {}
    for span in spans:
        phase, rank = span.attributes.get(semconv.PHASE), span.attributes.get(semconv.RANK)
        if semconv.ROLE in span.attributes or semconv.PHASE_PART in span.attributes:
            continue
        if isinstance(phase, str) and isinstance(rank, int):
            of_phase = found.setdefault(phase, {})
            before = of_phase.get(rank, (span.start_unix_nano, span.end_unix_nano))
            of_phase[rank] = (min(before[0], span.start_unix_nano), max(before[1], span.end_unix_nano))
            began[rank] = min(began.get(rank, span.start_unix_nano), span.start_unix_nano)
    return {
        phase: {rank: (entered - began[rank], left - began[rank]) for rank, (entered, left) in stays.items()}
        for phase, stays in found.items()
    }
