"""Rate limiting of repeated warnings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.recorder.errors.sinks import Log

_MOST_TEXTS = 64
"""The largest number of texts that are counted separately; messages of other programs can differ each time."""


def is_power_of_ten(count: int) -> bool:
    """Return whether the n-th warning of its kind is logged: the 1st, 10th, 100th and so on."""
    return str(count).strip("0") == "1"


class Occasional:
    """A logger that logs a repeated text the 1st, 10th, 100th … time, with its count."""

    def __init__(self, logger: Log) -> None:
        self._logger = logger
        self._counts: Counter[str] = Counter()

    def warn(self, text: str) -> None:
        """Count the text, and log it if the count is a power of ten."""
        key = text if text in self._counts or len(self._counts) < _MOST_TEXTS else ""
        self._counts[key] += 1
        if is_power_of_ten(self._counts[key]):
            self._logger.warning("%s (%d so far)", text, self._counts[key])
