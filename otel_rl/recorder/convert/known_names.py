"""A limit on the number of names that a trainer invents, since each name is a series or uses memory of the agent."""

from __future__ import annotations

from otel_rl.recorder.errors.sinks import log_of

logger = log_of(__name__)
OTHER = "other"
"""The name that replaces all names beyond the limit."""


class KnownNames:
    """A set of the first `most` names of a kind; the first name beyond the limit is logged."""

    def __init__(self, kind: str, most: int) -> None:
        self._kind = kind
        self._most = most
        self._known: set[str] = set()
        self._is_logged = False

    def admits(self, name: str) -> bool:
        """Return whether the name is known or there is room for it; if there is, add it."""
        if name in self._known or len(self._known) < self._most:
            self._known.add(name)
            return True
        if not self._is_logged:
            self._is_logged = True
            text = "more than %d %s: %.80r and later ones are counted as %r; use names that do not change with the step"
            logger.warning(text, self._most, self._kind, name, OTHER)
        return False
