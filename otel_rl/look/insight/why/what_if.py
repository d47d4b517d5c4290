"""The time that a step would save if some of its work was as usual, by a replay with the usual times of that work."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.why.critical_path import StepReplay
from otel_rl.look.insight.why.recorded_causes import end
from otel_rl.look.insight.why.step_paths import work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from otel_rl.look.insight.span_work import SpanWork
    from otel_rl.look.insight.why.step_paths import StepPath
    from otel_rl.look.insight.why.step_spans import Integers

OF_TRAJECTORIES = ("trajectory", "model", "tool", "environment", "verifier", "request")
"""Kinds of work of trajectories."""


class UsualWork(NamedTuple):
    """A work in usual steps: the longest and the mean of it, and its seconds in a step, on the path and in all."""

    longest: int
    mean: int
    on_path: float
    total: float


class _Times(NamedTuple):
    """The work that a step waited for, or might have: when it ended, its nanoseconds, and up to which event it was."""

    ended: Integers
    took: Integers
    events: Integers


class Times:
    """The times of all work of a step."""

    def __init__(self, path: StepPath) -> None:
        self.replay = StepReplay(path.causes)
        causes, inner = path.causes, path.inner
        self._inner = inner
        self._codes = {work: n for n, work in enumerate(inner.works)}
        folded = {end(n) for n in np.unique(inner.owner).tolist()}
        self._ends = np.array([end(n) for n in range(len(causes.doings))], np.int64)
        events = [n for n, event in enumerate(self.replay.events) if event not in folded]
        self._works: dict[SpanWork, list[int]] = {}
        for n in events:
            self._works.setdefault(work_of(causes.labels[self.replay.events[n]]), []).append(n)
        self._ended = np.array([causes.times[event] for event in self.replay.events], np.int64)
        self._took = np.array(self.replay.took, np.int64)
        self._of_event = np.full(len(causes.times), -1, np.int64)
        self._of_event[self.replay.events] = np.arange(len(self.replay.events))

    def of(self, work: SpanWork) -> _Times:
        """Return the times of a work."""
        outer = np.array(self._works.get(work, []), np.int64)
        inner = self._inner
        mine = np.flatnonzero(inner.work == self._codes.get(work, -1))
        events = self._of_event[self._ends[inner.owner[mine]]]
        mine, events = mine[events >= 0], events[events >= 0]
        times = _Times(
            np.concatenate([self._ended[outer], inner.ended[mine]]),
            np.concatenate([self._took[outer], inner.took[mine]]),
            np.concatenate([outer, events]),
        )
        return _Times(*(column[times.took > 0] for column in times))

    def seconds(self, times: _Times, now: Integers) -> float:
        """Return the time of the step if some of its work took other nanoseconds."""
        less = np.bincount(times.events, times.took - now, len(self._took)).astype(np.int64)
        return self.replay.seconds((self._took - less).tolist())


Ranges = list[tuple[int, int]]


def saves_of(
    paths: Sequence[StepPath], usual: Sequence[StepPath], works: Sequence[SpanWork], slow: Ranges
) -> dict[SpanWork, float]:
    """Return the mean seconds that steps would save if some work took its usual time, one at a time.

    Args:
        paths: The paths of the steps.
        usual: Usual steps.
        works: The works.
        slow: The begins and ends of slow steps: what usual steps waited for in these is not usual.
    """
    if not works:
        return {}
    usually = _usual(usual, slow + [(path.window.since, path.window.ended) for path in paths], works)
    saved: dict[SpanWork, list[float]] = {work: [] for work in works}
    for path in paths:
        times = Times(path)
        for work in works:
            known = _saved(times, path, work, usually[work])
            if known is not None:
                saved[work].append(known)
    return {work: fmean(savings) for work, savings in saved.items() if len(savings) == len(paths)}


def _usual(usual: Sequence[StepPath], without: Ranges, works: Sequence[SpanWork]) -> dict[SpanWork, UsualWork]:
    """Return works as they are in usual steps."""
    took: dict[SpanWork, list[NDArray[np.int64]]] = {work: [] for work in works}
    for path in usual:
        times = Times(path)
        for work in works:
            mine = times.of(work)
            took[work].append(mine.took[~_is_in(mine.ended, without)])
    usual_of = {}
    for work, durations in took.items():
        all_of = np.concatenate(durations)
        on_path = fmean(path.seconds.get(work, 0.0) for path in usual)
        longest, mean = (int(all_of.max()), round(float(all_of.mean()))) if len(all_of) else (0, 0)
        usual_of[work] = UsualWork(longest, mean, on_path, float(all_of.sum()) / 1e9 / len(usual))
    return usual_of


def _is_in(times: Integers, ranges: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    is_inside = np.zeros(len(times), bool)
    for began, ended in ranges:
        is_inside |= (began < times) & (times <= ended)
    return is_inside


def _saved(times: Times, path: StepPath, work: SpanWork, usual: UsualWork) -> float | None:
    """Return the seconds that a step would save if some work took its usual time; `None` if that cannot be said.

    Work that takes longer than all that is usual takes the usual mean instead. If none does, there is more of it: all
    of it takes a smaller time, in the ratio of the usual time to that of this step. If several trajectories of a flow
    were faster, the step would have taken others instead.
    """
    mine = times.of(work)
    is_longer = any(hop.ended - hop.began > usual.longest for hop in path.hops if work_of(hop.label) == work)
    on_path, total = path.seconds.get(work, 0.0), float(mine.took.sum()) / 1e9
    ratio = min(1.0, usual.on_path / on_path if usual.on_path and on_path else usual.total / total if total else 1.0)
    if is_longer:
        now = np.where(mine.took > usual.longest, usual.mean, mine.took)
    else:
        now = np.round(mine.took * ratio).astype(np.int64)
    if path.causes.is_flow and work.kind in OF_TRAJECTORIES and np.count_nonzero(now != mine.took) > 1:
        return None
    return times.replay.unchanged - times.seconds(mine, now)
