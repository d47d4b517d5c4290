"""A limit for names that a trainer makes up: each of them is a series, or state in the agent's memory."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)
OTHER = "other"
"""What names beyond the limit are called."""


class KnownNames:
    """The first names of a kind; the first one beyond them is logged.

    Args:
        kind: What the names are of, for the log.
        most: How many there may be.
    """

    def __init__(self, kind: str, most: int) -> None:
        self._kind = kind
        self._most = most
        self._known: set[str] = set()
        self._is_logged = False

    def admits(self, name: str) -> bool:
        """Return whether the name is one of the first, and remember it if it is."""
        if name in self._known:
            return True
        if len(self._known) < self._most:
            self._known.add(name)
            return True
        if not self._is_logged:
            self._is_logged = True
            text = "more than %d %s: %.80r and later ones are counted as %r; use names that do not change with the step"
            logger.warning(text, self._most, self._kind, name, OTHER)
        return False
