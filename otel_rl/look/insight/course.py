"""The course of a series: its start and end, whether these differ, where it fell, and since when it is flat."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.series import blocks, correlation, spread

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats, Series

LEAST_STEPS = 20
LEAST_STEPS_FLAT = 100
_PART = 0.05
"""Part of a run whose steps are its start and its end."""
_MOST_BLOCKS = 50
_SURE = 4.0
"""Standard errors by which the end has to differ from the start."""
_FLAT = 0.1
"""Part of the whole change within which a series is flat."""
_FLAT_PART = 0.2
"""Part of the run in which it has to be flat."""
_FALLEN = 0.5
"""Part of its rise that a series has to lose, to have fallen again."""
_CLEAR, _CLEAR_EARLY = 2.0, 3.0
"""Swings of the noise that a fall is as large as, and the same of fewer than 100 values."""
_LITTLE = 0.05
"""A change of a smaller part of the value is none that matters."""
_NEAR, _BEFORE = 0.2, 20
"""Part of a change that is left at its two ends, and values that are the level before a sudden one."""


class Course(NamedTuple):
    """The course of a series: its start and end, the noise of these two, and its block means with their length."""

    start: float
    end: float
    error: float
    means: list[float]
    length: int

    @property
    def has_changed(self) -> bool:
        """Whether the end differs from the start by more than noise."""
        return abs(self.end - self.start) > _SURE * self.error

    @property
    def rises(self) -> bool:
        """Whether the end is above the start by more than noise."""
        return self.has_changed and self.end > self.start

    @property
    def falls(self) -> bool:
        """Whether the end is below the start by more than noise, and by an amount that matters."""
        return self.has_changed and is_less(self.end, self.start)


class Move(NamedTuple):
    """A change from one level to another one, and the steps between which it happened; equal for a sudden one."""

    before: float
    after: float
    first: int
    last: int


def course_of(series: Series) -> Course:
    """Return the course of finite values, at least 20."""
    values = series.values
    window = max(5, round(_PART * len(values)))
    head, tail = values[:window], values[-window:]
    # A difference of two values has twice the variance of one; a slope of the series is not in it.
    noise = spread(np.diff(values)) / math.sqrt(2)
    phi = min(0.95, max(0.0, correlation(_detrended(values))))
    noise *= 1 / math.sqrt(max(0.05, 1 - phi))  # differences of neighbors show less of correlated noise
    error = noise * math.sqrt(2 / window * (1 + phi) / (1 - phi))
    means, length = blocks(values, _MOST_BLOCKS)
    return Course(float(np.median(head)), float(np.median(tail)), error, means.tolist(), length)


def is_less(value: float, other: float) -> bool:
    """Return whether a value is below another one by an amount that matters."""
    return other - value > _LITTLE * max(abs(value), abs(other))


def fall_of(series: Series, course: Course) -> Move | None:
    """Return the fall of a series from its highest level to its end; `None` if it fell little, or rose again."""
    top = max(range(len(course.means)), key=lambda n: course.means[n])
    best = course.means[top]
    least = max(_FALLEN * (best - course.start), _SURE * course.error)
    clear = _CLEAR if len(series.values) >= LEAST_STEPS_FLAT else _CLEAR_EARLY
    if best - course.end <= max(least, clear * _swing(course.means, top)) or not is_less(course.end, best):
        return None
    return move_of(series, best, course.end, top * course.length)


def rise_of(series: Series, course: Course) -> Move | None:
    """Return the rise of a series from its lowest level to its end; `None` if it rose little, or fell again."""
    turned = series._replace(values=-series.values)
    fall = fall_of(turned, course_of(turned))
    return None if fall is None or not course.rises else fall._replace(before=-fall.before, after=-fall.after)


def _swing(means: list[float], top: int) -> float:
    """Return the largest fall before the highest mean, or rise after it: as noise that wanders has them, too."""
    before, after = np.asarray(means[: top + 1]), np.asarray(means[top:])
    falls = np.maximum.accumulate(before) - before
    rises = after - np.minimum.accumulate(after)
    return float(max(falls.max(), rises.max()))


def move_of(series: Series, before: float, after: float, since: int = 0) -> Move:
    """Return where a series goes from one level to another one, looked for from a place on."""
    values = series.values[since:]
    # Of noise, the later one can be the first.
    first, last = sorted(_crossed(values, before, after, left) for left in (1 - _NEAR, _NEAR))
    steps, last_place = series.steps[since:], len(values) - 1
    if last - first > max(2, len(series.values) // 50):
        return Move(before, after, int(steps[min(first, last_place)]), int(steps[min(last, last_place)]))
    at = min(_crossed(values, before, after, 0.5), last_place)
    level = series.values[max(0, since + at - _BEFORE) : since + at]
    return Move(float(np.median(level)) if len(level) else before, after, int(steps[at]), int(steps[at]))


def _crossed(values: Floats, before: float, after: float, left: float) -> int:
    """Return the first place from which values are mostly beyond a level, at which this part of the change is left."""
    level = after + left * (before - after)
    sides = np.sign(values - level) * (1 if after > before else -1)
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(sides)])))


def _detrended(values: Floats) -> Floats:
    """Return values less the means of the blocks around them."""
    length = max(10, len(values) // 20)
    kernel = np.ones(length) / length
    padded = np.pad(values, (length // 2, length - 1 - length // 2), mode="edge")
    smooth: Floats = np.convolve(padded, kernel, mode="valid")
    return values - smooth


def flat_since(course: Course) -> int | None:
    """Return the first place from which on the means stay near the end; `None` if they do so for too short a time."""
    means = np.asarray(course.means)
    quarter = means[-max(3, len(means) // 4) :]
    little = _FLAT * abs(course.end - course.start)
    near = max(little, 3 * spread(np.diff(quarter)) / math.sqrt(2))
    away = np.flatnonzero(np.abs(means - quarter.mean()) > near)
    begin = int(away[-1]) + 1 if len(away) else 0
    while len(later := means[begin:]) >= max(4, _FLAT_PART * len(means)):
        half = len(later) // 2
        if 4 * abs(float(later[half:].mean() - later[:half].mean())) <= little:  # twice what a line would change
            return begin * course.length
        begin += 1
    return None
