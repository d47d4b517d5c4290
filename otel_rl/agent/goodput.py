"""Where the time of the workers went; it closes: over all categories it is wall time times workers."""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.agent.hardware.points import Point
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_rl.export import Span

PRODUCTIVE, WASTED, UNCLASSIFIED, UNACCOUNTED = "productive", "wasted", "unclassified", "unaccounted"
TRAINER = "trainer"
"""The fleet of the ordinary ranks."""

Worker = tuple[int, str]
"""Rank and role; the role is empty for an ordinary rank."""
Interval = tuple[int, int]
"""Beginning and end in nanoseconds."""


class Goodput:
    """Adds up the time of steps; lives in the agent alone.

    A moment in which several phases are open counts for the innermost one, the last to begin. What a worker does
    between two steps belongs to the later one. A phase that says `tokens=` and `wasted_tokens=` (aborted, stale or
    filtered ones) gives that share of its time to what is wasted.

    Args:
        canonical: Returns what a phase is called here that the trainer calls by a name.
    """

    def __init__(self, canonical: Callable[[str], str]) -> None:
        self._canonical = canonical
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)

    def take(self, steps: Mapping[Worker, Interval], spans: Iterable[Span]) -> dict[str, float]:
        """Take in a step; return the seconds of the trainer's ranks by category.

        Args:
            steps: When each worker ended the step before, or began this one if there was none, and ended this one.
            spans: The spans of all of them.
        """
        of_worker: dict[Worker, list[Span]] = defaultdict(list)
        for span in spans:
            if semconv.PHASE in span.attributes:
                worker = (int(str(span.attributes.get(semconv.RANK, 0))), str(span.attributes.get(semconv.ROLE, "")))
                of_worker[worker].append(span)
        found: dict[str, float] = defaultdict(float)
        for worker, wall in steps.items():
            fleet = worker[1] or TRAINER
            for category, seconds in self._split(wall, of_worker[worker]).items():
                self._seconds[fleet, category] += seconds
                if fleet == TRAINER:
                    found[category] += seconds
        return dict(found)

    def points(self) -> list[Point]:
        """Return the seconds so far, by fleet and category."""
        return [
            Point(semconv.METRIC_GOODPUT_TIME, seconds, ((semconv.GOODPUT_CATEGORY, category), (semconv.ROLE, fleet)))
            for (fleet, category), seconds in self._seconds.items()
        ]

    def _split(self, wall: Interval, spans: Sequence[Span]) -> dict[str, float]:
        """Return the seconds of a worker by category; they add up to its wall time."""
        found: dict[str, float] = defaultdict(float)
        for span, nanoseconds in _innermost(wall, spans):
            category = UNACCOUNTED if span is None else self._category(span)
            wasted = _wasted_share(span) if span is not None and category == PRODUCTIVE else 0.0
            found[category] += nanoseconds / 1e9 * (1 - wasted)
            if wasted:
                found[WASTED] += nanoseconds / 1e9 * wasted
        return found

    def _category(self, span: Span) -> str:
        name = str(span.attributes.get(semconv.PHASE_PART) or self._canonical(str(span.attributes[semconv.PHASE])))
        return categories().get(name, UNCLASSIFIED)


@cache
def categories() -> dict[str, str]:
    """Return the category of each phase that has one."""
    listed = msgspec.yaml.decode(registry.content("time_categories.yaml"), type=dict[str, list[str]])
    return {phase: category for category, phases in listed.items() for phase in phases}


def _innermost(wall: Interval, spans: Sequence[Span]) -> list[tuple[Span | None, int]]:
    """Return the stretches of a wall time, each with the span that was innermost; `None` where none was open."""
    inside = [(max(span.start_unix_nano, wall[0]), min(span.end_unix_nano, wall[1]), n) for n, span in enumerate(spans)]
    edges = sorted({*wall, *(edge for began, ended, _ in inside if began < ended for edge in (began, ended))})
    found: list[tuple[Span | None, int]] = []
    for began, ended in itertools.pairwise(edges):
        open_ = [n for a, b, n in inside if a <= began and ended <= b]
        last = max(open_, key=lambda n: (spans[n].start_unix_nano, -spans[n].end_unix_nano), default=None)
        found.append((None if last is None else spans[last], ended - began))
    return found


def _wasted_share(span: Span) -> float:
    tokens, wasted = span.attributes.get("tokens"), span.attributes.get("wasted_tokens")
    if not isinstance(tokens, (int, float)) or not isinstance(wasted, (int, float)) or tokens <= 0:
        return 0.0
    return min(1.0, max(0.0, wasted / tokens))
