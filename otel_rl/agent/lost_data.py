"""Counts of what was lost of a run, by reason. The checkpoint keeps them when the agent restarts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)


class Losses:
    """Counts of losses by reason: those of earlier agents of the run, and of this one.

    Args:
        before: Losses of earlier agents.
    """

    def __init__(self, before: Mapping[str, int]) -> None:
        self._before = dict(before)
        self._here: dict[str, int] = {}
        self._saved = dict(before)

    @property
    def lost(self) -> dict[str, int]:
        """Losses so far, by reason; empty if there are none."""
        reasons = {*self._before, *self._here}
        counts = {reason: self._before.get(reason, 0) + self._here.get(reason, 0) for reason in sorted(reasons)}
        return {reason: count for reason, count in counts.items() if count}

    @property
    def is_news(self) -> bool:
        """Whether there are losses that no checkpoint has."""
        return self.lost != self._saved

    def note(self, counts: Mapping[str, int]) -> None:
        """Set the losses of this agent so far; log a count when it has one more digit than before."""
        for reason, count in counts.items():
            before = self._here.get(reason, 0)
            if count and len(str(count)) > (len(str(before)) if before else 0):
                logger.warning("lost: %s (%d so far)", reason, count)
        self._here = dict(counts)

    def saved(self, lost: Mapping[str, int]) -> None:
        """Record that a checkpoint contains these losses."""
        self._saved = dict(lost)
