"""The run that a framework's logger records into: the one there is, or one of its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import otel_rl

if TYPE_CHECKING:
    from otel_rl.run import Run

logger = logging.getLogger(__name__)


class Recording:
    """Borrows the run that is being recorded, or begins one that ends with the logger.

    Args:
        options: What `otel_rl.init` takes; without effect where there is a run already.

    Raises:
        SettingsError: A run had to be begun, and a setting is wrong.
    """

    def __init__(self, **options: Any) -> None:
        found = otel_rl.current()
        self._own = found is None
        if found is not None:
            logger.info("recording into run %s; the logger's own settings of destinations have no effect", found.id)
        self.run: Run = otel_rl.init(**options) if found is None else found

    def finish(self, timeout: float = 30.0) -> bool:
        """End a run of our own and wait for its destinations; whoever began another one ends it."""
        return self.run.finish(timeout) if self._own else True
