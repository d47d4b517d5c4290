"""Runs exporters that only the trainer's process can build, such as lambdas, in threads that read the outbox."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import identity
from otel_rl.recorder.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter, RunInfo
    from otel_rl.recorder.directory.directory import RunDirectory


class _GrowingOutbox:
    """An outbox that another process writes; its end is known only when the run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.grown = threading.Condition()
        self.end: Position = START
        self.count = 0

    @property
    def id(self) -> str:
        """Identity of the outbox."""
        return identity(self.path)


class Relay:
    """Delivers the agent's outbox to exporters of this process, each in a thread of its own.

    The names of `factories` stay the same when the run restarts.
    """

    def __init__(
        self,
        run: RunInfo,
        directory: RunDirectory,
        factories: Mapping[str, Callable[..., Exporter]],
    ) -> None:
        self._outbox = _GrowingOutbox(directory.outbox)
        self._exporters = [
            ExporterThread(name, factory, {}, run, self._outbox, directory.cursors)
            for name, factory in factories.items()
        ]
        for exporter in self._exporters:
            exporter.start()

    def finish(self, end: Position | None, timeout: float) -> bool:
        """Deliver up to `end` and close; return whether all was delivered in time. Without an end, stop."""
        self._outbox.end = end or START
        for exporter in self._exporters:
            if end is None:
                exporter.stop()
            else:
                exporter.close_when_done()
        deadline = time.monotonic() + timeout
        for exporter in self._exporters:
            exporter.join(max(0.0, deadline - time.monotonic()))
        done = end is not None and not any(exporter.is_alive() for exporter in self._exporters)
        if not done:
            for exporter in self._exporters:
                exporter.stop()
        return done and not any(exporter.progress.damaged + exporter.progress.retained for exporter in self._exporters)
