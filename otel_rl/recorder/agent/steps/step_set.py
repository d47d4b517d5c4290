"""The steps that have closed, as ranges: most are consecutive."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

_MOST_RANGES = 1024
"""Ranges that are kept, since every checkpoint has them: a run that records each tenth step has a range for each."""


class StepSet(msgspec.Struct):
    """A set of step numbers, in ascending ranges of a first and a last step.

    When there are too many ranges, the gap between the two lowest ones is closed: the steps in it count as members.
    """

    ranges: list[tuple[int, int]] = []

    def __contains__(self, step: int) -> bool:
        index = bisect_right(self.ranges, step, key=_first) - 1
        return index >= 0 and step <= self.ranges[index][1]

    def add(self, step: int) -> None:
        """Add a step."""
        if step in self:
            return
        index = bisect_right(self.ranges, step, key=_first)
        first = last = step
        if index < len(self.ranges) and self.ranges[index][0] == step + 1:
            last = self.ranges.pop(index)[1]
        if index and self.ranges[index - 1][1] == step - 1:
            index -= 1
            first = self.ranges.pop(index)[0]
        self.ranges.insert(index, (first, last))
        if len(self.ranges) > _MOST_RANGES:
            self.ranges[:2] = [(self.ranges[0][0], self.ranges[1][1])]


def _first(bounds: tuple[int, int]) -> int:
    return bounds[0]
