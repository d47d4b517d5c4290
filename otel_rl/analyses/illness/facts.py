"""Facts about a series that need no test: it has reached a bound, it is constant, its parts do not add up."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEPS = 5
"""Values in a row that a fact needs, so that one odd batch is none."""
CONSTANT_STEPS = 20
_AGAIN = 100
_START = 20
_COLLAPSED = 0.1
_AT_MOST = 0.99
"""Part of the configured maximum at which a mean length is at it."""
_ROUNDING = 0.01
_OUTSIDE = 1e-6
_LITTLE = 0.05
"""A level that moves by a smaller part of its size has not moved by an amount that matters."""
SMALL_KL = 1.0
"""While the reward has not fallen, a smaller KL divergence is healthy."""
_EVALUATIONS, _BEFORE = 5, 10
_APART = 25
_FALLEN = 2.0


class InARow:
    """Whether something has held for so many values in a row; said again only if it has not held for 100."""

    def __init__(self, least: int = STEPS) -> None:
        self._least, self._held, self._quiet = least, 0, 0

    def add(self, *, holds: bool) -> bool:
        """Add a value; return whether it completes the row."""
        self._held = self._held + 1 if holds else 0
        self._quiet = self._quiet if holds else self._quiet - 1
        if self._held < self._least or self._quiet > 0:
            return False
        is_new = self._held == self._least
        self._quiet = _AGAIN
        return is_new


class Constant:
    """Whether a series is the same number, to the bit, in 20 values in a row."""

    def __init__(self) -> None:
        self._last = math.nan
        self._row = InARow(CONSTANT_STEPS - 1)

    def add(self, value: float) -> bool:
        """Add a value; return whether it completes the row."""
        last, self._last = self._last, value
        return self._row.add(holds=value == last)


class Solved:
    """Whether a series is at the highest value that it has had, above 0, after lower ones: nothing is ill."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float) -> bool:
        """Add a value; return whether it is the highest of several."""
        self._low, self._high = min(self._low, value), max(self._high, value)
        return 0 < value == self._high > self._low


class Lately:
    """Whether something has happened in the last 100 values."""

    def __init__(self) -> None:
        self._left = 0

    def add(self, *, happens: bool) -> bool:
        """Add a value; return whether it has happened lately."""
        self._left = _AGAIN if happens else max(0, self._left - 1)
        return self._left > 0


class Collapse:
    """Whether a positive series has fallen below a tenth of its start, the median of the first 20 values."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._row = InARow()
        self.start = math.nan

    def add(self, value: float) -> bool:
        """Add a value; return whether it is the fifth in a row that is so low."""
        if len(self._first) < _START:
            self._first.append(value)
            self.start = median(self._first)
            return False
        return self._row.add(holds=self.start > 0 and value < _COLLAPSED * self.start)


class Regression:
    """Whether the last 5 evaluations are all worse than each of the 10 before.

    They are 25 steps apart or more. If all 15 are exchangeable, that happens at one evaluation of 3,003.
    Scores that wander do so more often, so the fall must also be twice what the score usually moves between two
    evaluations.
    """

    def __init__(self) -> None:
        self._scores = deque[float](maxlen=_BEFORE + _EVALUATIONS)
        self._step: int | None = None

    def add(self, step: int, score: float) -> tuple[float, float] | None:
        """Add the score of a step; return the usual score and the one now if it has become worse."""
        if self._step is not None and step - self._step < _APART:
            return None
        self._step = step
        self._scores.append(score)
        before, last = [*self._scores][:_BEFORE], [*self._scores][_BEFORE:]
        if len(last) < _EVALUATIONS or max(last) >= min(before):
            return None
        usual, now = median(before), median(last)
        if usual - now < _FALLEN * median(abs(b - a) for a, b in pairwise(before)):
            return None
        self._scores.clear()
        return usual, now


def is_at_maximum(length: float, maximum: float) -> bool:
    """Return whether a mean length is that of completions that are all cut off."""
    return maximum > 0 and length >= _AT_MOST * maximum


def is_little(now: float, usual: float) -> bool:
    """Return whether a level has moved by too small a part of its size to matter."""
    return abs(now - usual) <= _LITTLE * max(abs(now), abs(usual))


def is_outside(fraction: float) -> bool:
    """Return whether a fraction is not between 0 and 1."""
    return math.isfinite(fraction) and not -_OUTSIDE <= fraction <= 1 + _OUTSIDE


def weighted_sum(parts: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return the sum of the parts times their weights; `None` if their numbers differ."""
    return math.fsum(a * b for a, b in zip(parts, weights, strict=True)) if len(parts) == len(weights) > 0 else None


def differs(value: float, other: float) -> bool:
    """Return whether two numbers differ by more than 1 % of the larger."""
    return abs(value - other) > _ROUNDING * max(abs(value), abs(other))


class Parameters:
    """The hyperparameters that say what a metric should be; of several with a name, the largest number counts."""

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        self._weights: dict[int, float] = {}
        self._texts: dict[str, str] = {}

    def add(self, values: Mapping[str, bool | int | float | str | None]) -> None:
        """Add hyperparameters, with dots between the parts of nested names."""
        for name, value in values.items():
            head, _, last = name.rpartition(".")
            if isinstance(value, str):
                if last in _TEXTS:
                    self._texts[last] = value
            elif value is not None and head.rpartition(".")[2] == _WEIGHTS and last.isdecimal():
                self._weights[int(last)] = float(value)
            elif value is not None and last in _NUMBERS:
                self._numbers[last] = max(self._numbers.get(last, 0.0), float(value))

    def number(self, names: Sequence[str]) -> float:
        """Return the largest of these; 0 if none was recorded."""
        return max((self._numbers.get(name, 0.0) for name in names), default=0.0)

    @property
    def weights(self) -> list[float]:
        """The weights of the parts of the reward, if the reward is their sum."""
        if self._texts.get(_AGGREGATION, _SUM) != _SUM:
            return []
        return [weight for _, weight in sorted(self._weights.items())]


KL_COEFFICIENTS = (
    *("beta", "kl_coef", "kl_coeff", "kl_loss_coef", "init_kl_coef", "kl_penalty_coef"),
    "reference_policy_kl_penalty",
)
ENTROPY_COEFFICIENTS = ("entropy_coef", "entropy_coeff", "ent_coef", "entropy_loss_coef", "entropy_bonus")
MAXIMUM_LENGTHS = ("max_completion_length", "max_response_length", "response_length", "max_new_tokens")
HIDES_NAN = ("logging_nan_inf_filter",)
_NUMBERS = frozenset((*KL_COEFFICIENTS, *ENTROPY_COEFFICIENTS, *MAXIMUM_LENGTHS, *HIDES_NAN))
_WEIGHTS = "reward_weights"
_AGGREGATION, _SUM = "multi_objective_aggregation", "sum_then_normalize"
_TEXTS = frozenset((_AGGREGATION,))
