"""Counts of what was lost, over all agents of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = log_of(__name__)


class Losses:
    """Losses by reason, over all agents of the run; checkpoints keep them."""

    def __init__(self, before: Mapping[str, int]) -> None:
        self._before, self._saved = dict(before), dict(before)
        self._here: dict[str, int] = {}

    @property
    def lost(self) -> dict[str, int]:
        """Losses so far, by reason; empty if there are none."""
        return dict(sorted((Counter(self._before) + Counter(self._here)).items()))

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
