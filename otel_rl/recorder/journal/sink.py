"""The destinations of a run's records: the journal, or a replacement that refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import msgspec


class Sink(Protocol):
    """A destination of records; `otel_rl.recorder.journal.writer.Writer` is one."""

    @property
    def asks_at(self) -> int:
        """When the kernel is asked for memory again, in nanoseconds of the monotonic clock; 0 if it never is."""

    def append(self, record: msgspec.Struct) -> None:
        """Write a record."""


class ClosedError(RuntimeError):
    """The run has finished."""


class _Refusing(NamedTuple):
    kind: type[RuntimeError]
    text: str
    asks_at: int = 0

    def append(self, record: msgspec.Struct) -> None:
        raise self.kind(self.text)


CLOSED: Sink = _Refusing(ClosedError, "the run has finished; nothing more is recorded")
"""The sink after `finish`, which refuses records."""

UNOPENED: Sink = _Refusing(RuntimeError, "nothing is recorded: this forked process could not begin a journal")
"""The sink of a forked child whose journal could not begin."""

NOWHERE: Sink = _Refusing(RuntimeError, "nothing is recorded: the run could not begin; see the warning at the start")
"""The sink if the run could not begin; it refuses records, so that they are counted."""
