"""The destinations of a run's records: the journal, or a replacement that refuses or discards them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import msgspec


class Sink(Protocol):
    """A destination of records; `otel_rl.journal.writer.Writer` is one."""

    def append(self, record: msgspec.Struct) -> None:
        """Write a record."""


class ClosedError(RuntimeError):
    """The run has finished."""


class _Closed:
    def append(self, record: msgspec.Struct) -> None:
        raise ClosedError("the run has finished; nothing more is recorded")


class _Silence:
    def append(self, record: msgspec.Struct) -> None:
        """Discard the record."""


class UnrecordedError(RuntimeError):
    """The run could not begin to be recorded."""


class _Nowhere:
    def append(self, record: msgspec.Struct) -> None:
        raise UnrecordedError("nothing is recorded: the run could not begin; see the warning at the start")


CLOSED: Sink = _Closed()
"""The sink after `finish`, which refuses records."""

SILENCE: Sink = _Silence()
"""The sink of a forked child, which discards records."""

NOWHERE: Sink = _Nowhere()
"""The sink if the run could not begin; it refuses records, so that they are counted."""
