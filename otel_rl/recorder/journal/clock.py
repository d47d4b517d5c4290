"""A wall clock that does not jump during a measurement, even if the machine's clock is set."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOLERATED_NS = 1_000_000_000
"""The difference to the wall clock that is tolerated, in nanoseconds: 1 s, more than NTP corrects in one step."""


class Clock:
    """Nanoseconds since the Unix epoch, counted from an anchor by the monotonic clock.

    To measure a duration, keep the `anchor` from its start, and add `monotonic()` to it at both ends. Then the duration
    is correct even if the anchor changes in between.

    Args:
        wall: Returns nanoseconds since the Unix epoch; may jump.
        monotonic: Returns nanoseconds since an arbitrary time; never jumps.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.wall = wall
        self.monotonic = monotonic
        self.anchor = wall() - monotonic()  # the time at which the monotonic clock was 0

    def now(self) -> int:
        """Return the nanoseconds since the Unix epoch."""
        return self.anchor + self.monotonic()

    def catch_up(self) -> bool:
        """Move the anchor to the wall clock if they differ by more than 1 s; return whether they did.

        Call it between steps, so that all timestamps of one step use the same anchor.
        """
        anchor = self.wall() - self.monotonic()
        if -_TOLERATED_NS <= anchor - self.anchor <= _TOLERATED_NS:
            return False
        self.anchor = anchor
        return True
