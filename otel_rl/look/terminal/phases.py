"""Phases of processes, as they are read from the archive of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.archive.now import PhaseTime
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_NS = 1_000_000_000
Points = list[tuple[float, float | None]]
"""Steps with values of a metric; `None` is a value that is not finite."""


class PhaseSpan(NamedTuple):
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
    own: int = 0  # the time in which no phase that began later was open

    @property
    def category(self) -> str:
        """Its category."""
        return category_of(self.name)

    @property
    def end(self) -> int:
        """When it ended."""
        return self.start + self.duration


def own_seconds(phases: Iterable[PhaseSpan]) -> list[PhaseTime]:
    """Return the own time of each phase, the longest first."""
    spent: dict[str, int] = {}
    for phase in phases:
        spent[phase.name] = spent.get(phase.name, 0) + phase.own
    longest_first = sorted(spent.items(), key=lambda entry: -entry[1])
    return [PhaseTime(name, category_of(name), count / _NS) for name, count in longest_first]
