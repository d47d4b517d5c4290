"""Which steps leave a row for trackers, and what is averaged over the steps between."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number = int | float

logger = logging.getLogger(__name__)


class Cadence(msgspec.Struct, frozen=True):
    """When rows leave.

    Attributes:
        every: Every so many steps; 0 for never.
        first: Whether step 0 leaves a row.
        window: Whether a row is the mean over the steps since the last one, or its own step alone.
    """

    every: int = 1
    first: bool = True
    window: Literal["mean", "last"] = "mean"

    def is_due(self, step: int) -> bool:
        """Tell whether this step leaves a row."""
        if self.every <= 0:
            return False
        return self.first if step == 0 else step % self.every == 0

    @property
    def leaves_all(self) -> bool:
        """Whether every step leaves a row."""
        return self.every == 1 and self.first


class Seen(msgspec.Struct):
    """What was seen of one metric since the last row.

    Attributes:
        total: Sum of the finite values.
        count: How many these are.
        largest: The largest of them.
        smallest: The smallest.
        last: The last value, finite or not.
        exact: The value if it was always the same; so it keeps its type.
    """

    total: float = 0.0
    count: int = 0
    largest: float = -math.inf
    smallest: float = math.inf
    last: Number = math.nan
    exact: Number | None = None


Window = dict[str, Seen]
"""What was seen of each metric since the last row."""


def add(window: Window, values: Mapping[str, Number]) -> None:
    """Take the values of a step in."""
    for name, value in values.items():
        seen = window.setdefault(name, Seen(exact=value))
        seen.last = value
        if seen.exact != value:
            seen.exact = None
        if math.isfinite(value):
            seen.total += value
            seen.count += 1
            seen.largest = max(seen.largest, value)
            seen.smallest = min(seen.smallest, value)


def take(window: Window, statistic_of: Callable[[str], str]) -> dict[str, Number]:
    """Return one value for each metric since the last call, and forget them.

    A metric that is reduced by `max`, `min` or `last` is so over the steps too; every other one is averaged, and
    values that are not finite enter only where no other is there.
    """
    taken = {name: _value(seen, statistic_of(name)) for name, seen in window.items()}
    window.clear()
    return taken


@cache
def from_hugging_face(strategy: str, steps: int | None = 1, *, first: bool = True) -> Cadence:
    """Return the cadence that `logging_strategy`, `logging_steps` and `logging_first_step` ask for.

    `no` never leaves a row; nor does `epoch`, which is not known here, and says so once.
    """
    name = strategy.strip().lower()
    if name in ("epoch", "epochs"):
        logger.warning("logging_strategy=%r: epochs are not known here, so no rows leave", strategy)
    if name in ("no", "none", "off", "epoch", "epochs"):
        return Cadence(every=0, first=False)
    return Cadence(every=max(1, steps or 1), first=first)


def _value(seen: Seen, statistic: str) -> Number:
    if seen.exact is not None:
        return seen.exact
    if statistic == "last" or not seen.count:
        return seen.last
    if statistic in ("max", "min"):
        return seen.largest if statistic == "max" else seen.smallest
    return seen.total / seen.count
