"""Work whose step has no number yet: a loop names it only when it logs, after the work."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from otel_rl.recorder.trainer.current import recorder_of
from otel_rl.recorder.trainer.phase import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.recorder.trainer.run import Run

_MOST_PHASES = 1 << 12
"""Phases that are kept in memory: 1,365 batches of a loop that logs nothing."""


class UnnumberedWork:
    """The phases since the work on a step began, kept until its number is known.

    Attributes:
        since: When the work began, in Unix nanoseconds of the run's clock.
        thread: The thread that works. Another one may log.
        number: The step that was logged after the work by another thread; `None` before that.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.since = self._now()
        self.thread = get_ident()
        self.number: int | None = None
        self._phases: list[tuple[str, int, int]] = []
        self._is_over = False

    @property
    def is_full(self) -> bool:
        """Return whether as many phases are kept as may be."""
        return len(self._phases) >= _MOST_PHASES

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the body as a phase of this work."""
        began = self._now()
        try:
            yield
        finally:
            measured = name, began, self._now()
            if self._is_over:  # its step has begun inside of the phase
                self._record(*measured)
            else:
                self._phases.append(measured)

    def record(self) -> None:
        """Record the phases in the step that is open, otherwise outside of steps; later ones at once."""
        self._is_over, phases = True, self._phases
        for name, began, ended in phases:
            self._record(name, began, ended)

    def _record(self, name: str, began: int, ended: int) -> None:
        phase = self._run.phase(name)
        if isinstance(phase, Phase):
            phase.begin(start_time=began).end(ended)

    def _now(self) -> int:
        clock = recorder_of(self._run).clock
        return clock.anchor + clock.monotonic()
