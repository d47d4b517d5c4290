"""Phases of processes, as they are read from the archive of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.archive.now import PhaseTime
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_NS = 1_000_000_000
Points = list[tuple[float, float | None]]
"""Steps with values of a metric; `None` is a value that is not finite."""


class Phase(NamedTuple):
    """A phase of a process in a step; times in nanoseconds.

    Phases outside of steps are numbered from -1 backwards, each with those inside it.
    """

    step: int
    role: str
    rank: int
    name: str
    part: str
    start: int
    duration: int
    depth: int
    error: str
    attributes: dict[str, object]

    @property
    def category(self) -> str:
        """Its category."""
        return category_of(self.name)

    @property
    def end(self) -> int:
        """When it ended."""
        return self.start + self.duration


def exclusive(phases: Sequence[Phase]) -> list[PhaseTime]:
    """Return the time of each phase without the phases inside it, the longest first."""
    spent: dict[str, int] = {}
    stack: list[Phase] = []
    for phase in phases:
        while stack and stack[-1].depth >= phase.depth:
            stack.pop()
        spent[phase.name] = spent.get(phase.name, 0) + phase.duration
        if stack:
            outer = stack[-1].name
            spent[outer] = max(0, spent[outer] - phase.duration)
        stack.append(phase)
    found = sorted(spent.items(), key=lambda one: -one[1])
    return [PhaseTime(name, category_of(name), count / _NS) for name, count in found]
