"""Puts spans into lanes: in a lane, none begins before the one before it has ended. Inner spans are lanes below."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_LEVELS = 8
"""Levels of nested spans of a process that are kept."""
MOST_SLOTS = 32
"""Trajectories or requests of a process at the same time that are kept; a page cannot show more of them."""


class Lane(NamedTuple):
    """Spans that follow each other: their numbers in the order of time."""

    slot: int  # which of the trajectories at the same time; 0 for phases
    level: int  # how many spans they are inside of
    spans: NDArray[np.int64]  # the numbers of the spans


def lanes_of(start: Integers, end: Integers, numbers: Integers) -> tuple[list[Lane], int]:
    """Return the lanes of the phases of a process, and how many spans were left out.

    Args:
        start: When they started, of all spans of the run.
        end: When they ended.
        numbers: The spans of the process, in the order of their starts; longer ones first.
    """
    levels = _nested(start[numbers], end[numbers])
    if levels is None:  # phases of threads or of tasks
        lanes, hidden = _by_level(numbers, _packed(start[numbers], end[numbers], MOST_SLOTS), MOST_SLOTS)
        return [lane._replace(slot=lane.level, level=0) for lane in lanes], hidden
    return _by_level(numbers, levels, MOST_LEVELS)


def lanes_by_level(start: Integers, end: Integers, numbers: Integers, levels: Integers) -> tuple[list[Lane], int]:
    """Return the lanes of the phases of a process whose outer phases may be missing, and how many were left out.

    Args:
        start: When they started, of all spans of the run.
        end: When they ended.
        numbers: The spans of the process, as in `lanes_of`.
        levels: The least level of each of them.
    """
    lanes: list[Lane] = []
    rest = np.empty(0, np.int64)
    for level in range(MOST_LEVELS):
        rest = np.sort(np.concatenate([rest, np.flatnonzero(levels == level)]))
        own = numbers[rest]
        before = np.concatenate([[-1], np.maximum.accumulate(end[own])[:-1]]) if len(own) else own
        outer = start[own] >= before
        if outer.any():
            lanes.append(Lane(0, level, own[outer]))
        rest = rest[~outer]
    return lanes, len(numbers) - sum(len(lane.spans) for lane in lanes)


def slots_of(start: Integers, end: Integers, numbers: Integers, group: NDArray[Any]) -> tuple[list[Lane], int]:
    """Return the lanes of spans that run at the same time in groups, such as trajectories with their parts.

    Each group is in one slot, its parts in lanes below. The spans of groups for which there is no slot are left out.
    """
    if not len(numbers):
        return [], 0
    _, of_group = np.unique(group, return_inverse=True)
    first = np.full(of_group.max() + 1, np.iinfo(np.int64).max)
    last = np.zeros_like(first)
    np.minimum.at(first, of_group, start[numbers])
    np.maximum.at(last, of_group, end[numbers])
    order = np.argsort(first, kind="stable")
    slots = np.empty_like(first)
    slots[order] = _packed(first[order], last[order], MOST_SLOTS)
    slot_of_span = slots[of_group]
    lanes: list[Lane] = []
    hidden = int((slot_of_span < 0).sum())
    for slot in range(int(slots.max()) + 1):
        placed, left_out = lanes_of(start, end, numbers[slot_of_span == slot])
        lanes += (lane._replace(slot=slot) for lane in placed)
        hidden += left_out
    return lanes, hidden


def _by_level(numbers: Integers, levels: Integers, most: int) -> tuple[list[Lane], int]:
    kept = range(min(int(levels.max(initial=-1)) + 1, most))
    lanes = [Lane(0, level, numbers[levels == level]) for level in kept]
    return lanes, len(numbers) - sum(len(lane.spans) for lane in lanes)


def _nested(start: Integers, end: Integers) -> Integers | None:
    """Return how many spans each one is inside of, or nothing if two overlap in part."""
    levels = np.zeros(len(start), np.int64)
    rest = np.arange(len(start))
    while len(rest):
        starts, ends = start[rest], end[rest]
        before = np.concatenate([[-1], np.maximum.accumulate(ends)[:-1]])  # when all earlier ones have ended
        inner = starts < before
        if (ends[inner] > before[inner]).any():
            return None
        rest = rest[inner]
        levels[rest] += 1
    return levels


def _packed(start: Integers, end: Integers, most: int) -> Integers:
    """Return the first lane that is free for each span; -1 if `most` lanes are in use."""
    free = list(range(most))
    busy: list[tuple[int, int]] = []

    def lanes() -> Iterator[int]:
        for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
            while busy and busy[0][0] <= begins:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                yield -1
                continue
            lane = heapq.heappop(free)
            heapq.heappush(busy, (ends, lane))
            yield lane

    return np.fromiter(lanes(), np.int64, len(start))
