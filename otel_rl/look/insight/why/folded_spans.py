"""The spans of a window, in which those inside of a trajectory are folded into it if they come one after the other.

So a step of a hundred thousand spans has a graph of a few thousand events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.why.step_spans import NO_PARENT, SpanProcess

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.look.insight.span_work import SpanWork
    from otel_rl.look.insight.why.step_spans import Integers, SpanColumns, StepWindow, TakenTrajectories

_MOST_LEVELS = 32
"""Levels of spans inside of spans; a damaged file may have a circle of parents."""
_MOST_OUTSIDE_NS = 100_000_000
"""How far a span may be outside of its parent, which has another clock or ended a bit earlier; the rest is cut off."""


class WorkSpan(NamedTuple):
    """A span: who did what, from when to when, in nanoseconds; the parent is its place among the doings."""

    work: SpanWork
    who: SpanProcess
    began: int
    ended: int
    parent: int
    step: int


class Segment(NamedTuple):
    """A stretch of a trajectory in which one span, and none inside of it, was open."""

    work: SpanWork
    who: SpanProcess
    began: int
    ended: int


class InnerSpans(NamedTuple):
    """The spans inside of trajectories, and these themselves, by trajectory and begin."""

    owner: Integers  # the place of the trajectory among the doings
    work: Integers  # places in `works`
    who: Integers  # places in `whos`
    began: Integers  # when it began
    ended: Integers  # when it ended
    took: Integers  # its time without the spans inside of it
    works: list[SpanWork]
    whos: list[SpanProcess]

    def segments(self, owner: int) -> list[Segment]:
        """Return the stretches of a trajectory, in their order; none if it is not folded."""
        first, last = np.searchsorted(self.owner, [owner, owner + 1])
        segments: list[Segment] = []
        open_: list[Segment] = []
        columns = (self.work, self.who, self.began, self.ended)
        at = 0
        for what, who, began, ended in zip(*(column[first:last].tolist() for column in columns), strict=True):
            while open_ and open_[-1].ended <= began:
                segments.append(open_[-1]._replace(began=at))
                at = open_.pop().ended
            if open_:
                segments.append(open_[-1]._replace(began=at, ended=began))
            open_.append(Segment(self.works[what], self.whos[who], began, ended))
            at = began
        while open_:
            segments.append(open_[-1]._replace(began=at))
            at = open_.pop().ended
        return [segment for segment in segments if segment.ended > segment.began]


class FoldedWindow(NamedTuple):
    """A window with the doings that the graph has, and what is inside of trajectories."""

    window: StepWindow
    doings: list[WorkSpan]
    taken: list[TakenTrajectories]
    inner: InnerSpans


def fold(window: StepWindow) -> FoldedWindow:
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
        WorkSpan(window.works[what], window.whos[who], *rest)
        for what, who, *rest in zip(*(column[outer].tolist() for column in columns), strict=True)
    ]
    taken = [
        taken_at_once._replace(trajectories=tuple(place[list(taken_at_once.trajectories)].tolist()))
        for taken_at_once in window.taken
    ]
    return FoldedWindow(window, doings, taken, _inner(window, spans, np.flatnonzero(is_inner), place[owner]))


def _inner(window: StepWindow, spans: SpanColumns, inner: Integers, owner: Integers) -> InnerSpans:
    durations = spans.ended - spans.began
    is_child = np.zeros(len(durations), bool)
    is_child[inner] = spans.parent[inner] >= 0
    inside = np.bincount(spans.parent[is_child], durations[is_child], len(durations)).astype(np.int64)
    order = inner[np.lexsort((-spans.ended[inner], spans.began[inner], owner[inner]))]
    return InnerSpans(
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


def _side_by_side(spans: SpanColumns, owner: Integers) -> NDArray[np.bool_]:
    """Return for each span whether it is a trajectory in which spans overlap, or are outside of their parents."""
    overlaps = np.zeros(len(owner), bool)
    children = np.flatnonzero((owner >= 0) & (spans.parent >= 0))
    order = children[np.lexsort((spans.began[children], spans.parent[children]))]
    same = spans.parent[order[1:]] == spans.parent[order[:-1]]
    overlap = same & (spans.began[order[1:]] < spans.ended[order[:-1]])
    overlaps[owner[order[1:]][overlap]] = True
    parent = spans.parent[children]
    outside = (spans.began[children] < spans.began[parent]) | (spans.ended[children] > spans.ended[parent])
    overlaps[owner[children][outside]] = True
    return overlaps


def _inside_of_parents(spans: SpanColumns) -> SpanColumns:
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
