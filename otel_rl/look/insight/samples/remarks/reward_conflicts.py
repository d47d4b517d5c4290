"""Parts of the reward that part: one rises while another falls, or completions with more of one get less of the other.

The last third of the steps is compared with the first one by the means of steps, and by the correlation within steps,
which neither the progress of the run nor the difference between steps makes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.samples.remarks.remark import Remark, place_of, to_read
from otel_rl.look.insight.series import Series, long_run_variance, t_quantile
from otel_rl.look.insight.troubles import REWARD_PARTS
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.look.insight.samples.sample import TextSample
    from otel_rl.look.insight.series import Floats, Integers

FALSE_ALARMS = 0.02
"""Highest measured fraction of runs that are said to have such a change without one."""
_LEAST_OF_STEP, _LEAST_STEPS = 6, 10
"""Completions of a step that have both parts, and steps of a third."""
_OF_ONE, _OF_TWO = 1e-4, 1e-2
"""Two-sided probability that noise looks like a change: of a correlation, and of each of two means that part."""
_MOST_PARTS = 8
_LEAST_GAIN = 0.25
"""The smallest change of a mean, in standard deviations of the completions of a step."""
_LEAST_CORRELATION = 0.15
"""The smallest correlation before, and below 0 after."""
_LARGEST = 1e100
"""Sums of squares of larger numbers would not be finite."""
_REWARDS = ("reward", "score")
"""Names of columns that are parts of the reward; those of trajectories all are."""
_ADVICE = "If the part that gains is not the aim, lower its weight, or cap it."


class _Conflict(NamedTuple):
    """Two parts that part: how clearly, since when, in words, and the part that gains before the one that loses."""

    size: float
    since: int
    sentence: str
    names: tuple[str, str]


class _Change(NamedTuple):
    """The means of the first and of the last third of the steps."""

    before: float
    after: float

    @property
    def size(self) -> float:
        return self.after - self.before


class _PartPair(NamedTuple):
    """Two parts by step: their means, their spread within steps, and their correlation within steps."""

    means: tuple[Series, Series]
    spreads: tuple[float, float]
    correlation: Series


def reward_conflicts(samples: Iterable[TextSample]) -> list[Remark]:
    """Return the two parts of the reward that part the most."""
    of_step: dict[int, list[TextSample]] = defaultdict(list)
    for sample in samples:
        of_step[sample.step].append(sample)
    pairs = ((names, _two(of_step, names)) for names in combinations(_parts(of_step), 2))
    conflicts = [conflict for names, two in pairs if two and (conflict := _moved(names, two) or _turned(names, two))]
    if not conflicts:
        return []
    parted, last = max(conflicts), max(of_step)
    return [
        Remark(
            kind="learning",
            severity="warning",
            sentence=parted.sentence,
            advice=f"{to_read(map(place_of, _extreme(of_step[last], parted.names)))} {_ADVICE}",
            steps=(parted.since, last),
            subject=REWARD_PARTS,
        )
    ]


def _parts(of_step: Mapping[int, Sequence[TextSample]]) -> list[str]:
    names = {
        name: None
        for samples in of_step.values()
        for sample in samples
        for name in sample.components
        if sample.trace_id or any(part in name.lower() for part in _REWARDS)
    }
    return [*names][:_MOST_PARTS]


def _two(of_step: Mapping[int, Sequence[TextSample]], names: tuple[str, str]) -> _PartPair | None:
    steps, means, spreads, correlations = [], [], [], []
    for step in sorted(of_step):
        rows = [
            [sample.components[name] for name in names]
            for sample in of_step[step]
            if sample.components.keys() >= {*names}
        ]
        values = np.asarray(rows, float).reshape(-1, 2)
        values = values[(np.abs(values) < _LARGEST).all(axis=1)]
        if len(values) < _LEAST_OF_STEP:
            continue
        mean, spread = values.mean(axis=0), values.std(axis=0)
        steps.append(step)
        means.append(mean)
        spreads.append(spread)
        correlations.append(float(((values - mean) / spread).prod(axis=1).mean()) if spread.all() else math.nan)
    if not steps:
        return None
    numbers, (first, second) = np.asarray(steps), np.transpose(means)
    spread_of_first, spread_of_second = np.mean(spreads, axis=0).tolist()
    return _PartPair(
        (Series(numbers, first), Series(numbers, second)),
        (spread_of_first, spread_of_second),
        Series(numbers, np.asarray(correlations)),
    )


def _moved(names: tuple[str, str], two: _PartPair) -> _Conflict | None:
    """Return that one mean rose and the other fell."""
    first, second = (_change(means, _OF_TWO) for means in two.means)
    gains = [
        change.size / spread if change and spread else 0.0
        for change, spread in zip((first, second), two.spreads, strict=True)
    ]
    if first is None or second is None or gains[0] * gains[1] >= 0 or min(map(abs, gains)) < _LEAST_GAIN:
        return None
    (up, rise), (down, fall) = sorted(zip(names, (first, second), strict=True), key=lambda entry: -entry[1].size)
    apart = [means.values / spread for means, spread in zip(two.means, two.spreads, strict=True)]
    since = _since(two.correlation.steps, (apart[0] - apart[1]) * np.sign(gains[0]))
    text = f"{up} rises while {down} falls since step {wording.integer(since)}: {_text(rise)}, and {_text(fall)}."
    return _Conflict(min(map(abs, gains)), since, text, (up, down))


def _turned(names: tuple[str, str], two: _PartPair) -> _Conflict | None:
    """Return that the correlation became negative."""
    known = two.correlation.finite
    change = _change(known, _OF_ONE)
    if change is None or change.before < _LEAST_CORRELATION or change.after > -_LEAST_CORRELATION:
        return None
    since = _since(known.steps, -known.values)
    text = (
        f"Completions with more {names[0]} get less {names[1]} since step {wording.integer(since)}: their correlation "
        f"within steps is {wording.number(change.after)}, {wording.number(change.before)} at first."
    )
    return _Conflict(-change.size, since, text, names)


def _change(series: Series, chance: float) -> _Change | None:
    """Return how the last third of the values differs from the first one, if that is more than their noise explains.

    A third can rise or fall in itself; its noise is what a line leaves.
    """
    third = len(series.values) // 3
    if third < _LEAST_STEPS:
        return None
    early, late = series.values[:third], series.values[-third:]
    times = np.arange(third)
    away = [values - np.polyval(np.polyfit(times, values, 1), times) for values in (early, late)]
    variance, freedom = long_run_variance(np.concatenate(away))
    change = _Change(float(early.mean()), float(late.mean()))
    return change if abs(change.size) > t_quantile(chance, freedom) * math.sqrt(2 * variance / third) else None


def _since(steps: Integers, values: Floats) -> int:
    """Return the step from which on values are the most above their mean, by their cumulative sum."""
    sums = np.cumsum((values - values.mean())[::-1])[::-1]
    return int(steps[np.argmax(sums)])


def _text(change: _Change) -> str:
    return f"{wording.number(change.before)} → {wording.number(change.after)}"


def _extreme(samples: Iterable[TextSample], names: tuple[str, str]) -> list[TextSample]:
    """Return the samples with the most of one part, and the least of the other."""
    has = [sample for sample in samples if sample.components.keys() >= {*names}]
    return sorted(has, key=lambda sample: sample.components[names[1]] - sample.components[names[0]])
