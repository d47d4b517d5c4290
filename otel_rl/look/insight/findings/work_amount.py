"""Amounts of work that changed with a phase: turns, samples, retries, hits of a cache, workers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.contradictions.columns import Shape
from otel_rl.look.insight.findings.step_change import EXPLAINS
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.findings.step_change import Change, GrownPhase

_NO_AMOUNT = frozenset(
    (
        *(
            "time",
            "timing",
            "times",
            "seconds",
            "duration",
            "perf",
            "throughput",
            "second",
            "reward",
            "rewards",
            "score",
        ),
        *("loss", "kl", "entropy", "advantage", "advantages", "grad", "lr", "std", "clip", "clipped", "truncated"),
        *("val", "eval", "test", "memory", "step", "epoch", "cumulative", "seen", "total", "frac", "fraction"),
    )
)
_MORE = Shape(
    some=(
        frozenset(
            (
                *("turns", "turn", "calls", "tokens", "length", "len", "seqlen", "sequences", "samples", "prompts"),
                *("trajectories", "requests", "retries", "retry", "errors", "failures", "timeouts", "restarts"),
                *("updates", "images", "frames", "batch", "preemptions", "misses", "dropped", "documents", "waiting"),
                *("queue", "queued", "pending", "backlog", "preempted", "evictions", "evicted", "retried", "miss"),
            )
        ),
    ),
    none=_NO_AMOUNT,
)
"""Amounts with which time grows."""
_LESS = Shape(
    some=(
        frozenset(
            (
                *("hit", "hits", "concurrency", "running", "workers", "engines", "replicas", "servers", "actors"),
                *("acceptance", "accepted", "accept", "reuse", "reused", "parallelism", "clock", "mhz"),
            )
        ),
    ),
    none=_NO_AMOUNT,
)
"""Amounts with which time falls."""
_OF_WEIGHTS = ("sync", "checkpoint")
"""Categories of phases that move weights alone."""
_MOST_NAMES, _NEAR = 32, 20
_NOTHING = 0.05
"""Part of an amount below which the other one, before or after, is nothing."""


class WorkAmount(NamedTuple):
    """An amount that changed with a phase."""

    name: str
    was: float
    now: float

    @property
    def text(self) -> str:
        """The change in words."""
        return f"{self.name} ({wording.number(self.was)} → {wording.number(self.now)})"


def amount_with(change: Change, grown: GrownPhase, phases: Iterable[str]) -> WorkAmount | None:
    """Return the amount that changed most like a phase, at the same steps; `None` without one.

    No amount of work explains that a weight sync or a checkpoint is among the phases that changed.
    """
    if any(category_of(phase) in _OF_WEIGHTS for phase in phases):
        return None
    recorded = change.recorded
    names = [
        name
        for name, is_measured in recorded.names.items()
        if not is_measured and (_MORE.fits(name) or _LESS.fits(name))
    ][:_MOST_NAMES]
    recorded.load(names)
    amounts = [(_distance(change, grown, name), name) for name in names]
    known = [(distance, name) for distance, name in amounts if distance is not None]
    if not known:
        return None
    name = min(known)[1]
    was, now = (recorded.series(name).between(*steps).median for steps in (change.before, change.after))
    return WorkAmount(name, was, now)


def _distance(change: Change, grown: GrownPhase, name: str) -> float | None:
    """Return how far the change of an amount is from that of a phase; `None` if it does not explain it."""
    series = change.recorded.series(name).finite
    sign = -1.0 if _LESS.fits(name) else 1.0
    ranges = [(change.before, change.after)]
    if change.is_sudden:
        since = change.after[0]
        ranges.append(((max(change.before[0], since - _NEAR), since - 1), (since, min(change.after[1], since + _NEAR))))
    growths = []
    for before, after in ranges:
        old, new = series.between(*before).median, series.between(*after).median
        nothing, much = (old, new) if sign > 0 else (new, old)
        if grown.growth > 0 and abs(nothing) < _NOTHING * much:
            growths.append(grown.growth)
        elif old > 0 and new > 0:
            growths.append(sign * math.log(new / old))
        else:
            return None
    if not grown.growth or any(growth / grown.growth < EXPLAINS for growth in growths):
        return None
    return abs(growths[0] / grown.growth - 1)
