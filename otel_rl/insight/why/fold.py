"""The spans of a window, in which those inside of a trajectory are folded into it if they come one after the other.

So a step of a hundred thousand spans has a graph of a few thousand events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.insight.why.window import NO_PARENT, Who, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.insight.why.window import Integers, Spans, Taken, Window

_MOST_LEVELS = 32
"""Levels of spans inside of spans; a damaged file may have a circle of parents."""
_MOST_OUTSIDE_NS = 100_000_000
"""How far a span may be outside of its parent, which has another clock or ended a bit earlier; the rest is cut off."""


class Doing(NamedTuple):
    """A span: who did what, from when to when, in nanoseconds; the parent is its place among the doings."""

    work: Work
    who: Who
    began: int
    ended: int
    parent: int
    step: int


class Segment(NamedTuple):
    """A stretch of a trajectory in which one span, and none inside of it, was open."""

    work: Work
    who: Who
    began: int
    ended: int


class Inner(NamedTuple):
    """The spans inside of trajectories, and these themselves, by trajectory and begin.

    Attributes:
        owner: The place of the trajectory among the doings.
        work: Places in `works`.
        who: Places in `whos`.
        began: When it began.
        ended: When it ended.
        took: Its time without the spans inside of it.
    """

    owner: Integers
    work: Integers
    who: Integers
    began: Integers
    ended: Integers
    took: Integers
    works: list[Work]
    whos: list[Who]

    def segments(self, owner: int) -> list[Segment]:
        """Return the stretches of a trajectory, in their order; none if it is not folded."""
        first, last = np.searchsorted(self.owner, [owner, owner + 1])
        found: list[Segment] = []
        open_: list[Segment] = []
        columns = (self.work, self.who, self.began, self.ended)
        at = 0
        for what, who, began, ended in zip(*(column[first:last].tolist() for column in columns), strict=True):
            while open_ and open_[-1].ended <= began:
                found.append(open_[-1]._replace(began=at))
                at = open_.pop().ended
            if open_:
                found.append(open_[-1]._replace(began=at, ended=began))
            open_.append(Segment(self.works[what], self.whos[who], began, ended))
            at = began
        while open_:
            found.append(open_[-1]._replace(began=at))
            at = open_.pop().ended
        return [one for one in found if one.ended > one.began]


class Folded(NamedTuple):
    """A window with the doings that the graph has, and what is inside of trajectories."""

    window: Window
    doings: list[Doing]
    taken: list[Taken]
    inner: Inner


def fold(window: Window) -> Folded:
    """Return the spans of a window, those of trajectories folded."""
    spans = _inside_of_parents(window.spans)
    are_trajectories = window.are_trajectories
    owner = _owners(spans.parent, are_trajectories)
    unfolded = _side_by_side(spans, owner)
    unfolded[owner[(owner >= 0) & are_trajectories & (spans.parent >= 0)]] = True  # it is inside of another one
    is_inner = (owner >= 0) & ~unfolded[owner]
    outer = np.flatnonzero(~is_inner | are_trajectories)
    place = np.full(len(owner) + 1, NO_PARENT, np.int64)
    place[outer] = np.arange(len(outer))
    parents = np.where(spans.parent >= 0, place[spans.parent], spans.parent)
    columns = (spans.what, spans.who, spans.began, spans.ended, parents, spans.step)
    doings = [
        Doing(window.works[what], window.whos[who], *rest)
        for what, who, *rest in zip(*(column[outer].tolist() for column in columns), strict=True)
    ]
    taken = [one._replace(trajectories=tuple(place[list(one.trajectories)].tolist())) for one in window.taken]
    return Folded(window, doings, taken, _inner(window, spans, np.flatnonzero(is_inner), place[owner]))


def _inner(window: Window, spans: Spans, those: Integers, owner: Integers) -> Inner:
    durations = spans.ended - spans.began
    is_child = np.zeros(len(durations), bool)
    is_child[those] = spans.parent[those] >= 0
    inside = np.bincount(spans.parent[is_child], durations[is_child], len(durations)).astype(np.int64)
    order = those[np.lexsort((-spans.ended[those], spans.began[those], owner[those]))]
    return Inner(
        owner[order],
        spans.what[order],
        spans.who[order],
        spans.began[order],
        spans.ended[order],
        (durations - inside)[order],
        window.works,
        window.whos,
    )


def _owners(parents: Integers, are_trajectories: NDArray[np.bool_]) -> Integers:
    """Return the trajectory that each span is inside of, or is; -1 for none."""
    owner = np.where(are_trajectories, np.arange(len(parents)), NO_PARENT)
    above = parents.copy()
    for _ in range(_MOST_LEVELS):
        left = np.flatnonzero((owner < 0) & (above >= 0))
        owner[left] = owner[above[left]]
        above[left] = parents[above[left]]
    return owner


def _side_by_side(spans: Spans, owner: Integers) -> NDArray[np.bool_]:
    """Return for each span whether it is a trajectory in which spans overlap, or are outside of their parents."""
    found = np.zeros(len(owner), bool)
    those = np.flatnonzero((owner >= 0) & (spans.parent >= 0))
    order = those[np.lexsort((spans.began[those], spans.parent[those]))]
    same = spans.parent[order[1:]] == spans.parent[order[:-1]]
    overlap = same & (spans.began[order[1:]] < spans.ended[order[:-1]])
    found[owner[order[1:]][overlap]] = True
    parent = spans.parent[those]
    outside = (spans.began[those] < spans.began[parent]) | (spans.ended[those] > spans.ended[parent])
    found[owner[those][outside]] = True
    return found


def _inside_of_parents(spans: Spans) -> Spans:
    """Return spans that are cut off where they are a bit outside of their parents."""
    children = np.flatnonzero(spans.parent >= 0)
    parent = spans.parent[children]
    began, ended = spans.began.copy(), spans.ended.copy()
    least = np.maximum(spans.began[children], spans.began[parent])
    most = np.minimum(spans.ended[children], spans.ended[parent])
    near = (least - spans.began[children] <= _MOST_OUTSIDE_NS) & (spans.ended[children] - most <= _MOST_OUTSIDE_NS)
    near &= least <= most
    began[children[near]], ended[children[near]] = least[near], most[near]
    return spans._replace(began=began, ended=ended)
