"""Where a run's records go: the journal, or what stands in for it before and after its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import msgspec


class Sink(Protocol):
    """Takes records; `otel_rl.journal.writer.Writer` is one."""

    def append(self, record: msgspec.Struct) -> None:
        """Write a record."""


class ClosedError(RuntimeError):
    """The run has finished."""


class _Closed:
    def append(self, record: msgspec.Struct) -> None:
        raise ClosedError("the run has finished; nothing more is recorded")


class _Silence:
    def append(self, record: msgspec.Struct) -> None:
        """Take the record and forget it."""


class UnrecordedError(RuntimeError):
    """Nothing can be recorded on this machine."""


class _Nowhere:
    def append(self, record: msgspec.Struct) -> None:
        raise UnrecordedError("nothing is recorded: no directory can be written; see the warning at the start")


CLOSED: Sink = _Closed()
"""After `finish`: refuses."""

SILENCE: Sink = _Silence()
"""In a forked child: says nothing."""

NOWHERE: Sink = _Nowhere()
"""Where no directory can be written: refuses, so that everything is counted."""
