"""Which steps leave a row for trackers."""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal

import msgspec

logger = logging.getLogger(__name__)


class Cadence(msgspec.Struct, frozen=True):
    """When rows leave.

    Attributes:
        every: Every so many steps; 0 for never.
        first: Whether step 0 leaves a row.
        window: "mean" reduces a row over the steps since the last one; "last" leaves out the steps between.
    """

    every: int = 1
    first: bool = True
    window: Literal["mean", "last"] = "mean"

    def is_due(self, step: int) -> bool:
        """Tell whether this step leaves a row."""
        if self.every <= 0:
            return False
        return self.first if step == 0 else step % self.every == 0

    def window_of(self, step: int) -> int:
        """Return which window a step belongs to: the one that ends at the next step that is due."""
        if step == 0 and self.first:
            return 0
        return max(1, -(-step // self.every))

    @property
    def leaves_all(self) -> bool:
        """Whether every step leaves a row."""
        return self.every == 1 and self.first


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
