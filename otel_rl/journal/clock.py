"""Time that never runs backwards inside what is measured, though somebody may set the machine's clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERATED_NS = 1_000_000_000
"""How far the wall clock may be away before it is followed: 1 s, more than NTP corrects at once."""


class Clock:
    """Nanoseconds since the Unix epoch, counted from an anchor by the monotonic clock.

    Whoever measures a duration keeps the `anchor` that it began with, and adds `monotonic()` to it at both ends. So
    the duration is right whatever happens to the anchor meanwhile.

    Args:
        wall: Returns nanoseconds since the Unix epoch; may jump.
        monotonic: Returns nanoseconds since some moment; never jumps.

    Attributes:
        anchor: The wall clock's time at zero of the monotonic clock.
        wall: As given.
        monotonic: As given.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.wall = wall
        self.monotonic = monotonic
        self.anchor = wall() - monotonic()

    def now(self) -> int:
        """Return the time."""
        return self.anchor + self.monotonic()

    def settle(self) -> bool:
        """Follow the wall clock if it is more than 1 s away; return whether it was.

        Call it where nothing is being measured: timestamps of one step are to be comparable.
        """
        anchor = self.wall() - self.monotonic()
        if -TOLERATED_NS <= anchor - self.anchor <= TOLERATED_NS:
            return False
        self.anchor = anchor
        return True
