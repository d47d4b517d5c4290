"""Warnings that may come by the thousand, of which a few are logged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_MOST_TEXTS = 64
"""Different texts that are counted one by one; what other programs say may be different each time."""


class Occasional:
    """Logs each text the 1st, 10th, 100th time, and how often it came."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._counts: Counter[str] = Counter()

    def warn(self, text: str) -> None:
        """Count the text, and log it if its turn has come."""
        key = text if text in self._counts or len(self._counts) < _MOST_TEXTS else ""
        self._counts[key] += 1
        if str(self._counts[key]).strip("0") == "1":
            self._logger.warning("%s (%d so far)", text, self._counts[key])
