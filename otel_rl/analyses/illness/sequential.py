"""Sequential tests of one series against its own past, with a measured rate of false alarms.

A series is compared with an AR(1) model of its last 300 values, made again every 50: `r = x - m - f (x_before - m)`.
Two sums of bets, `M = (M + 1) e` (Shiryaev-Roberts e-detectors: Shin, Ramdas and Rinaldo 2024, "E-detectors", The New
England Journal of Statistics in Data Science 2), grow when the model no longer holds:

- **Burst**: the rank of `|r|` among the last 300, whatever their distribution. It sees noise that becomes larger, and
  repeated jumps.
- **Shift**: `r` in robust standard deviations, against normal means of 1/4, 1/2 and 1 in the direction that is bad. It
  sees a level that moves away over tens of steps.

A **spike** is one value that is five times as far out as any of the last 300: neither sum can see a single value.

An alarm is raised only if the value is also 2 robust standard deviations away from the whole past: a series that is
nearly without noise, such as a mean over many steps, leaves its model by amounts that do not matter.

With a known model the mean time to a false alarm is at least the threshold. The model is estimated, so that does not
hold; `python -m benchmarks illness` measures the rates that `kinds` states.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import pairwise
from statistics import fmean, median
from typing import Literal, NamedTuple

Test = Literal["burst", "shift", "spike"]
LEAST = 100
"""Values before the first test."""
_MEMORY = 300
_RENEWED = 50
"""Values after which the model is made again."""
_BURST, _SHIFT = 1e4, 1e6
"""Thresholds of the two sums. With 10⁴, shifts had up to 6 false alarms in 10,000 steps: the model is estimated."""
_SPIKE = 5.0
_WIDER = 1.3
"""Factor on the spread for shifts: the model is estimated from the values that it is to judge."""
_CLIPPED = 3.0
_FAR = 2.0
"""Robust standard deviations of the past by which a value must be away from its median."""
_MOST = 1e8
"""Most wealth: more would take long to lose, after a change that has passed."""
_MEANS = (0.25, 0.5, 1.0)
_RECENT = 10
_MOST_SPIKES = 10
"""Spikes in a row, after which they are the level. A shift is found sooner."""
_GROWS = 20.0
"""Wealth below which a sum of bets is where it is without a change."""
_TINY = 1e-9


class Alarm(NamedTuple):
    """A test that has rejected: the usual level before, the level now, and how many values the change took."""

    test: Test
    usual: float
    value: float
    values: int


class _Model(NamedTuple):
    """An AR(1) model: its level, its coefficient and the robust standard deviation of what it does not explain."""

    level: float
    keeps: float
    spread: float

    def residual(self, before: float, value: float) -> float:
        return value - self.level - self.keeps * (before - self.level)


class Sequential:
    """The tests of one series.

    They restart after a shift, so each new level is reported once. A burst and a spike are reported once in 100 values.

    Args:
        tests: The tests to make.
        sign: 1 if a rise is bad, -1 if a fall is.
        seed: Of the dice that break ties of ranks, so that the same rows give the same alarms.
    """

    def __init__(self, tests: frozenset[Test], sign: int, seed: str = "") -> None:
        self._tests, self._sign, self._dice = tests, sign, random.Random(seed)
        self._begin()

    def _begin(self) -> None:
        self._values = deque[float](maxlen=_MEMORY)
        self._recent = deque[float](maxlen=_RECENT)
        self._sizes = deque[float]()
        self._sorted: list[float] = []
        self._model: _Model | None = None
        self._age = 0
        self.burst = self.shift = 0.0
        self._burst_for = self._shift_for = self._spikes = self._until_burst = self._until_spike = 0

    def add(self, value: float) -> Alarm | None:
        """Add the next value; return the alarm that it raises."""
        if not math.isfinite(value):
            return None
        if self._model is None or self._age >= _RENEWED:
            self._renew()
        if self._model is None:
            self._values.append(value)
            return None
        self._age += 1
        residual = self._model.residual(self._values[-1], value)
        self._recent.append(value)
        spike = self._spikes_now(residual, value)
        burst = self._bursts(residual)
        alarm = self._shifted(self._model, residual) or burst or spike
        if self._spikes == 0:  # a spike would spoil the model
            self._remember(value, abs(residual))
        if self._spikes > _MOST_SPIKES or (alarm is not None and alarm.test == "shift"):
            self._begin()
        return alarm

    def _renew(self) -> None:
        """Make the model of the last values again, once there are enough."""
        values = [*self._values]
        if len(values) < LEAST:
            return
        level = fmean(values)
        off = [value - level for value in values]
        power = math.fsum(one * one for one in off)
        keeps = math.fsum(a * b for a, b in pairwise(off)) / power if power > 0 else 0.0
        residuals = [b - keeps * a for a, b in pairwise(off)]
        middle = median(residuals)
        spread = _WIDER * 1.4826 * median(abs(one - middle) for one in residuals)
        self._model, self._age = _Model(level, keeps, spread), 0
        self._sizes = deque(abs(one) for one in residuals)
        self._sorted = sorted(self._sizes)

    def _shifted(self, model: _Model, residual: float) -> Alarm | None:
        if "shift" not in self._tests or model.spread <= 0:
            return None
        moved = max(-_CLIPPED, min(_CLIPPED, self._sign * residual / model.spread))
        self.shift, self._shift_for = _bet(self.shift, self._shift_for, mean_bet(moved))
        if self.shift <= _SHIFT or not self._matters(now := median(self._recent)):
            return None
        return Alarm("shift", model.level, now, self._shift_for)

    def _bursts(self, residual: float) -> Alarm | None:
        if "burst" not in self._tests:
            return None
        self.burst, self._burst_for = _bet(self.burst, self._burst_for, rank_bet(self._rank(abs(residual))))
        self._until_burst -= 1
        if self.burst <= _BURST or self._until_burst > 0:
            return None
        usual, since = median(self._values), self._burst_for
        farthest = max(self._recent, key=lambda one: abs(one - usual))
        if not self._matters(farthest):
            return None
        self._until_burst, self.burst, self._burst_for = LEAST, 0.0, 0
        return Alarm("burst", usual, farthest, since)

    def _spikes_now(self, residual: float, value: float) -> Alarm | None:
        is_far = "spike" in self._tests and self._sign * residual > _SPIKE * self._sorted[-1] > 0
        is_one = is_far and self._matters(value)
        self._spikes = self._spikes + 1 if is_one else 0
        self._until_spike -= 1
        if not is_one or self._until_spike > 0:
            return None
        self._until_spike = LEAST
        return Alarm("spike", median(self._values), value, 1)

    def _matters(self, value: float) -> bool:
        """Return whether a value is far from the past: a smooth series leaves its model by very little."""
        usual = median(self._values)
        return abs(value - usual) > _FAR * 1.4826 * median(abs(one - usual) for one in self._values)

    def _remember(self, value: float, size: float) -> None:
        self._values.append(value)
        self._sizes.append(size)
        insort(self._sorted, size)
        if len(self._sizes) > _MEMORY:
            del self._sorted[bisect_left(self._sorted, self._sizes.popleft())]

    def _rank(self, size: float) -> float:
        """Return the part of the past that is at least as far out, with ties broken by the dice."""
        known = self._sorted
        above, least = len(known) - bisect_right(known, size), len(known) - bisect_left(known, size)
        return (above + self._dice.random() * (least - above + 1)) / (len(known) + 1)


def rank_bet(rank: float) -> float:
    """Return the bet on a rank that is uniform between 0 and 1 if nothing has changed: 1 on average."""
    if rank > 1 - 1e-4:
        return 0.5
    log = math.log(max(rank, _TINY))
    return (1 - rank + rank * log) / (rank * log * log) if rank > _TINY else 1 / (_TINY * log * log)


def mean_bet(moved: float) -> float:
    """Return the bet on a mean above 0, of a value in standard deviations: 1 on average if the mean is 0."""
    return math.fsum(math.exp(mean * moved - mean * mean / 2) for mean in _MEANS) / len(_MEANS)


def _bet(wealth: float, values: int, odds: float) -> tuple[float, int]:
    """Return the wealth after a bet with one more unit, and for how many values it has been growing."""
    after = min(_MOST, (wealth + 1) * odds)
    return after, values + 1 if after > _GROWS else 0
