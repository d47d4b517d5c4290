"""How long each phase usually takes, and after which time it is late."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

_WINDOW = 128
"""Times of a phase that count, the last ones."""
_MOST_NAMES = 2000
_FEW = 5
"""With fewer times than this, little is known."""
_MANY = 20
"""With so many times, the first one no longer counts: it compiles, allocates and loads."""
_FLOOR_S = 60.0
"""Seconds that are never late: a pause of the machine, a slow disk, a retry."""
_FEW_FLOOR_S = 300.0
_OUTSIDE_FLOOR_S = 600.0
"""The same outside of any phase, where a checkpoint or an evaluation may be that has no phase."""
_FIRST_S = 1800.0
"""Seconds of something that never ended before: engines start, models are compiled, a first checkpoint is saved."""
_TIMES, _FEW_TIMES, _LONG_TIMES = 5.0, 10.0, 2.0

Key = tuple[str, str, str]
"""A role, a phase and a part of it; with an empty phase, a whole step."""


class Usual(NamedTuple):
    """The deadline of a phase and its median time in seconds; `None` if it never ended."""

    deadline: float
    seconds: float | None = None


class UsualTimes:
    """The last times of each phase, in a bounded memory. A new agent starts without them.

    A phase is late after five times its longest time. If that is more than 30 minutes, it is late after 30 minutes or
    twice its longest time. A time that was late counts as if it had ended at its deadline, so a hang teaches little.
    """

    def __init__(self) -> None:
        self._times: dict[Key, deque[float]] = {}
        self._number: dict[Key, int] = {}

    def learn(self, key: Key, seconds: float) -> None:
        """Add the time of a phase that ended."""
        times = self._times.get(key)
        if times is None:
            if len(self._times) >= _MOST_NAMES:
                return
            times = self._times[key] = deque(maxlen=_WINDOW)
        # A phase that hung for an hour must not get a deadline of hours by that (analyses/test_hang_watch.py).
        if seconds > _FLOOR_S:
            seconds = min(seconds, self.of(key).deadline)
        number = self._number[key] = self._number.get(key, 0) + 1
        times.append(seconds)
        if number == _MANY:
            times.popleft()

    def or_longer(self, key: Key, seconds: float) -> float:
        """Return a deadline, or a later one if something took longer than a fifth of it."""
        return max(seconds, _TIMES * max(self._times.get(key, (0.0,))))

    def of(self, key: Key) -> Usual:
        """Return what is known of a phase."""
        times = self._times.get(key)
        if not times:
            return Usual(_FIRST_S)
        longest, usual, is_phase = max(times), median(times), bool(key[1])
        few = len(times) < _FEW
        floor = _OUTSIDE_FLOOR_S if not is_phase else _FEW_FLOOR_S if few else _FLOOR_S
        most = max(_FIRST_S, (_TIMES if few else _LONG_TIMES) * longest)
        return Usual(min(max(floor, (_FEW_TIMES if few else _TIMES) * longest), most), usual)
