"""What a step would have saved if some of its work had been as usual: it is replayed with that work's usual times."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight.why.path import Replay
from otel_rl.insight.why.paths import work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.why.causes import Label
    from otel_rl.insight.why.paths import Found
    from otel_rl.insight.why.window import Work

OF_TRAJECTORIES = ("trajectory", "model", "tool", "environment", "verifier", "request")
"""Kinds of work of trajectories."""


class _Usual(NamedTuple):
    """A work in usual steps: the longest and the mean of all of it, and its seconds in a step, on the path and in all."""

    longest: int
    mean: int
    on_path: float
    total: float


def _usual(usual: Sequence[Found], explained: Sequence[Found], works: Sequence[Work]) -> dict[Work, _Usual]:
    took: dict[Work, list[int]] = {work: [] for work in works}
    for one in usual:
        for work, those in _times(Replay(one.causes), one, explained).items():
            if work in took:
                took[work] += those
    steps = max(1, len(usual))
    return {
        work: _Usual(
            longest=max(those, default=0),
            mean=round(fmean(those)) if those else 0,
            on_path=sum(one.seconds.get(work, 0.0) for one in usual) / steps,
            total=sum(those) / 1e9 / steps,
        )
        for work, those in took.items()
    }


def _times(replay: Replay, of: Found, without: Sequence[Found] = ()) -> dict[Work, list[int]]:
    """Return the nanoseconds of all work that a step waited for, or might have, but for that of other steps."""
    others = [(one.window.since, one.window.ended) for one in without]
    found: dict[Work, list[int]] = defaultdict(list)
    for event, _, label, took in replay.works:
        at = of.causes.times[event]
        if took and not any(began < at <= ended for began, ended in others):
            found[work_of(label)].append(took)
    return found


def saves_of(found: Sequence[Found], usual: Sequence[Found], works: Sequence[Work]) -> dict[Work, float]:
    """Return the mean seconds that steps would save if some work took its usual time, one at a time."""
    if not works:
        return {}
    times = _usual(usual, found, works)
    saved: dict[Work, list[float | None]] = defaultdict(list)
    for one in found:
        replay = Replay(one.causes)
        totals = {work: sum(those) / 1e9 for work, those in _times(replay, one).items()}
        for work in works:
            saved[work].append(_saved(replay, one, work, times[work], totals.get(work, 0.0)))
    known = {work: [one for one in those if one is not None] for work, those in saved.items()}
    return {work: fmean(those) for work, those in known.items() if len(those) == len(found)}


def _saved(replay: Replay, found: Found, work: Work, usual: _Usual, total: float) -> float | None:
    """Return the seconds that a step would save if some work took its usual time; `None` if that cannot be said.

    What takes longer than all that is usual takes the usual mean instead. If nothing does, there is more of it: all of
    it takes a smaller time, in the ratio of the usual time to that of this step. If several trajectories of a flow were
    faster, the step would have taken others instead.
    """
    is_longer = any(hop.ended - hop.began > usual.longest for hop in found.hops if work_of(hop.label) == work)
    here = found.seconds.get(work, 0.0)
    ratio = min(1.0, usual.on_path / here if usual.on_path and here else usual.total / total if total else 1.0)

    def usually(label: Label, took: int) -> int:
        if work_of(label) != work:
            return took
        if is_longer:
            return usual.mean if took > usual.longest else took
        return round(took * ratio)

    if found.causes.is_flow and work.kind in OF_TRAJECTORIES:
        changed = sum(usually(label, took) != took for _, _, label, took in replay.works)
        if changed > 1:
            return None
    return replay.unchanged - replay.seconds(usually)
